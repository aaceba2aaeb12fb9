"""Commands that train.

``train-adversary``, ``train-critic`` and ``train-dynamics`` learn what attacks need before they attack, ``train-agent``
agents that withstand attacks.
"""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from adv_wrappers.cli.completion import complete_victim
from adv_wrappers.cli.interruption import kept_checkpoints, kept_steps, resumable
from adv_wrappers.cli.main import main
from adv_wrappers.cli.options import (
    ENV_WORKERS,
    FOLDER,
    POSITIVE,
    SCALE,
    SEED,
    SELECT,
    STATS,
    TRUST,
    WORKERS,
    EnvArguments,
    Select,
    environment_options,
    load_agent,
    parse_scale,
    repeated,
    victim_options,
)
from adv_wrappers.cli.output import json_asked, print_rows, print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.registry import BOTH, FORMS, MOST_HIDDEN, OBSERVE, REWARDS, ROBUST, Rewards
from adv_wrappers.utils.parsing import parse_value, split_arguments

if TYPE_CHECKING:
    from adv_wrappers.core.budgets import Budget
    from adv_wrappers.environments.named_function import MakeFunction
    from adv_wrappers.training.agent import Hardened
    from adv_wrappers.victims.saved_networks import Critic


def _quoted(folder: Path) -> str:
    """A folder as it is written in the text of a threat."""
    text = str(folder)
    plain = parse_value(text) == text and split_arguments(text) == [text]
    return text if plain else f"'{text}'"


def _evaluate_with(env: str, how: list[str], victim: str, *threats: str, select: str | None = None) -> str:
    """The command that evaluates under threats; ``how`` are the words of :func:`repeated`."""
    words = ["adv-wrappers", "evaluate", env, *how, "--victim", victim, *(["--select", select] if select else [])]
    return f"evaluate with: {shlex.join([*words, *(word for text in threats for word in ('--threat', text))])}"


def _check_tensorboard(folder: Path | None) -> None:
    if folder is not None and importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError("--tensorboard needs tensorboard: pip install tensorboard")


def _print_checkpoints(rows: Sequence[Mapping[str, Any]], best: Mapping[str, Any], shown: Mapping[str, str]) -> None:
    """Print the checkpoints of a training, one a line and the best in bold with a star.

    Args:
        rows: what is known of each checkpoint, with ``steps``, and ``form`` where there are several.
        best: one of the rows.
        shown: by the names of columns, the keys of their numbers in a row.
    """
    from adv_wrappers.evaluation.report import number_text
    from adv_wrappers.rendering.text_table import TextTable

    lines = list[tuple[str, ...]]()
    for row in rows:
        steps = f"{row.get('form', '')} {row['steps']}".strip() + (" *" if row is best else "  ")
        lines.append((steps, *(number_text(row.get(key)) for key in shown.values())))
    bold = [place for place, row in enumerate(rows) if row is best]
    first = ("steps", *(name for name in shown if name not in ("median", "std")))
    table = TextTable("", ("steps", *shown), tuple(lines), texts=(), bold=bold, by_importance=first)
    print_table(table, ({**row, "best": row is best} for row in rows))


