"""from_torchscript: programs that are read where they are trusted, with gradients, copies and limits."""

from __future__ import annotations

import pickle
import warnings
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import CardError, TrustError, VictimError
from tests.core.helpers import randn

SEEN, TWO = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
X = randn(5, 4).float()


class Chooser(nn.Module):
    """Logits, or the choice itself."""

    def __init__(self, chooses: bool = False) -> None:
        super().__init__()
        self.linear, self.chooses = nn.Linear(4, 2), chooses
        with torch.no_grad():
            self.linear.weight.copy_(randn(2, 4))
            self.linear.bias.zero_()

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        logits = self.linear(obs)
        return logits.argmax(-1) if self.chooses else logits


def saved(path, net):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(net, torch.zeros(2, 4)), path)
    return path


def test_a_program_is_a_victim_with_gradients(tmp_path):
    net = Chooser()
    victim = adv.from_torchscript(saved(tmp_path / "a.pt", net), SEEN, TWO, "logits", trust=True)
    assert torch.equal(victim.params(X), net(X)) and victim.differentiable
    slope = victim.gradient(lambda params: params[:, 0])(X)
    torch.testing.assert_close(slope, net.linear.weight[0].expand(5, 4))
    env = adv.PerturbObservation(gym.make("CartPole-v1"), adv.MinBest(victim), within=adv.Linf(0.05))
    assert env.reset(seed=0)[0].shape == (4,)
    double = adv.from_torchscript(tmp_path / "a.pt", SEEN, TWO, "logits", trust=True, dtype=torch.float64)
    assert double.params(X).dtype == torch.float64


def test_copies_and_pickles_answer_the_same(tmp_path):
    victim = adv.from_torchscript(saved(tmp_path / "a.pt", Chooser()), SEEN, TWO, "q", trust=True, dtype=torch.float64)
    other = pickle.loads(pickle.dumps(victim))
    assert torch.equal(other.params(X), victim.params(X)) and other.fingerprint() == victim.fingerprint()


def test_programs_of_the_same_weights_have_different_fingerprints(tmp_path):
    paths = [saved(tmp_path / f"{chooses}.pt", Chooser(chooses)) for chooses in (False, True)]
    one, two = (
        adv.from_torchscript(path, SEEN, TWO, kind, trust=True)
        for path, kind in zip(paths, ("logits", "action"), strict=True)
    )
    assert one.fingerprint() != two.fingerprint()
    assert not two.differentiable and torch.equal(two.act_on(X), one.act_on(X))


def test_it_runs_nothing_without_trust(tmp_path):
    with pytest.raises(TrustError, match=r"a TorchScript program, .* give trust=True"):
        adv.from_torchscript(saved(tmp_path / "a.pt", Chooser()), SEEN, TWO, "logits")


def test_files_that_are_none(tmp_path):
    with pytest.raises(CardError, match="cannot read"):
        adv.from_torchscript(tmp_path / "none.pt", SEEN, TWO, "logits", trust=True)
    (tmp_path / "text.pt").write_text("no zip")
    with pytest.raises(CardError, match="zip file"):
        adv.from_torchscript(tmp_path / "text.pt", SEEN, TWO, "logits", trust=True)
    with zipfile.ZipFile(tmp_path / "empty.pt", "w") as archive:
        archive.writestr("nothing", "")
    with pytest.raises(CardError, match=r"empty\.pt as TorchScript"):
        adv.from_torchscript(tmp_path / "empty.pt", SEEN, TWO, "logits", trust=True)


def test_a_program_for_another_space(tmp_path):
    with pytest.raises(VictimError, match="returns 2 numbers a row; logits over"):
        adv.from_torchscript(saved(tmp_path / "a.pt", Chooser()), SEEN, spaces.Discrete(3), "logits", trust=True)
    with pytest.raises(VictimError, match=r"'torchscript:a\.pt' is a file that knows no spaces: .* from_torchscript"):
        adv.load_victim("torchscript:a.pt")
