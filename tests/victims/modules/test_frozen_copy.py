"""Any module can be given: copied where that is possible, called itself with a warning where it is not."""

from __future__ import annotations

import pickle
import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical, Independent, Normal

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from tests.core.helpers import randn

SEEN, TWO = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
X = randn(5, 4).float()


def _mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = _mlp()

    def forward(self, x):
        return self.net(x)


class Caches(Around):
    def forward(self, x):
        self.latest = self.net(x)
        self.distribution = Independent(Normal(self.latest, 1.0), 1)
        return self.latest


class Keeps(Around):
    def forward(self, x):
        self.distribution = Categorical(logits=self.net(x))
        return self.distribution


class Casts(Around):
    def __init__(self) -> None:
        super().__init__()
        self.net.half()

    def forward(self, x):
        return self.net(x.half())


class Wide(Around):
    def __init__(self) -> None:
        super().__init__()
        self.net[2].double()

    def forward(self, x):
        return self.net[2](self.net[:2](x.float()).double())


class Locked(Around):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class WithoutGradient(Around):
    @torch.no_grad()
    def forward(self, x):
        return self.net(x)


class WithoutStateDict(Around):
    def state_dict(self, *args, **kwargs):
        raise RuntimeError("none")


def _quiet(make):
    def made():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()

    return made


def _weight_norm():
    torch.manual_seed(0)
    return nn.utils.weight_norm(nn.Linear(4, 2))


def _orthogonal():
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 2))


def _inside(module):
    net = Around()
    net.net = module(net.net)
    return net


MAKERS = {
    "script": lambda: torch.jit.script(_mlp()),
    "trace": lambda: torch.jit.trace(_mlp(), X),
    "frozen script": lambda: torch.jit.freeze(torch.jit.script(_mlp()).eval()),
    "script inside": lambda: _inside(torch.jit.script),
    "compiled": lambda: torch.compile(_mlp()),
    "compiled inside": lambda: _inside(torch.compile),
    "parallel": lambda: nn.DataParallel(_mlp()),
    "parallel inside": lambda: _inside(nn.DataParallel),
    "traced by fx": lambda: torch.fx.symbolic_trace(_mlp()),
    "quantised": lambda: torch.ao.quantization.quantize_dynamic(_mlp(), {nn.Linear}),
    "cached output": Caches,
    "cached distribution": Keeps,
    "old weight_norm": _weight_norm,
    "orthogonal weights": _orthogonal,
    "casts to half": Casts,
    "casts to double": Wide,
    "no gradient": WithoutGradient,
    "no state_dict": WithoutStateDict,
}


def test_weights_that_are_computed_are_read_as_a_layer():
    net = _orthogonal()
    assert adv.from_module(net, SEEN, TWO, "logits").graph is not None
    assert nn.utils.parametrize.is_parametrized(net[0])  # the agent's own is left as it was


def test_a_module_of_one_size_of_batch_is_refused():
    """As torch.export makes them unless it is told otherwise."""

    class OfTwo(Around):
        def forward(self, x):
            torch._assert(len(x) == 2, "Guard failed: x.size()[0] == 2")
            return self.net(x)

    with pytest.raises(VictimError, match=r"takes 2 observations at once and not 1.*Guard failed.*dynamic_shapes"):
        adv.from_module(OfTwo(), SEEN, TWO, "logits")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("compiled")) for name in MAKERS]
)
def test_any_module(name):
    net = _quiet(MAKERS[name])()
    compiled = name.startswith("compiled")
    wanted = None if compiled else net(X)  # leaves a cached output behind, as after training
    wanted = _mlp()(X) if compiled else wanted.logits if name == "cached distribution" else wanted
    victim = adv.from_module(net, SEEN, TWO, None if name == "cached distribution" else "logits")
    torch.testing.assert_close(victim.params(X).float(), wanted.detach().float(), atol=2e-3, rtol=1e-3)
    assert not victim.live and len(victim.fingerprint()) == 64
    if name in ("quantised", "no gradient"):
        assert not victim.differentiable
    else:
        assert victim.gradient(lambda p: p[:, 0])(X).abs().sum(1).min() > 0
    if "inside" not in name and name != "quantised":  # of which torch itself warns
        assert torch.equal(pickle.loads(pickle.dumps(victim)).params(X), victim.params(X))


@pytest.mark.parametrize("name", ["frozen script", "quantised"])
def test_other_weights_have_another_fingerprint(name):
    found = [adv.from_module(_quiet(MAKERS[name])(), SEEN, TWO, "logits").fingerprint()]
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    other = _quiet(
        lambda: (
            torch.jit.freeze(torch.jit.script(net).eval())
            if "script" in name
            else torch.ao.quantization.quantize_dynamic(net, {nn.Linear})
        )
    )()
    assert adv.from_module(other, SEEN, TWO, "logits").fingerprint() != found[0]


def test_one_that_cannot_be_copied_is_called_itself():
    net = Locked()
    with pytest.warns(UserWarning, match=r"Locked cannot be copied .*calls the module itself: it follows"):
        victim = adv.from_module(net, SEEN, TWO, "logits")
    before = victim.fingerprint()
    with torch.no_grad():
        net.net[0].weight.add_(1.0)
    assert torch.equal(victim.params(X), net(X)) and victim.fingerprint() != before
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    report = adv.evaluate(victim, "CartPole-v1", ["fgsm:eps=0.1"], episodes=1, num_envs=1)
    assert len(report.threats) == 2


def test_lazy_layers_need_their_weights():
    with pytest.raises(VictimError, match=r"LazyLinear 0 has no weights yet: call the module once"):
        adv.from_module(nn.Sequential(nn.LazyLinear(2)), SEEN, TWO, "logits")
    net = nn.Sequential(nn.LazyLinear(2))
    net(X)
    assert torch.equal(adv.from_module(net, SEEN, TWO, "logits").params(X), net(X))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of modules that the compiler imports
def test_a_compiled_module_may_be_live():
    net = _mlp().eval()
    compiled = torch.compile(net, backend="eager")  # traced, and not translated, which takes seconds
    victim = adv.from_module(compiled, gym.make("CartPole-v1").observation_space, TWO, "logits", live=True)
    with torch.no_grad():
        net[0].weight.zero_()
    assert torch.equal(victim.params(X), net(X))


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_weights_that_are_computed_stay_so_in_the_users_module(name):
    net = _mlp()
    getattr(nn.utils.parametrizations, name)(net[0])
    wanted = net.eval()(X).detach()
    victim = adv.from_module(net, SEEN, TWO, "q")
    torch.testing.assert_close(victim.params(X), wanted)
    torch.testing.assert_close(net(X).detach(), wanted)
    assert nn.utils.parametrize.is_parametrized(net[0])