@main.command("train-adversary")
@environment_options
@victim_options
@click.option(
    "--kind", default="pa-ad", show_default=True, metavar="ACTOR",
    help="sa-rl, pa-ad, pa-ad-action, forces (on all bodies), induce, or timed:max-diff and the like, to learn when to "
    "attack",
)  # fmt: skip
@click.option(
    "--form",
    type=click.Choice([*FORMS, BOTH]),
    help="of pa-ad's action; both trains the two and keeps the stronger  [default: by the victim's actions]",
)
@click.option("--eps", type=float, help="radius of the l-infinity budget; pa-ad-action on discrete actions needs none")
@SCALE
@click.option("--steps", default=100_000, show_default=True, type=POSITIVE, help="of all environments together")
@click.option(
    "--algorithm", default="ppo", show_default=True, metavar="NAME", help="ppo, a2c, or dqn for discrete choices"
)
@click.option("--num-envs", type=POSITIVE, help="attacked as one batch  [default: 32, 8 for images, 1 for dqn]")
@SEED
@click.option("--checks", default=10, show_default=True, type=POSITIVE, help="checkpoints that are compared")
@click.option("--episodes", default=30, show_default=True, type=POSITIVE, help="that each checkpoint is judged by")
@click.option("--when", metavar="TIMING", help="e.g. bernoulli(0.5)  [default: every step]")
@click.option("--cost", type=float, help="of an attack, in units of the reward: for timed: and induce  [default: none]")
@click.option(
    "--observe", type=click.Choice(OBSERVE), default=OBSERVE[0], show_default=True, help="what the adversary observes"
)
@SELECT
@WORKERS
@ENV_WORKERS
@click.option(
    "--device",
    metavar="DEVICE",
    help="of the victim and the adversary  [default: cpu; of an adversary that sees images, a GPU]",
)
@click.option("--no-quantize", is_flag=True, help="images as float32, for budgets below one grey level")
@click.option("--tensorboard", type=FOLDER, help="for logs")
@click.option("--out", required=True, type=FOLDER, help="for the adversary; the same call goes on where it stopped")
@table_options
def train_adversary_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    victim: str,
    stats: str | None,
    trust: bool,
    kind: str,
    form: str | None,
    eps: float | None,
    scale: str | None,
    steps: int,
    algorithm: str,
    num_envs: int | None,
    seed: int,
    checks: int,
    episodes: int,
    when: str | None,
    cost: float | None,
    observe: str,
    select: Select | None,
    workers: int,
    env_workers: int,
    device: str | None,
    no_quantize: bool,
    tensorboard: Path | None,
    out: Path,
) -> None:
    """Train an adversary against a victim in ENV, and keep its best checkpoint."""
    _check_tensorboard(tensorboard)
    from adv_wrappers.studies.suite.trained import import_train_adversary
    from adv_wrappers.training.folder import read_record
    from adv_wrappers.wrappers.adversary_rewards import PerturbationCost

    train, agent = import_train_adversary(), load_agent(victim, trust, stats, select, device)
    forms = FORMS if form == BOTH else (".",)
    with show_progress() as move, resumable(out, kept_checkpoints(steps, forms)):
        whole = steps * len(forms)
        kept = min(kept_steps(out, forms), whole)
        before = kept // steps * steps  # of the forms that are done

        def at_checkpoint(at: int, _: float) -> None:
            nonlocal before
            before = at // steps * steps
            move(kind, min(at, whole), whole)

        def at_episode(at: int, *_: float) -> None:
            move(kind, min(before + at, whole), whole)

        move(kind, kept, whole)
        train(
            kind,
            env,
            agent,
            eps,
            steps,
            algorithm,
            num_envs,
            seed,
            scale=parse_scale(scale),
            when=when,
            form=form,
            checks=checks,
            episodes=episodes,
            out=out,
            device=device,
            tensorboard=tensorboard,
            quantize=not no_quantize,
            observe=observe,
            reward=None if cost is None else PerturbationCost(cost),
            workers=workers,
            env_workers=env_workers,
            progress=at_checkpoint,
            on_episode=None if form == BOTH and workers > 1 else at_episode,  # which would keep forms in one process
            env_kwargs=env_kwargs,
            make=make,
        )
    from adv_wrappers.training.adversary import adversary_score  # needs Stable-Baselines3

    if form == BOTH:
        rows = [{"form": one, **row} for one in FORMS for row in read_record(out / one)]
    else:
        rows = read_record(out)
    best = min(rows, key=adversary_score)
    shown = {"victim's return": "mean_return", "std": "std", "median": "median", "in training": "in_training"}
    shown |= {} if cost is None else {"attacks": "attacks", "return + cost": "score"}
    shown |= {"seconds": "seconds"}
    _print_checkpoints(rows, best, shown)
    by = "mean return" if cost is None else "mean return and cost"
    say(f"* the best of {len(rows)}, by {by} over {episodes} episodes that the training never sees")
    text = f"learned:card={_quoted(out)}" + (f",when={when}" if when else "")
    say(_evaluate_with(env, repeated(env_kwargs, make, trust), agent.ref or victim, text, select=select))


