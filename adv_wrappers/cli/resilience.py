"""``resilience`` and ``robustness``: how few perturbations break an agent, and what a budget of them costs it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from adv_wrappers.cli.completion import complete_victim
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.options import POSITIVE, REQUIRED, Command, load_agent
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command
from adv_wrappers.utils.files import write_json

if TYPE_CHECKING:
    from adv_wrappers.evaluation.searches.fewest_perturbations import BestTimings

BUDGETS = range(1, 11)  # of a profile
_RESILIENCE = "adv_wrappers.training.resilience.resilience.resilience"
_SPELLED: dict[str, Any] = {
    "how": {"type": str, "metavar": "THREAT"},
    "transfer": {
        "type": str, "multiple": True, "metavar": "REF", "shell_complete": complete_victim("card", "sb3"),
        "help": "another victim to test on",
    },
    "out": REQUIRED,
}  # fmt: skip
_OPTIONS = (
    click.option("--any-action", "induce", flag_value="any",
                 help="the adversary names the action, not the worst one"),
    click.option("--profile", type=POSITIVE, metavar="STARTS", help="draw the exact regret of 1 to 10 perturbations, "
                 "over so many of the test's episodes: seconds to a minute each"),
    click.option("--lowest-reward", type=float, help="that a step can bring, for --profile  [default: 0]"),
    table_options,
)  # fmt: skip


def _measurement(command: Command) -> Command:
    """The options that both commands have."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@command("resilience", _RESILIENCE, **_SPELLED)
@_measurement
def resilience_(**given: Any) -> None:
    """How few perturbations break an agent in ENV: train an adversary that decides when to perturb, and test it."""
    _run("resilience", **given)


@command("robustness", "adv_wrappers.robustness", _RESILIENCE, **_SPELLED)
@_measurement
def robustness_(**given: Any) -> None:
    """What a budget of perturbations costs an agent in ENV: train an adversary that decides when to perturb."""
    _run("robustness", **given)


def _run(
    name: str,
    *,
    env: str,
    induce: str | None,
    profile: int | None,
    lowest_reward: float | None,
    out: Path,
    by: Literal["q", "policy", "successor"] | None,
    transfer: tuple[str, ...],
    **given: Any,
) -> None:
    if lowest_reward is not None and profile is None:
        raise click.UsageError("--lowest-reward is for --profile, which is not given")
    if profile is not None and (induce is not None or given["how"] is not None):
        raise click.UsageError("--profile is of the worst action: it does not go with --how and --any-action")
    from adv_wrappers.studies.suite.trained_attacks import import_train_adversary

    import_train_adversary()  # says what is missing where Stable-Baselines3 is
    from adv_wrappers.environments.environment import Environment
    from adv_wrappers.evaluation.searches.fewest_perturbations import TimingSearch, resilience_profile
    from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes
    from adv_wrappers.training.resilience import resilience as measures
    from adv_wrappers.victims import load_victim

    # victims and environment
    others = [load_victim(ref, trust=given["trust"]) for ref in transfer]
    agent = load_agent(given)
    environment = Environment.of(env, agent, given.pop("env_kwargs"), given.pop("make"))
    lowest = lowest_reward or 0.0
    if profile is not None:  # which raises for what cannot be searched, before the training
        with closing(DeterministicEpisodes(agent, environment)) as tree:
            TimingSearch(tree, by, horizon=1, lowest_reward=lowest)
    # the measurement, its table and its figures
    with show_progress() as move, resumable(out):
        found = getattr(measures, name)(
            agent,
            environment,
            induce=induce or "worst",
            by=by,
            transfer=others,
            out=out,
            progress=move,
            **given,
        )
    print_table(found.table(), found.figures())
    pictures = out / "training.png", out / "histogram.png"
    found.plot_training(pictures[0])
    found.plot_histogram(pictures[1])
    files = [out / f"{found.kind}.json", *pictures]
    # the exact regret over the first episodes, which is searched for
    if profile is not None:
        exact = resilience_profile(
            agent,
            environment,
            found.episode_seeds[:profile],
            BUDGETS,
            by=by,
            lowest_reward=lowest,
        )
        files += _profile(exact, out)
    say(f"trained in {found.seconds:.0f} s for {found.steps} steps")
    say(f"wrote {', '.join(map(str, files))}, and the adversary in {out / 'adversary'}")


def _profile(exact: BestTimings, out: Path) -> list[Path]:
    """The files of the exact regret by budget, over the first episodes of the test."""
    import numpy as np

    from adv_wrappers.rendering.plots import BandedLine, LinesPanel, plot_lines

    data, picture = out / "profile.json", out / "profile.png"
    write_json(data, exact.to_dict(), allow_nan=True)
    whole = "" if exact.finished.all() else ", not all timings considered"
    title = f"highest regret by budget, {exact.victim} on {exact.env}, {len(exact.seeds)} starts{whole}"
    low, high = np.quantile(exact.regret, (0.1, 0.9), axis=0)
    line = BandedLine(exact.victim, BUDGETS, exact.regret.mean(0), low, high)
    labels = "perturbations allowed (line: mean, band: 10% to 90% of the starts)", "highest regret"
    plot_lines([LinesPanel("", [line])], picture, title, labels)
    return [data, picture]
