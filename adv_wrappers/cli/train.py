"""Commands that train.

``train-adversary``, ``train-critic`` and ``train-dynamics`` learn what attacks need before they attack, ``train-agent``
agents that withstand attacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers.cli.completion import complete_victim
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.options import POSITIVE, REQUIRED, Text, evaluate_with, load_agent, repeated
from adv_wrappers.cli.output import print_columns, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command
from adv_wrappers.registry import BOTH, FORMS, MOST_HIDDEN, Select
from adv_wrappers.utils.parsing import parse_value, split_arguments

if TYPE_CHECKING:
    from adv_wrappers.core.budgets.budget import Budget
    from adv_wrappers.training.agent import Hardened


def _quoted(folder: Path) -> str:
    """A folder as it is written in the text of a threat."""
    text = str(folder)
    plain = parse_value(text) == text and split_arguments(text) == [text]
    return text if plain else f"'{text}'"


def _kept_steps(folder: Path, forms: Sequence[str] = (".",)) -> int:
    """At how many steps the last checkpoints are of the trainings that a folder keeps."""
    from adv_wrappers.training.folder import STATE, read_record

    kept = (folder / form for form in forms if (folder / form / STATE).exists())
    return sum(int(read_record(place)[-1]["steps"]) for place in kept)


def _print_checkpoints(rows: Sequence[Mapping[str, Any]], best: Mapping[str, Any], shown: Mapping[str, str]) -> None:
    """Print the checkpoints of a training, one a line and the best in bold with a star.

    Args:
        rows: what is known of each checkpoint, with ``steps``, and ``form`` where there are several.
        best: one of the rows.
        shown: by the names of columns, the keys of their numbers in a row.
    """

    def steps(row: Mapping[str, Any]) -> str:
        return f"{row.get('form', '')} {row['steps']}".strip() + (" *" if row["best"] else "  ")

    rows = [{**row, "best": row is best} for row in rows]
    bold = [place for place, row in enumerate(rows) if row["best"]]
    first = ("steps", *(name for name in shown if name not in ("median", "std")))
    print_columns(rows, {"steps": steps, **shown}, texts=(), bold=bold, by_importance=first)


@command(
    "train-adversary", "adv_wrappers.train_adversary", kind={"default": "pa-ad", "metavar": "ACTOR"}, out=REQUIRED
)  # fmt: skip
@click.option("--cost", type=float, help="of an attack, in units of the reward: for timed: and induce  [default: none]")
@table_options
def train_adversary_(
    env: str, kind: str, steps: int, form: str | None, cost: float | None, out: Path, **given: Any
) -> None:
    """Train an adversary against a victim in ENV, and keep its best checkpoint."""
    from adv_wrappers.studies.suite.trained_attacks import import_train_adversary
    from adv_wrappers.training.folder import read_record
    from adv_wrappers.wrappers.adversary_rewards import PerturbationCost

    how, ref = repeated(given, "select"), given["victim"]
    train, agent = import_train_adversary(), load_agent(given, device=given["device"])
    forms = FORMS if form == BOTH else (".",)
    with show_progress() as move, resumable(out):
        # progress counts the steps of all forms, those of earlier calls included
        whole = steps * len(forms)
        kept = min(_kept_steps(out, forms), whole)
        before = kept - kept % max(steps, 1)  # of the forms that are done

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
            steps=steps,
            form=form,
            out=out,
            reward=None if cost is None else PerturbationCost(cost),
            progress=at_checkpoint,
            on_episode=at_episode,
            **given,
        )
    from adv_wrappers.training.adversary import adversary_score  # needs Stable-Baselines3

    # the checkpoints, and how to attack with the best of them
    if form == BOTH:
        rows = [{"form": one, **row} for one in FORMS for row in read_record(out / one)]
    else:
        rows = read_record(out)
    best = min(rows, key=adversary_score)
    shown = {"victim's return": "mean_return", "std": "std", "median": "median", "in training": "in_training"}
    shown |= {} if cost is None else {"attacks": "attacks", "return + cost": "score"}
    shown |= {"CPU seconds": "seconds"}
    _print_checkpoints(rows, best, shown)
    by = "mean return" if cost is None else "mean return and cost"
    say(f"* the best of {len(rows)}, by {by} over {given['episodes']} episodes that the training never sees")
    text = f"learned:card={_quoted(out)}" + (f",when={given['when']}" if given["when"] else "")
    say(f"evaluate with: {evaluate_with(env, how, agent.ref or ref, text)}")


@command(
    "train-agent",
    "adv_wrappers.train_agent",
    victim={
        "help": "to go on from: zoo:NAME, card:FOLDER or sb3:FILE.zip; None takes a new agent",
        "shell_complete": complete_victim("card", "sb3"),
    },
    out=REQUIRED,
)
@table_options
def train_agent_(env: str, select: Select, steps: int, out: Path, **given: Any) -> None:
    """Train an agent in ENV against an adversary or by a robust loss, and keep its best checkpoint."""
    from adv_wrappers.studies.suite.trained_attacks import imports_of_sb3

    with imports_of_sb3("agents"):
        from adv_wrappers.training.agent import train_agent
    from adv_wrappers.core.budgets.budget import Linf
    from adv_wrappers.utils.number_text import number_text

    # progress is told after every rollout, and of checkpoints with what the agent earns
    first, note = load_agent(given), ""
    with show_progress() as move, resumable(out):

        def at_checkpoint(at: int, clean: float, _: float | None) -> None:
            nonlocal note
            note = f"clean return {number_text(clean)}"
            move("agent", min(at, steps), steps, note)

        move("agent", min(_kept_steps(out), steps), steps)
        hardened = train_agent(
            env,
            steps=steps,
            victim=first,
            select=select,
            out=out,
            progress=at_checkpoint,
            on_steps=lambda at: move("agent", min(at, steps), steps, note),
            **given,
        )
    # the checkpoints, and how to attack the best of them
    rows = [{**row, "seconds": sum(row["seconds"].values())} for row in hardened.record]
    best = rows[hardened.best]
    shown = {"clean": "clean", "attacked": "attacked", "worst case": "gwc"}
    shown = {column: key for column, key in shown.items() if best.get(key) is not None}
    _print_checkpoints(rows, best, shown | {"in training": "in_training", "CPU seconds": "seconds"})
    say(f"* {hardened.protocol}, over {given['episodes']} episodes that the training never sees")
    if hardened.given_up:
        say(f"WARNING: {hardened.given_up}")
    # what to do with it next
    agent = hardened.victim
    assert agent.ref is not None
    say(f"the agent is {agent.ref}; adv-wrappers suite attacks it with everything that applies")
    budget = None if given["eps"] is None else Linf(given["eps"], given["scale"])
    say(f"evaluate with: {evaluate_with(env, repeated(given), agent.ref, *_threats_of(hardened, budget))}")


def _threats_of(hardened: Hardened, within: Budget | None) -> list[str]:
    """What to evaluate an agent under: what it was trained against, and an attack by gradients in its budget."""
    from adv_wrappers.threats.presets import threat
    from adv_wrappers.threats.text import text_of

    found = [] if hardened.threat is None else [hardened.threat]
    if within is not None and all(one.on == "observation" for one in found):
        found.append(threat("pgd" if hardened.victim.discrete else "max-diff", within=within))
    return list(dict.fromkeys(text_of(one, hardened.victim) for one in found))


@command(
    "train-critic",
    "adv_wrappers.training.models.robust_sarsa.CriticSettings",
    "adv_wrappers.training.models.critic_scan.train_critic",
    without=("robust", "eps", "weight", "box", "successor"),
    out=REQUIRED,
)
@click.option("--one", is_flag=True, help="one critic with the default settings, and no attacks")
@click.option(
    "--eps", type=float, help="radius of the l-infinity budget that they attack with  [default: 0.1 with scale=victim]"
)
@click.option(
    "--scale", type=Text(parse_value, "unit"),
    help="unit of --eps: victim, a number, or one a feature as in 1;1;2  [default: 1]",
)  # fmt: skip
@table_options
def train_critic_(env: str, one: bool, eps: float | None, scale: Any, out: Path, **given: Any) -> None:
    """Train critics of a victim in ENV for robust-sarsa: four settings, each attacked with, and keep the strongest.

    It takes four trainings and 140 episodes; --one takes one training.
    """
    if one and (eps is not None or scale is not None):
        raise click.UsageError("one critic is not attacked with: --eps and --scale go with several")
    from adv_wrappers.core.threat import given_budget
    from adv_wrappers.training.models.critic_scan import EPS, setting_text, train_critic

    # one critic, or the strongest of several, in its folder
    within = given_budget(eps, scale, None)
    how, ref = repeated(given, "select"), given["victim"]
    agent = load_agent(given)
    with show_progress() as move, resumable(out):
        critic = train_critic(
            agent, env, within=within, settings=[{}] if one else None, out=out, progress=move, **given
        )
    # what was trained, and how to attack with it
    if one:
        print_columns(critic.card["losses"][-1:], {name: name for name in ("steps", "loss", "robustness", "q")})
    else:
        rows = critic.card["scan"]["critics"]
        best = min(range(len(rows)), key=lambda place: rows[place]["mean_return"])
        columns: dict[str, Any] = {"critic": lambda row: setting_text(row["setting"]), "return": "mean_return"}
        print_columns(rows, columns, notes=[critic.card["scan"]["protocol"]], bold=[best])
    scale = "victim" if eps is None and not one else scale
    unit = ";".join(f"{part:g}" for part in scale) if isinstance(scale, tuple) else scale
    budget = f"eps={'EPS' if one else f'{eps or EPS:g}'}" + ("" if unit is None else f",scale={unit}")
    text = f"robust-sarsa:critic={_quoted(out)},{budget}"
    say(f"evaluate with: {evaluate_with(env, how, agent.ref or ref, text)}")


@command("train-dynamics", "adv_wrappers.train_dynamics", out=REQUIRED)
@click.option("--width", default=1000, show_default=True, type=POSITIVE, help="of each layer")
@click.option("--layers", default=4, show_default=True, type=click.IntRange(0, MOST_HIDDEN), help="0: linear model")
@table_options
def train_dynamics_(env: str, width: int, layers: int, out: Path, **given: Any) -> None:
    """Learn a model of ENV from what a victim and random actions do there."""
    import numpy as np

    from adv_wrappers.attacks.targets import target_of
    from adv_wrappers.training.models.dynamics_model import HORIZONS, train_dynamics

    how, agent = repeated(given), load_agent(given)
    with show_progress() as move, resumable(out):
        model = train_dynamics(agent, env, hidden=(width,) * layers, out=out, progress=move, **given)
    # errors on what was held out, as shares of the variance
    errors = model.card["errors"]
    assert isinstance(errors, dict)
    rows = [{"transitions": source, **found} for source, found in errors.items()]
    columns: dict[str, Any] = {"transitions of": "transitions", "one step": lambda row: float(np.mean(row["one_step"]))}
    columns |= {f"{n} steps": lambda row, n=n: row["open_loop"].get(str(n)) for n in HORIZONS[1:]}
    print_columns(rows, columns)
    say("mean squared errors on steps that were held out, as shares of the variance of changes (one step) and of")
    say("observations (several steps that are predicted without correction)")
    if agent.ref is not None:
        target = "" if target_of(env) is not None else ",target=reward"
        text = f"model-based:dynamics='card:{out}',eps=0.1{target}"
        say(f"evaluate with: {evaluate_with(env, how, agent.ref, text)}")