@main.command("train-agent")
@environment_options
@click.option(
    "--victim", metavar="REF", help="to go on from: zoo:NAME, card:FOLDER or sb3:FILE.zip  [default: a new agent]",
    shell_complete=complete_victim("card", "sb3"),
)  # fmt: skip
@STATS
@TRUST
@click.option(
    "--algorithm",
    metavar="NAME",
    help="of the agent: ppo, a2c, dqn, td3, ddpg or recurrent-ppo  [default: as --victim acts; of a new agent ppo]",
)
@click.option(
    "--adversary", metavar="NAME",
    help="pa-ad, sa-rl or forces, which learn too, a threat such as max-diff or dynamics-noise:at=mass, or none  "
    "[default: pa-ad; none with --robust]",
)  # fmt: skip
@click.option(
    "--robust",
    type=click.Choice(ROBUST),
    help="a loss against any attack in the budget; with smoothed, --eps is the sigma of the noise  [default: none]",
)
@click.option("--eps", type=float, help="radius of the l-infinity budget")
@SCALE
@click.option("--when", metavar="TIMING", help="of the adversary, e.g. bernoulli(0.5)  [default: every step]")
@click.option(
    "--steps", default=1_000_000, show_default=True, type=POSITIVE, help="of the agent, all environments together"
)
@click.option("--num-envs", default=32, show_default=True, type=POSITIVE, help="of either side, attacked as one batch")
@click.option(
    "--rewards", type=click.Choice(REWARDS), default=REWARDS[0], show_default=True, help="what the agent learns from"
)
@click.option(
    "--observations", type=click.Choice(["normalized", "raw"]),
    help="of a new agent  [default: normalized; images and those of dqn, td3 and ddpg are raw]",
)  # fmt: skip
@click.option(
    "--select", type=click.Choice(["mode", "sample"]), default="mode", show_default=True,
    help="how the agent acts at checkpoints, and afterwards",
)  # fmt: skip
@SEED
@click.option("--checks", default=10, show_default=True, type=POSITIVE, help="checkpoints; the second half is compared")
@click.option("--episodes", default=20, show_default=True, type=POSITIVE, help="that each checkpoint is judged by")
@WORKERS
@ENV_WORKERS
@click.option("--tensorboard", type=FOLDER, help="for logs")
@click.option("--out", required=True, type=FOLDER, help="for the agent's card; the same call goes on where it stopped")
@table_options
def train_agent_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    victim: str | None,
    stats: str | None,
    trust: bool,
    algorithm: str | None,
    adversary: str | None,
    robust: str | None,
    eps: float | None,
    scale: str | None,
    when: str | None,
    steps: int,
    num_envs: int,
    rewards: Rewards,
    observations: Literal["normalized", "raw"] | None,
    select: Select,
    seed: int,
    checks: int,
    episodes: int,
    workers: int,
    env_workers: int,
    tensorboard: Path | None,
    out: Path,
) -> None:
    """Train an agent in ENV against an adversary or by a robust loss, and keep its best checkpoint."""
    if victim is None and (trust or stats is not None):
        raise click.UsageError(f"{'--trust' if trust else '--stats'} is for the file of --victim, which is not given")
    if victim is not None and observations is not None:
        raise click.UsageError("--observations is of a new agent: that of --victim keeps its own")
    if scale is not None and eps is None:
        raise click.UsageError("--scale goes with --eps")
    if when is not None and (adversary == "none" or (adversary is None and robust is not None)):
        raise click.UsageError("--when is the timing of an adversary, and there is none: --adversary NAME gives one")
    _check_tensorboard(tensorboard)
    from adv_wrappers.studies.suite.trained import imports_of_sb3

    with imports_of_sb3("agents"):
        from adv_wrappers.training.agent import train_agent
    from adv_wrappers.core.budgets import Linf
    from adv_wrappers.evaluation.report import number_text

    first = None if victim is None else load_agent(victim, trust, stats)
    against = None if adversary == "none" else adversary or "auto"
    budget = None if eps is None else Linf(eps, parse_scale(scale))
    note = ""
    with show_progress() as move, resumable(out, kept_checkpoints(steps)):

        def at_checkpoint(at: int, clean: float, _: float | None) -> None:
            nonlocal note
            note = f"clean return {number_text(clean)}"
            move("agent", min(at, steps), steps, note)

        move("agent", min(kept_steps(out), steps), steps)
        hardened = train_agent(
            env,
            against,
            steps=steps,
            algorithm=algorithm,
            num_envs=num_envs,
            seed=seed,
            victim=first,
            robust=robust,
            select=select,
            rewards=rewards,
            observations=observations or "normalized",
            within=budget,
            when=when,
            checks=checks,
            episodes=episodes,
            out=out,
            tensorboard=tensorboard,
            workers=workers,
            env_workers=env_workers,
            progress=at_checkpoint,
            on_steps=lambda at: move("agent", min(at, steps), steps, note),
            env_kwargs=env_kwargs,
            make=make,
        )
    rows = [{**row, "seconds": sum(row["seconds"].values())} for row in hardened.record]
    best = rows[hardened.best]
    shown = {"clean": "clean", "attacked": "attacked", "worst case": "gwc"}
    shown = {column: key for column, key in shown.items() if best.get(key) is not None}
    _print_checkpoints(rows, best, shown | {"in training": "in_training", "seconds": "seconds"})
    say(f"* {hardened.protocol}, over {episodes} episodes that the training never sees")
    if hardened.given_up:
        say(f"WARNING: {hardened.given_up}")
    agent = hardened.victim
    assert agent.ref is not None
    say(f"the agent is {agent.ref}; adv-wrappers suite attacks it with everything that applies")
    say(_evaluate_with(env, repeated(env_kwargs, make, False), agent.ref, *_threats_of(hardened, budget)))


