"""What is kept of a training of two sides: checkpoints, the record, the best agent as a card."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.errors import CardError
from adv_wrappers.core.files import write
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.training.agents import save_agent
from adv_wrappers.training.another import plain, refuse_another, refuse_card
from adv_wrappers.training.checkpoint import keep
from adv_wrappers.victims import Victim, load_card

Progress = Callable[[int, float, "float | None"], None]
Found = tuple[Victim, "ThreatModel | None"]


class Keeper:
    """The record of a training, and its folder where it has one.

    A checkpoint is a folder that is written beside and moved into its place at once; then ``state.json`` names it, and
    what it no longer names is removed. So a training that is killed at any moment goes on from a whole checkpoint.

    Args:
        out: the folder, or None.
        about: what tells this training from another.
        environment: its id and keyword arguments, for cards.

    Raises:
        CardError: for a state that cannot be read.
        ValueRangeError: for the folder of another training.
    """

    def __init__(
        self, out: Path | None, about: dict[str, Any], environment: tuple[str, Mapping[str, Any]]
    ) -> None:  # fmt: skip
        self.out, self.about, self.environment = out, about if out is None else plain(about), environment
        self.record: list[dict[str, Any]] = []
        self.best = -1  # of the record; -1 before the first
        self.found: Found | None = None
        self.place: Path | None = None  # the checkpoint to go on from
        if out is None:
            return
        if not (out / "state.json").exists():
            refuse_card(out, self.about)
            return
        try:
            state = json.loads((out / "state.json").read_text(encoding="utf-8"))
            theirs, self.record, self.best = dict(state["about"]), list(state["record"]), int(state["best"])
            steps = int(self.record[-1]["steps"])
        except (KeyError, TypeError, IndexError) as error:
            raise CardError(f"{out} holds no training of an agent (no {error}): give another out=") from error
        except (OSError, ValueError) as error:
            raise CardError(f"cannot read {out / 'state.json'}: {error}") from error
        refuse_another(out, theirs, self.about)
        self.place = self._at(steps)
        if not (self.place / "agent.zip").exists():
            raise CardError(f"{out / 'state.json'} names {self.place.name}, which is not there")
        self._publish()

    def _at(self, steps: int) -> Path:
        assert self.out is not None
        return self.out / f"checkpoint-{steps}"

    def add(self, row: dict[str, Any], found: Found, model: Any, rival: Any) -> None:
        """A checkpoint: kept as the best if it is ``late`` and no other scored more."""
        self.record.append(row)
        if row["late"] and (self.best < 0 or row["score"] >= self.record[self.best]["score"]):
            self.best, self.found = len(self.record) - 1, found
        if self.out is not None:
            self._write(row["steps"], model, rival, found if self.best == len(self.record) - 1 else None)

    def _write(self, steps: int, model: Any, rival: Any, best: Found | None) -> None:
        assert self.out is not None
        part = self.out / f".part.{os.getpid()}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, side in (("", model), ("adversary", None if rival is None else rival.model)):
            if side is not None:
                keep(side, part / f"{name or 'agent'}.zip", part / f"{name}{name and '-'}normaliser.json")
        if best is not None:
            agent, threat = best
            save_agent(part, agent, self.environment, training={**self.about, "checkpoints": self.record})
            if rival is not None and threat is not None and isinstance(threat.how, Learned):
                threat.how.save(part / "adversary", threat.budget, {**self.about, "steps": steps})
        shutil.rmtree(self._at(steps), ignore_errors=True)
        os.replace(part, self._at(steps))
        state = {"about": self.about, "best": self.best, "record": self.record}
        write(self.out / "state.json", (json.dumps(state, indent=1) + "\n").encode())
        kept = {steps} | ({self.record[self.best]["steps"]} if self.best >= 0 else set())
        for old in self.out.glob("checkpoint-*"):
            if old not in [self._at(number) for number in kept]:
                shutil.rmtree(old, ignore_errors=True)
        if best is not None:
            self._publish()

    def _publish(self) -> None:
        """The cards of the best agent and of the adversary that it met, from their checkpoint to the folder itself."""
        if self.best < 0 or self.out is None:
            return
        place = self._at(self.record[self.best]["steps"])
        for folder in ("", "adversary"):
            for name in ("weights.safetensors", "card.json"):
                if (place / folder / name).exists():
                    write(self.out / folder / name, (place / folder / name).read_bytes())

    def finish(self, threat: ThreatModel | None) -> Found:
        """The best agent and what it met there, from their cards where there is a folder.

        Args:
            threat: the last one met; where an adversary learned, that of the best takes its place.
        """
        if self.out is None:
            assert self.found is not None
            return self.found
        if threat is not None and isinstance(threat.how, Learned):
            threat = replace(threat, how=Learned(card=str(self.out / "adversary")))
        return load_card(self.out), threat
