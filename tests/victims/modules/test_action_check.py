"""Modules that say themselves what they play: the victim plays the same, or says that it does not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical, Normal

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from tests.core.helpers import randn
from tests.every_case import every_case

SEEN = spaces.Box(-np.inf, np.inf, (4,), np.float32)
BOX, ONE, TWO = spaces.Box(-2, 4, (3,), np.float32), spaces.Box(-2, 2, (1,), np.float32), spaces.Discrete(3)
X = randn(20, 4).float()


class Sac(nn.Module):
    """An actor as CleanRL's SAC has it: a mean and a log-std before the tanh."""

    def __init__(self, box=BOX, factor=1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        size = box.shape[0]
        self.body, self.mean, self.log_std = nn.Linear(4, 16), nn.Linear(16, size), nn.Linear(16, size)
        self.register_buffer("action_scale", factor * torch.tensor((box.high - box.low) / 2))
        self.register_buffer("action_bias", torch.tensor((box.high + box.low) / 2))

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return 3 * self.mean(hidden), torch.tanh(self.log_std(hidden)) - 2

    def _played(self, x):
        return torch.tanh(x) * self.action_scale + self.action_bias

    def get_action(self, x):
        mean, log_std = self(x)
        drawn = Normal(mean, log_std.exp()).rsample()
        return self._played(drawn), Normal(mean, log_std.exp()).log_prob(drawn).sum(1, keepdim=True), self._played(mean)


class Wide(Sac):
    """One that has hardly been trained."""

    def forward(self, x):
        mean, log_std = super().forward(x)
        return mean / 3, log_std + 2


class MeanBeside(Sac):
    """It returns the mean before the tanh beside the action."""

    def get_action(self, x):
        action, log_prob, _ = super().get_action(x)
        return action, log_prob, self(x)[0]


class Sample(Sac):
    """As pytorch-soft-actor-critic."""

    def sample(self, state):
        return Sac.get_action(self, state)

    get_action = None


class Drawn(Sac):
    """One that only draws."""

    def get_action(self, x):
        return super().get_action(x)[0]


class OneRow(Sac):
    """As the authors' TD3: an array of one observation."""

    def get_action(self, x):
        raise NotImplementedError

    def select_action(self, state):
        mean, _ = self(torch.FloatTensor(np.asarray(state).reshape(1, -1)))
        return self._played(mean).cpu().data.numpy().flatten()


def _truth(actor):
    return actor._played(actor(X)[0]).detach()


@pytest.mark.parametrize(
    ("actor", "kind", "box"),
    [
        *((actor, None, BOX) for actor in (Sac, MeanBeside, Drawn, OneRow, Sample)),
        (Sac, "gaussian", ONE),
        (Drawn, "mean", BOX),
    ],
)
def test_an_actor_before_its_tanh_plays_what_it_says(actor, kind, box):
    net = actor(box)
    victim = adv.from_module(net, SEEN, box, kind, clip=True)
    torch.testing.assert_close(victim.act_on(X), _truth(net))
    assert victim.gradient(lambda p: p[:, 0])(X).abs().sum(1).min() > 0


def test_one_that_scales_otherwise_is_an_error_with_the_line_that_helps():
    net = Sac(factor=0.5)
    with pytest.raises(VictimError, match=r"Sac\.get_action plays \[.*\] where the victim, .*kind='gaussian'") as found:
        adv.from_module(net, SEEN, BOX)
    assert "from_module(lambda x: net.get_action(x)[2], ..., 'mean')" in str(found.value)
    victim = adv.from_module(lambda x: net.get_action(x)[2], SEEN, BOX, "mean")
    torch.testing.assert_close(victim.act_on(X), _truth(net))


def test_a_function_around_such_an_actor_is_taken_as_it_is():
    net = Sac()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        victim = adv.from_module(lambda x: net(x)[0], SEEN, BOX, "mean", clip=True)
    assert torch.equal(victim.params(X), net(X)[0])
    plays = adv.from_module(lambda x: net._played(net(x)[0]), SEEN, BOX, "mean")
    torch.testing.assert_close(plays.act_on(X), _truth(net))


def test_a_scale_that_forward_does_not_use_is_warned_of():
    class Silent(Sac):
        get_action = None

    with pytest.warns(
        UserWarning, match=r"Silent has action_scale, and its forward does not use it.*tanh\(net\(x\)\[0\]\)"
    ):
        adv.from_module(Silent(), SEEN, BOX)


class Ppo(nn.Module):
    """CleanRL's agent of PPO with a forward."""

    def __init__(self, outputs: int, std: float | None = None, epsilon: float = 0.0, sign: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.actor, self.critic, self.std, self.epsilon = nn.Linear(4, outputs), nn.Linear(4, 1), std, epsilon
        self.sign = sign

    def forward(self, x):
        return self.actor(x)

    def get_action_and_value(self, x):
        logits = self.sign * self(x)
        policy = Categorical(logits=logits) if self.std is None else Normal(logits, self.std)
        action = policy.sample()
        return action, policy.log_prob(action), policy.entropy(), self.critic(x)


class Greedy(Ppo):
    def act(self, x, epsilon=0.1):
        best = (self.sign * self(torch.as_tensor(x))).argmax(-1)
        return torch.where(torch.rand(len(best)) < epsilon, torch.randint(3, best.shape), best)

    get_action_and_value = None


class Predicts(Ppo):
    """As a policy of SB3: arrays, and a state beside."""

    def predict(self, observation, state=None, deterministic=False):
        with torch.no_grad():
            logits = self.sign * self(torch.as_tensor(observation))
        action = logits.argmax(-1) if deterministic else Categorical(logits=logits).sample()
        return action.numpy(), state

    get_action_and_value = None


@pytest.mark.parametrize(
    ("net", "space", "kind"),
    [
        (Ppo(3), TWO, "logits"), (Ppo(3, 0.3), BOX, "mean"), (Ppo(1, 0.3), ONE, "mean"), (Greedy(3), TWO, "q"),
        (Predicts(3), TWO, "logits"),
    ],
)  # fmt: skip
def test_methods_that_draw_are_no_false_alarm(net, space, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        victim = adv.from_module(net, SEEN, space, kind)
        adv.from_module(lambda x: net(x), SEEN, space, kind)
    assert torch.equal(victim.params(X), net(X))


@every_case("net", [Greedy(3, sign=-1.0), Predicts(3, sign=-1.0)])
def test_another_choice_is_an_error(net):
    with pytest.raises(VictimError, match=r"(Greedy\.act|Predicts\.predict) plays \[.\..\] where the victim"):
        adv.from_module(net, SEEN, TWO, "logits")


def test_what_is_given_stays_as_it_is():
    class Remembers(Ppo):
        def __init__(self) -> None:
            super().__init__(3)
            self.seen, self.actions = 0, []

        def act(self, x):
            self.seen += 1
            self.actions.append(1)
            return self(x).argmax(-1)

    net = Remembers()
    adv.from_module(net, SEEN, TWO, "logits", live=True)
    adv.from_module(lambda x: net(x), SEEN, TWO, "logits")
    assert net.seen == 0 and net.actions == []


class UnscaledTanh(Wide):
    """One whose actions lie in [-1, 1] whatever the box is."""

    def _played(self, x):
        return torch.tanh(x)


@every_case("box", [BOX, spaces.Box(-np.inf, np.inf, (3,), np.float32)])
def test_a_mean_within_the_range_of_what_is_drawn_is_no_proof(box):
    """With a wide policy the mean before the tanh is among its draws, too: the mean that it says is another one."""
    net = UnscaledTanh()
    with pytest.raises(VictimError, match=r"UnscaledTanh\.get_action plays .*net\.get_action\(x\)\[2\]"):
        adv.from_module(net, SEEN, box)


class Low(Ppo):
    """It acts in half precision."""

    def act(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self(x).float()

    get_action_and_value = None


def test_rounding_of_half_precision_is_no_other_action():
    net = Low(3)
    assert torch.equal(adv.from_module(net, SEEN, BOX, "mean").params(X), net(X))


@every_case("net", [Greedy(3), Ppo(3)])
def test_choices_that_are_numbered_otherwise_are_an_error(net):
    with pytest.raises(VictimError, match=r"plays .* where the victim, .* would play \[[567]\.0\]"):
        adv.from_module(net, SEEN, spaces.Discrete(3, start=5), "logits")


def test_asking_is_quiet():
    class Converts(Ppo):
        """As SB3's ``predict``, which takes arrays and is asked by tensors, too."""

        def act(self, x):
            if isinstance(x, torch.Tensor):
                warnings.warn("a copy", DeprecationWarning, stacklevel=1)
            return self(torch.as_tensor(x))

        get_action_and_value = None

    net = Converts(3)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        adv.from_module(net, SEEN, BOX, "mean")
        adv.from_module(lambda x: net(x), SEEN, BOX, "mean")
    assert not found


class Program(nn.Module):
    """An actor to be exported with the method that plays it."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mean, self.factor = nn.Linear(4, 1), factor

    def forward(self, x):
        return self.mean(x)

    @torch.jit.export
    def get_action(self, x):
        return torch.tanh(self.mean(x)) * self.factor


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("live", [False, True])
def test_programs_play_what_they_say(live):
    net = Program(2.0)
    victim = adv.from_module(torch.jit.script(net), SEEN, ONE, "mean", live=live)
    torch.testing.assert_close(victim.act_on(X), net.get_action(X))
    with pytest.raises(VictimError, match=r"Program\.get_action plays"):
        adv.from_module(torch.jit.script(Program(1.0)), SEEN, ONE, "mean", live=live)


@pytest.mark.parametrize("name", ["exploit", "get_mean_action", "compute_action"])
def test_other_names_of_what_is_played(name):
    net = type("Named", (Sac,), {name: lambda self, x: self._played(self(x)[0]), "get_action": None})()
    torch.testing.assert_close(adv.from_module(net, SEEN, BOX).act_on(X), _truth(net))


class Flagged(Wide):
    """One that draws widely, unless an argument of another name says otherwise."""

    def act(self, x, noise=True):
        mean, log_std = self(x)
        return self._played(mean + (log_std.exp() * torch.randn_like(mean) if noise else 0)) * 0.8

    get_action = None


def test_an_argument_that_stops_draws_is_given():
    """What is drawn lies everywhere."""
    with pytest.raises(VictimError, match=r"Flagged\.act plays"):
        adv.from_module(Flagged(), SEEN, BOX)


def test_a_small_mean_beside_a_log_std_is_squashed():
    class Small(Drawn):
        def forward(self, x):
            return 0.05 * x[:, :3], torch.full((3,), -1.0)

    net = Small()
    victim = adv.from_module(net, SEEN, BOX)
    assert victim.squash == "tanh"
    torch.testing.assert_close(victim.act_on(X), _truth(net))


def test_a_forward_that_draws_is_told_of_its_argument():
    class Actor(nn.Module):
        def forward(self, x, deterministic=False):
            return torch.tanh(x[:, :3] + (0 if deterministic else torch.randn(len(x), 3)))

    with pytest.warns(UserWarning, match=r"answers by chance.* lambda x: net\(x, deterministic=True\) asks for"):
        adv.from_module(Actor(), SEEN, BOX, "mean")