def _threats_of(hardened: Hardened, within: Budget | None) -> list[str]:
    """What to evaluate an agent under: what it was trained against, and an attack by gradients in its budget."""
    from adv_wrappers.threats.presets import threat
    from adv_wrappers.threats.text import text_of

    found = [] if hardened.threat is None else [hardened.threat]
    if within is not None and all(one.on == "observation" for one in found):
        found.append(threat("pgd" if hardened.victim.discrete else "max-diff", within=within))
    return list(dict.fromkeys(text_of(one, hardened.victim) for one in found))


@main.command("train-critic")
@environment_options
@victim_options
@click.option("--steps", type=click.IntRange(min=2), help="of each critic  [default: 61440]")
@click.option("--robust", type=click.Choice(["interval", "sample", "none"]), help="smoothness  [default: interval]")
@click.option(
    "--robust-eps", type=click.FloatRange(0, 1e30), help="radius of the box that it is asked in  [default: 0.02]"
)
@click.option("--weight", type=float, help="of smoothness  [default: 0.1]")
@click.option("--box", type=click.Choice(["both", "action"]), help="around what  [default: both]")
@click.option("--successor", type=click.Choice(["next", "shuffled"]), help="[default: next]")
@click.option("--num-envs", type=POSITIVE, help="side by side  [default: 8]")
@SEED
@click.option("--one", is_flag=True, help="one critic, and no attacks: as where one of the five options above is given")
@click.option("--grid", is_flag=True, help="the strongest of the papers' thirty settings, instead of four")
@click.option(
    "--eps", type=float, help="radius of the l-infinity budget that they attack with  [default: 0.1 with scale=victim]"
)
@SCALE
@click.option("--episodes", default=20, show_default=True, type=POSITIVE, help="that each critic is judged by")
@SELECT
@click.option("--out", required=True, type=FOLDER, help="for the critics; the same call goes on where it stopped")
@table_options
def train_critic_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    victim: str,
    stats: str | None,
    trust: bool,
    steps: int | None,
    robust: str | None,
    robust_eps: float | None,
    weight: float | None,
    box: str | None,
    successor: str | None,
    num_envs: int | None,
    seed: int,
    one: bool,
    grid: bool,
    eps: float | None,
    scale: str | None,
    episodes: int,
    select: Select | None,
    out: Path,
) -> None:
    """Train critics of a victim in ENV for robust-sarsa: four settings, each attacked with, and keep the strongest.

    It takes four trainings and 140 episodes; --one takes one training.
    """
    setting: dict[str, Any] = {"eps": robust_eps, "weight": weight, "box": box, "successor": successor}
    setting = {key: value for key, value in setting.items() if value is not None}
    common: dict[str, Any] = {"steps": steps, "num_envs": num_envs, "seed": seed}
    common |= {"env_kwargs": env_kwargs, "make": make}
    common = {key: value for key, value in common.items() if value is not None}
    if robust is not None:
        common["robust"] = None if robust == "none" else robust
    chosen = one or bool(setting) or robust is not None
    if grid and chosen:
        said = "--one, --robust, --robust-eps, --weight, --box and --successor"
        raise click.UsageError(f"--grid has settings of its own: {said} are for one critic")
    if chosen and (eps is not None or scale is not None):
        raise click.UsageError("one critic is not attacked with: --eps and --scale go with several")
    if scale is not None and eps is None:
        raise click.UsageError("--scale goes with --eps")
    from adv_wrappers.core.budgets import Linf
    from adv_wrappers.training.critic import (
        CRITIC_GRID,
        SMALL,
        check_scan_folder,
        default_budget,
        scan_critics,
        train_one_critic,
    )

    agent = load_agent(victim, trust, stats, select)
    many = not chosen
    within = Linf(eps, parse_scale(scale)) if eps is not None else default_budget(agent) if many else None
    with show_progress() as move, resumable(out):
        if many:
            assert within is not None
            check_scan_folder(out)
            settings = CRITIC_GRID if grid else SMALL
            found = scan_critics(
                agent, env, within=within, settings=settings, episodes=episodes, out=out, progress=move, **common
            )
            critic = found.save(out)
        else:
            critic = train_one_critic(
                agent, env, out=out, progress=lambda *at: move("robust-sarsa critic", *at), **setting, **common
            )
    if many:
        chosen_rows = zip([None, *found.settings], found.chosen.threats, strict=True)
        rows = ({"critic": setting, "best": i == found.best + 1, **row} for i, (setting, row) in enumerate(chosen_rows))
        print_table(found.table(), rows)
    elif json_asked():
        print_rows([critic.card["losses"][-1]])
    else:
        _show(critic)
    assert critic.folder is not None
    scale = "victim" if many and eps is None else scale
    budget = f"eps={'EPS' if within is None else f'{within.eps:g}'}" + (f",scale={scale}" if scale else "")
    text = f"robust-sarsa:critic={_quoted(Path(critic.folder))},{budget}"
    say(_evaluate_with(env, repeated(env_kwargs, make, trust), agent.ref or victim, text, select=select))


