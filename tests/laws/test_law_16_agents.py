"""Law 16: an agent of several under threats is a single environment under them; the others stay as they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.laws.checks import Case, check_agents, of_each_sort
from tests.rigs import RIGS

pytest.importorskip("pettingzoo")

from adv_wrappers.wrappers import perturb_agents
from adv_wrappers.wrappers.perturb_agents import PerturbAgents


@pytest.mark.parametrize("case", [c for c in of_each_sort() if c.on in ("observation", "action")], ids=str)
def test_every_preset(case: Case) -> None:
    check_agents(case)


@pytest.mark.parametrize(("preset", "rig"), [("max-diff", "recurrent"), ("pgd", "dict"), ("brightness", "image")])
def test_recurrent_victims_dictionaries_and_images(preset: str, rig: str) -> None:
    check_agents(Case(preset, RIGS[rig]))


def test_a_mutant_that_attacks_in_the_order_of_another_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PerturbAgents.__init__

    def turned(self: Any, *args: Any, **kwargs: Any) -> None:
        whole(self, *args, **kwargs)
        self.layers = {agent: own[::-1] for agent, own in self.layers.items()}

    monkeypatch.setattr(PerturbAgents, "__init__", turned)
    with pytest.raises(AssertionError):
        check_agents(Case("action-flip", RIGS["q"]))


def test_a_mutant_whose_agents_share_their_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturb_agents, "seed_of_agent", lambda seed, agent: seed)
    with pytest.raises(AssertionError, match="one"):
        check_agents(Case("noise", RIGS["q"]))
