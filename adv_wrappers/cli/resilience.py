"""``resilience`` and ``robustness``: how few perturbations break an agent, and what a budget of them costs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from adv_wrappers.cli.completion import complete_victim
from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.options import REQUIRED, Command, load_agent
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command

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


def _run(name: str, *, env: str, induce: str | None, out: Path, transfer: tuple[str, ...], **given: Any) -> None:
    from adv_wrappers.studies.suite.trained_attacks import import_train_adversary

    import_train_adversary()  # says what is missing where Stable-Baselines3 is
    from adv_wrappers.training.resilience import resilience as measures
    from adv_wrappers.victims import load_victim

    # the measurement, its table and its figures
    others = [load_victim(ref, trust=given["trust"]) for ref in transfer]
    agent = load_agent(given)
    with show_progress() as move, resumable(out):
        found = getattr(measures, name)(
            agent, env, induce=induce or "worst", transfer=others, out=out, progress=move, **given
        )
    print_table(found.table(), found.figures())
    found.plot_training(out / "training.png")
    found.plot_histogram(out / "histogram.png")
    say(f"trained in {found.seconds:.0f} s for {found.steps} steps")
    files = ", ".join(str(out / name) for name in (f"{found.kind}.json", "training.png", "histogram.png"))
    say(f"wrote {files}, and the adversary in {out / 'adversary'}")