def _show(critic: Critic) -> None:
    from adv_wrappers.evaluation.report import number_text

    last = critic.card["losses"][-1]
    values = ", ".join(f"{key} {number_text(last[key])}" for key in ("loss", "robustness", "width", "q", "mean_return"))
    say(f"{last['steps']} steps: {values}")


@main.command("train-dynamics")
@environment_options
@victim_options
@click.option("--transitions", default=100_000, show_default=True, type=POSITIVE, help="of the victim and at random")
@click.option("--noise", default=0.3, show_default=True, help="on actions of half of the victim's episodes")
@click.option("--random", default=0.5, show_default=True, help="share of transitions with random actions")
@click.option("--width", default=1000, show_default=True, type=POSITIVE, help="of each layer")
@click.option("--layers", default=4, show_default=True, type=click.IntRange(0, MOST_HIDDEN), help="0: linear model")
@click.option("--ensemble", default=1, show_default=True, type=POSITIVE, help="networks whose predictions are averaged")
@click.option("--epochs", default=20, show_default=True, type=POSITIVE, help="passes over the transitions")
@click.option("--lr", default=1e-3, show_default=True, help="Adam's first learning rate")
@click.option("--num-envs", default=8, show_default=True, type=POSITIVE, help="side by side")
@SEED
@click.option("--out", required=True, type=FOLDER, help="for the model; the same call goes on where it stopped")
@table_options
def train_dynamics_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    victim: str,
    stats: str | None,
    trust: bool,
    transitions: int,
    noise: float,
    random: float,
    width: int,
    layers: int,
    ensemble: int,
    epochs: int,
    lr: float,
    num_envs: int,
    seed: int,
    out: Path,
) -> None:
    """Learn a model of ENV from what a victim and random actions do there."""
    import numpy as np

    from adv_wrappers.attacks.targets import target_of
    from adv_wrappers.evaluation.report import number_text
    from adv_wrappers.training.dynamics import HORIZONS, train_dynamics

    agent = load_agent(victim, trust, stats)
    with show_progress() as move, resumable(out):
        model = train_dynamics(
            agent,
            env,
            transitions,
            noise=noise,
            random=random,
            hidden=(width,) * layers,
            ensemble=ensemble,
            epochs=epochs,
            lr=lr,
            seed=seed,
            num_envs=num_envs,
            out=out,
            progress=move,
            env_kwargs=env_kwargs,
            make=make,
        )
    lines = list[tuple[str, ...]]()
    errors = model.card["errors"]
    assert isinstance(errors, dict)
    for source, found in errors.items():
        loops = (found["open_loop"].get(str(steps)) for steps in HORIZONS[1:])
        lines.append((source, number_text(float(np.mean(found["one_step"]))), *map(number_text, loops)))
    rows = ({"transitions": source, **found} for source, found in errors.items())
    from adv_wrappers.rendering.text_table import TextTable

    columns = ("transitions of", "one step", *(f"{steps} steps" for steps in HORIZONS[1:]))
    print_table(TextTable("", columns, tuple(lines)), rows)
    say("mean squared errors on steps that were held out, as shares of the variance of changes (one step) and of")
    say("observations (several steps that are predicted without correction)")
    if agent.ref is not None:
        target = "" if target_of(env) is not None else ",target=reward"
        text = f"model-based:dynamics='card:{out}',eps=0.1{target}"
        say(_evaluate_with(env, repeated(env_kwargs, make, trust), agent.ref, text))
