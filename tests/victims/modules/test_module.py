"""Victims from modules and functions."""

from __future__ import annotations

import copy
import pickle
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
from adv_wrappers.victims.modules.module import from_module
from tests.every_case import every_case

OBS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
TWO, BOX = spaces.Discrete(2), spaces.Box(-1, 1, (3,), np.float32)


def net(outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(4, 5), nn.Linear(5, 2)

    def forward(self, obs, state):
        state = self.cell(obs, state)
        return self.head(state), state


def test_kinds_and_spaces():
    x = torch.randn(3, 4)
    q = from_module(net(2), OBS, spaces.Discrete(2, start=5), "q")
    params = q.params(x)
    assert torch.equal(q.act(params), params.argmax(-1) + 5)
    assert torch.equal(q.q(x), params)
    assert torch.equal(q.q(x, q.act(params)), params.amax(-1))
    assert torch.equal(q.value(x), params.amax(-1))
    logits = from_module(net(2), OBS, TWO, "logits", value=net(1))
    assert logits.q(x) is None
    torch.testing.assert_close(logits.value(x), net(1)(x)[:, 0])
    mean = from_module(lambda o: 5 * o[:, :3], OBS, BOX, "mean", clip=True, critic=lambda o, a: o.sum(1) + a.sum(1))
    assert torch.equal(mean.act(mean.params(x)), (5 * x[:, :3]).clamp(-1, 1))
    assert torch.equal(mean.q(x, x[:, :3]), x.sum(1) + x[:, :3].sum(1))
    assert mean.q(x) is None and mean.value(x) is None


def test_distributions_and_pairs():
    x = torch.randn(3, 4)
    policy = from_module(lambda o: Categorical(logits=o[:, :2]), OBS, TWO)
    assert policy.kind == "logits"
    torch.testing.assert_close(policy.policy(x).probs, x[:, :2].softmax(-1))
    normal = from_module(lambda o: Independent(Normal(o[:, :3], 2.0), 1), OBS, BOX)
    torch.testing.assert_close(normal.params(x)[:, 3:], torch.full((3, 3), 2.0).log())
    pair = from_module(lambda o: (o[:, :3], torch.zeros(3)), OBS, BOX)
    assert pair.kind == "gaussian" and pair.params(x).shape == (3, 6)


def test_a_sampling_victim_needs_a_key():
    victim = from_module(net(2), OBS, TWO, "logits", select="sample")
    params = victim.params(torch.zeros(3, 4))
    assert victim.act(params, torch.arange(3)).shape == (3,)
    with pytest.raises(VictimError, match="key"):
        victim.act(params)


@pytest.mark.parametrize("plain", [True, False])
def test_gradient_is_autograd_and_leaves_no_trace(plain):
    module = net(2).train()
    module = module if plain else nn.Sequential(module, nn.Mish())
    victim = from_module(module, OBS, TWO, "logits", live=True)
    assert (victim.layer_graph() is not None) is plain
    weights = copy.deepcopy(module.state_dict())
    x, slope = torch.randn(5, 4), torch.randn(5, 2)
    with torch.no_grad():
        found = victim.gradient(lambda p: (p * slope).sum(-1))(x)
    y = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad((module(y) * slope).sum(), y)
    torch.testing.assert_close(found, expected)
    assert module.training and all(p.grad is None and p.requires_grad for p in module.parameters())
    assert all(torch.equal(weights[k], v) for k, v in module.state_dict().items())


def test_a_closed_form_gradient_is_used():
    class Loss:
        def __call__(self, params):
            return params.sum(-1)

        def gradient(self, params):
            return torch.zeros_like(params)

    assert not from_module(net(2), OBS, TWO, "logits").gradient(Loss())(torch.randn(2, 4)).any()


def test_frozen_or_live():
    module = net(2)
    frozen, live = (from_module(module, OBS, TWO, "logits", live=flag) for flag in (False, True))
    x, first = torch.randn(3, 4), frozen.fingerprint()
    assert first == live.fingerprint()
    before = frozen.params(x)
    with torch.no_grad():
        module[0].weight.add_(1e-3)
    assert torch.equal(frozen.params(x), before) and not torch.equal(live.params(x), before)
    assert frozen.fingerprint() == first != live.fingerprint()
    assert not any(p.requires_grad for m in frozen.modules() for p in m.parameters())
    assert copy.deepcopy(frozen) is frozen


def test_recurrent():
    torch.manual_seed(0)
    module = Recurrent()
    victim = from_module(module, OBS, TWO, "logits", initial_state=lambda rows: torch.ones(rows, 5))
    assert victim.recurrent and victim.layer_graph() is None
    state, x = victim.initial_state(3), torch.randn(3, 4)
    first = victim.params(x, state)
    assert torch.equal(victim.params(x, state), first)
    for seen in (x, x.numpy()):  # begins where episodes do
        assert victim.act_on(seen).tolist() == victim.act_on(x, torch.ones(3, 5)).tolist()
    new = victim.advance(x, state)
    assert (state == 1).all() and torch.equal(new, module.cell(x, state))
    assert not torch.equal(victim.params(x, new), first)
    slope = victim.gradient(lambda p: p[:, 0], new)(x)
    y = x.clone().requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(victim.params(y, new)[:, 0].sum(), y)[0])


def test_dict_observations_and_fill():
    space = spaces.Dict(a=OBS, b=spaces.Box(-1, 1, (2,), np.float32))
    victim = from_module(lambda o: torch.cat([o["a"] ** 2, o["b"]], 1), space, spaces.Discrete(6), "q")
    rest, x = torch.randn(3, 2), torch.randn(3, 4)
    found = victim.gradient(lambda p: p.sum(-1), fill=lambda a: {"a": a, "b": rest})(x)
    torch.testing.assert_close(found, 2 * x)


def test_pickle():
    victim = from_module(net(2), OBS, TWO, "logits", value=net(1), ref="mine")
    again, x = pickle.loads(pickle.dumps(victim)), torch.randn(2, 4)
    assert torch.equal(again.params(x), victim.params(x)) and again.fingerprint() == victim.fingerprint()
    assert torch.equal(again.gradient(lambda p: p[:, 0])(x), victim.gradient(lambda p: p[:, 0])(x))


@every_case(
    ("module", "observation", "action", "arguments", "message"),
    [
        (net(2), OBS, TWO, {}, "say what the module returns"),
        (net(3), OBS, TWO, {"kind": "logits"}, "returns 3 numbers a row"),
        (net(3), OBS, spaces.MultiBinary(3), {"kind": "logits"}, r"needs 6, of 0 and of 1 .*Bernoulli\(logits="),
        (net(3), OBS, BOX, {"kind": "gaussian"}, "needs 6"),
        (net(2), OBS, TWO, {"kind": "mean"}, "does not go with"),
        (net(2), OBS, TWO, {"kind": "wrong"}, "kind must be"),
        (net(2), OBS, TWO, {"kind": "q", "select": "best"}, "select must be"),
        (net(2), OBS, TWO, {"kind": "q", "dtype": torch.float16}, "float32 or float64"),
        (net(2), spaces.Box(-1, 1, (5,)), TWO, {"kind": "q"}, r"does not take observations .*: 1 are too many"),
        (
            net(2),
            spaces.Text(4),
            TWO,
            {"kind": "q"},
            "expected Box, Discrete, MultiDiscrete or MultiBinary observations",
        ),
        (lambda o: o.sum(), OBS, TWO, {"kind": "q"}, "returns 1 numbers a row"),
        (lambda o: Categorical(logits=o[:, :2]), OBS, TWO, {"kind": "q"}, "returns a Distribution"),
        (None, OBS, TWO, {"kind": "q"}, "got None"),
        (nn.Sequential(nn.Dropout(), net(2)), OBS, TWO, {"kind": "q", "live": True}, "dropout"),
        (net(2), OBS, TWO, {"kind": "q", "device": "nonsense"}, "no such device 'nonsense'"),
        (net(2), OBS, TWO, {"kind": "q", "device": 3.5}, "no such device 3.5"),
    ],
)
def test_errors(module, observation, action, arguments, message):
    with pytest.raises(VictimError, match=message):
        from_module(module, observation, action, **arguments)


@every_case(
    "actions",
    [
        spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]), spaces.Dict(b=spaces.Discrete(3), a=spaces.Discrete(2)),
        spaces.Dict(b=spaces.Box(-1, 1, (2,)), a=spaces.Box(0, 1, ())), spaces.Box(-1, 1, (2, 3)),
        spaces.Dict(b=spaces.Discrete(3), a=BOX),
    ],
)  # fmt: skip
def test_actions_of_several_parts_are_told_the_line_that_joins_them(actions):
    env = gym.make("CartPole-v1")
    env.action_space = actions
    with pytest.raises(VictimError, match=r"expected Discrete, .* got .*takes one vector") as found:
        from_module(net(2), OBS, actions, "logits")
    line = str(found.value).partition("): ")[2].rpartition(" takes one vector")[0]
    if "FUNCTION" in line:
        return
    given = {"env": env, "gymnasium": gym}
    exec(line, given)
    vector = given["env"].action_space.sample()
    assert given["env"].action(vector) in actions
    made = ("mean", len(vector)) if vector.dtype.kind == "f" else ("logits", 5)
    from_module(net(made[1]), OBS, given["env"].action_space, made[0])


class CleanRL(nn.Module):
    """Agents as CleanRL's scripts make them: parts, and no ``forward``."""

    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    def get_action_and_value(self, x):
        raise NotImplementedError


def test_agents_without_forward_are_told_what_to_give():
    agent = CleanRL(critic=net(1), actor_mean=net(3), actor_logstd=nn.Parameter(torch.zeros(1, 3)))
    with pytest.raises(VictimError, match=r"CleanRL has no forward.*its parts are critic, actor_mean") as found:
        from_module(agent, OBS, BOX, "gaussian")
    line = "lambda x: (agent.actor_mean(x), agent.actor_logstd), ..., 'gaussian', clip=True"
    assert f"from_module({line})" in str(found.value)
    victim = from_module(
        lambda x: (agent.actor_mean(x), agent.actor_logstd), OBS, BOX, "gaussian", clip=True, value=agent.critic
    )
    assert len(victim.params(torch.zeros(2, 4))) == 2


@every_case(
    ("out", "what"),
    [
        (
            lambda o: (o[:, 0], o[:, 0], o[:, :2]),
            r"a tuple of \(float32 \[2\], float32 \[2\], float32 \[2, 2\]\): give lambda x: net\(x\)\[2\]",
        ),
        (lambda o: {"n": 3, "a": o[:, :2]}, r"a dictionary of \('n': int, 'a': float32 \[2, 2\]\)"),
        (lambda o: [(o[:, :2], None)], r"a list of \(a tuple of \(float32 \[2, 2\], NoneType\)\)"),
    ],
)
def test_answers_of_several_parts_are_described(out, what):
    with pytest.raises(VictimError, match=what):
        from_module(out, OBS, TWO, "logits")


@every_case(
    ("out", "name"),
    [(lambda o: o[:, :2].argmax(-1, keepdim=True).expand(-1, 2), "int64"), (lambda o: o[:, :2] > 0, "bool"),
     (lambda o: torch.complex(o[:, :2], o[:, 2:]), "complex64")],
)  # fmt: skip
def test_answers_must_be_floats(out, name):
    with pytest.raises(VictimError, match=f"must return floats.*{name}"):
        from_module(out, OBS, TWO, "q")
    with pytest.raises(VictimError, match=f"must return floats.*{name}"):
        from_module(lambda o: (o[:, :2], out(o)), OBS, spaces.Box(-1, 1, (2,)), "gaussian")


@every_case("other", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_cast(other):
    x = torch.randn(3, 4)
    victim = from_module(lambda o: o[:, :2].to(other), OBS, TWO, "q")
    assert victim.params(x).dtype == torch.float32
    torch.testing.assert_close(victim.params(x), x[:, :2].to(other).float())
    assert victim.gradient(lambda p: p.sum(-1))(x).dtype == torch.float32
    narrow = from_module(net(2).half(), OBS, TWO, "q")  # a frozen copy of half weights computes in float32
    assert narrow.dtype == narrow.params(x).dtype == torch.float32
    with pytest.raises(VictimError, match=r"live one are torch\.float16"):
        from_module(net(2).half(), OBS, TWO, "q", live=True)


def test_observations_of_any_kind_are_cast():
    victim, x = from_module(net(2), OBS, TWO, "q", value=net(1)), np.random.default_rng(0).normal(size=(3, 4))
    wanted = victim.params(torch.from_numpy(x).float())
    for seen in (x, x.astype(np.float32), torch.from_numpy(x), torch.from_numpy(x).float()):
        assert torch.equal(victim.params(seen), wanted)
        assert torch.equal(victim.value(seen), victim.value(torch.from_numpy(x).float()))
    box = spaces.Dict(a=OBS, b=OBS)
    both = from_module(lambda o: o["a"][:, :2] + o["b"][:, :2], box, TWO, "q")
    torch.testing.assert_close(both.params({"a": x, "b": torch.from_numpy(x)}), 2 * torch.from_numpy(x[:, :2]).float())


class Scaling(nn.Module):
    """Scales its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net(2)

    def forward(self, obs, state=None):
        obs.mul_(3.0)
        if state is None:
            return self.net(obs)
        state.add_(1.0)
        return self.net(obs) + state, state


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_module_that_writes_to_its_input_is_given_copies(recurrent):
    start = (lambda rows: torch.zeros(rows, 1)) if recurrent else None
    victim = from_module(Scaling(), OBS, TWO, "q", value=Scaling() if not recurrent else None, initial_state=start)
    x, state = torch.randn(3, 4), victim.initial_state(3)
    kept, wanted = x.clone(), net(2)(3 * x) + (1 if recurrent else 0)
    torch.testing.assert_close(victim.params(x, state), wanted)
    victim.gradient(lambda p: p.sum(-1), state)(x)
    advanced = victim.advance(x, state)
    assert torch.equal(x, kept)
    if recurrent:
        assert not state.any() and (advanced == 1).all()
    else:
        victim.value(x)
        assert torch.equal(x, kept)


def test_a_module_that_writes_to_its_input_is_attacked_as_one_that_does_not():
    runs = []
    own = net(2)
    for module in (Scaling(), lambda x: own(3 * x)):
        victim = from_module(module, gym.make("CartPole-v1").observation_space, TWO, "q")
        threats = ["pgd:eps=0.1,random_start=true,steps=3", "max-diff:eps=0.1,steps=3"]
        report = adv.evaluate(victim, "CartPole-v1", threats, 2, env_kwargs={"max_episode_steps": 6})
        runs.append([{k: row[k] for k in ("mean_return", "action_change", "l2", "linf")} for row in report.threats])
    assert runs[0] == runs[1]


@every_case("beside", [None, {"h": 1}, torch.zeros(2, 7)])
def test_an_output_beside_a_state(beside):
    x, own = torch.randn(3, 4), net(2)
    victim = from_module(lambda o: (own(o), beside), OBS, TWO, "logits")
    assert victim.kind == "logits" and not victim.recurrent
    torch.testing.assert_close(victim.params(x), own(x))
    with pytest.raises(VictimError, match=r"say what|does not go with"):
        from_module(lambda o: (own(o), beside), OBS, TWO)


def test_a_pair_is_a_mean_and_a_log_std_unless_the_kind_says_otherwise():
    pair = lambda o: (o[:, :3], torch.zeros(3))  # noqa: E731
    assert from_module(pair, OBS, BOX).kind == from_module(pair, OBS, BOX, "gaussian").kind == "gaussian"
    x = torch.randn(2, 4)
    assert torch.equal(from_module(pair, OBS, BOX, "mean").params(x), x[:, :3])
    state = from_module(lambda o: (pair(o), None), OBS, BOX, "gaussian")  # as Tianshou's ((mean, std), state)
    assert torch.equal(state.params(x), from_module(pair, OBS, BOX).params(x))
    for beside in (
        lambda o: o[:, :1],
        lambda o: o[:, 0],
        lambda o: torch.zeros(2),
    ):  # such as a value, a log-probability
        with pytest.raises(VictimError, match=r"the second is no log-std of the first: say .*kind='mean'"):
            from_module(lambda o, beside=beside: (o[:, :3], beside(o)), OBS, BOX)
    for value in (lambda o: o[:, :1], lambda o: o[:, :2]):
        with pytest.raises(VictimError, match=r"say what the .*'logits'"):
            from_module(lambda o, value=value: (o[:, :2], value(o)), OBS, TWO)
    with pytest.warns(UserWarning, match="all numbers beside the mean are positive.*read as their logarithms"):
        from_module(lambda o: (o[:, :3], o[:, :3].exp()), OBS, BOX)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


def test_a_live_victim_in_training_mode_is_refused_whenever_it_is_asked():
    module = Normed().eval()
    victim = from_module(module, OBS, TWO, "q", value=module, live=True)
    x, slope = torch.randn(3, 4), victim.gradient(lambda p: p.sum(-1))
    slope(x)
    module.train()
    before = copy.deepcopy(module.state_dict())
    for ask in (victim.params, victim.value, slope, lambda x: victim.act_on(x)):
        with pytest.raises(VictimError, match=r"live victim.*\.eval\(\)"):
            ask(x)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    module.eval()
    victim.params(x)


def test_acting_on_observations():
    victim = from_module(net(2), OBS, spaces.Discrete(2, start=5), "q")
    x = np.random.default_rng(0).normal(size=(3, 4))
    wanted = victim.act(victim.params(x))
    actions = victim.act_on(x)
    assert isinstance(actions, np.ndarray) and actions.dtype == np.int64 and actions.tolist() == wanted.tolist()
    assert torch.equal(victim.act_on(torch.from_numpy(x)), wanted)
    mean = from_module(net(3), OBS, BOX, "mean", clip=True)
    assert mean.act_on(x).dtype == np.float32 and mean.act_on(x).shape == (3, 3)
    sampler = from_module(net(2), OBS, TWO, "logits", select="sample")
    assert sampler.act_on(x, key=torch.arange(3)).shape == (3,)
    with pytest.raises(VictimError, match="key"):
        sampler.act_on(x)
    for bad, message in (
        (x[0], r"obs\[None\]"),
        (x[:, :3], r"expected observations of shape \('B', 4\)"),
        ("x", "str"),
    ):
        with pytest.raises(VictimError, match=message):
            victim.act_on(bad)
    both = from_module(lambda o: o["a"][:, :2], spaces.Dict(a=OBS), TWO, "q")
    assert both.act_on({"a": x}).shape == (3,)
    for bad in (x, {"b": x}):
        with pytest.raises(VictimError, match="expected a dictionary of a"):
            both.act_on(bad)


@every_case("given", [np.zeros((2, 3)), torch.zeros(2, 4), torch.zeros(3), [[0.0] * 3]])
def test_act_takes_parameters_and_not_observations(given):
    victim = from_module(net(3), OBS, BOX, "mean")
    with pytest.raises(VictimError, match=r"act takes parameters \[B, 3\].*act_on"):
        victim.act(given)


FAR = np.array([1e9, -3e6]) + np.array([[0.5, 0.25], [-1.0, 1.0], [0.0, -2.0]])
NEAR = FAR - [1e9, -3e6]


class NormalisesInDouble(nn.Module):
    """Takes a mean of float64 off before layers of float32, as it is, or casts what is left."""

    def __init__(self, casts):
        super().__init__()
        self.layer, self.casts = nn.Linear(2, 2), casts
        self.register_buffer("mean", torch.tensor([1e9, -3e6], dtype=torch.float64))

    def forward(self, x):
        near = x - self.mean
        return self.layer(near.float() if self.casts else near)


@pytest.mark.parametrize("casts", [True, False])
@pytest.mark.parametrize("space", [np.float64, np.float32])
def test_a_normaliser_of_float64_sees_float64(casts, space):
    module = NormalisesInDouble(casts)
    victim = from_module(module, spaces.Box(-np.inf, np.inf, (2,), space), spaces.Discrete(2), "logits")
    expected = module.layer(torch.from_numpy(NEAR).float())
    torch.testing.assert_close(victim.params(torch.from_numpy(FAR)).float(), expected, rtol=1e-4, atol=1e-5)
    x = torch.from_numpy(FAR)
    found = victim.gradient(lambda p: p[:, 0])(x)
    torch.testing.assert_close(found, module.layer.weight[:1].detach().expand(3, 2).to(found), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("large", [1.0, 1e6])
def test_what_is_normalised_by_float32_numbers_sees_float64(large):
    class Normalises(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("mean", torch.full((2,), large))

        def forward(self, x):
            return self.layer((x - self.mean).float())

    module, wide = Normalises(), spaces.Box(-np.inf, np.inf, (2,), np.float64)
    x = large + torch.randn(5, 2, dtype=torch.float64)
    for given in (module, lambda x: module(x)):
        victim = from_module(given, wide, spaces.Discrete(2), "logits")
        assert victim.dtype == torch.float64
        assert torch.equal(victim.params(x).float(), module(x).detach())
    casts = from_module(lambda x: module.layer(x.float()), wide, spaces.Discrete(2), "logits")
    assert casts.dtype == torch.float32  # nothing is gained


def test_functions_on_arrays_see_the_precision_of_the_space():
    seen = []

    def policy(obs):
        seen.append(obs.dtype)
        return ((obs - [1e9, -3e6]) @ np.eye(2)).astype(np.float32)

    def narrow(obs):
        if obs.dtype != np.float32:
            raise TypeError("expected float32")
        return obs

    wide, two = spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Discrete(2)
    victim = from_module(policy, wide, two, "logits")
    np.testing.assert_allclose(victim.params(torch.from_numpy(FAR)).numpy(), NEAR, rtol=1e-6)
    assert victim.act_on(FAR).tolist() == NEAR.argmax(1).tolist()
    assert from_module(narrow, wide, two, "logits").dtype == torch.float32
    assert from_module(policy, spaces.Box(-1, 1, (2,), np.float32), two, "logits").dtype == torch.float32


@pytest.mark.parametrize("made", ["layer", "module", "function", "array", "script"])
def test_probabilities_are_no_logits(made):
    own, x = net(2), torch.randn(3, 4)

    class Ends(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = own

        def forward(self, x):
            return self.net(x).softmax(-1)

    given = {
        "layer": lambda: nn.Sequential(*own, nn.Softmax(-1)),
        "module": Ends,
        "function": lambda: lambda x: own(x).softmax(-1),
        "array": lambda: lambda x: own(torch.as_tensor(np.asarray(x))).softmax(-1).detach().numpy(),
        "script": lambda: torch.jit.trace(Ends(), x),
    }[made]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = given()
    with pytest.warns(UserWarning, match="these are probabilities, and no logits, so their logarithms are taken"):
        victim = from_module(module, OBS, TWO, "logits")
    guessed = from_module(module, OBS, TWO)
    assert guessed.kind == "logits"
    for found in (victim, guessed):
        torch.testing.assert_close(found.params(x).log_softmax(-1), own(x).log_softmax(-1).detach())
        if made != "array":
            slope, wanted = (
                v.gradient(lambda p: p.log_softmax(-1)[:, 0])(x) for v in (found, from_module(own, OBS, TWO, "q"))
            )
            torch.testing.assert_close(slope, wanted)
    with pytest.warns(UserWarning, match=r"probabilities, and no Q-values.*as 'logits'"):
        assert from_module(module, OBS, TWO, "q").kind == "q"


def test_probabilities_of_several_choices_and_certain_ones():
    pairs = lambda x: torch.cat([x[:, :2].softmax(-1), x[:, 1:4].softmax(-1)], 1)  # noqa: E731
    x, several = torch.randn(3, 4), spaces.MultiDiscrete([2, 3])
    torch.testing.assert_close(from_module(pairs, OBS, several).params(x), pairs(x).log())
    certain = lambda x: nn.functional.one_hot(x[:, :2].argmax(-1), 2).float()  # noqa: E731
    assert from_module(certain, OBS, TWO, "logits").params(x).max() == 1
    assert from_module(lambda x: x[:, :2] * 0, OBS, TWO, "logits").params(x).max() == 0


@pytest.mark.parametrize("change", [lambda p: 100 * p, lambda p: p + 1e-3, lambda p: 0.5 * p.half()])
def test_probabilities_times_a_number(change):
    own = net(2)
    with pytest.warns(UserWarning, match="has no negative number and sums to .* so their logarithms"):
        victim = from_module(lambda x: change(own(x).softmax(-1)), OBS, TWO, "logits")
    x = torch.randn(3, 4)
    torch.testing.assert_close(victim.params(x), change(own(x).softmax(-1)).float().log(), check_dtype=False)
    with pytest.raises(VictimError, match="say what the module returns"):
        from_module(lambda x: change(own(x).softmax(-1)), OBS, TWO)


def test_probabilities_that_leave_no_doubt_far_away():
    with pytest.warns(UserWarning, match="these are probabilities"):
        from_module(lambda x: (1000 * x[:, :2]).softmax(-1), OBS, TWO, "logits")


def test_the_gradient_of_probabilities_in_half_precision():
    """One that half precision rounds to almost nothing has a logarithm whose gradient it cannot hold."""
    with pytest.warns(UserWarning, match="these are probabilities"):
        victim = from_module(lambda x: (12 * x[:, :2]).softmax(-1).half(), OBS, TWO, "logits")
    slope = victim.gradient(lambda p: p[:, 0] - p[:, 1])(torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]]))
    assert slope.isfinite().all() and slope[1, 0] > 0 > slope[1, 1]


def test_a_constant_output_is_none_of_a_softmax():
    assert from_module(lambda x: x[:, :2] * 0 + 3, OBS, TWO, "q").params(torch.randn(2, 4)).min() == 3


@every_case(
    ("given", "error"),
    [
        ({"kind": "logit"}, "kind must be 'q', 'logits', 'mean', 'gaussian', 'distribution' or 'action', got 'logit'"),
        ({"observation_space": (4,)}, r"expected a gymnasium space as observation_space, .* got \(4,\)"),
        ({"action_space": 2}, "expected a gymnasium space as action_space, such as env.action_space, got 2"),
        ({"dtype": "float32"}, "computes in float32 or float64, got dtype='float32'"),
    ],
)
def test_arguments_of_another_kind(given, error):
    usual = {"module": net(2), "observation_space": OBS, "action_space": TWO, "kind": "logits"}
    with pytest.raises(VictimError, match=error):
        from_module(**{**usual, **given})


def test_a_function_that_answers_by_chance_is_warned_of():
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
    with pytest.warns(UserWarning, match=r"answers by chance.* call \.eval\(\)"):
        from_module(lambda x: network(x), OBS, TWO, "q")
    from_module(lambda x: network.eval()(x), OBS, TWO, "q")
    from_module(lambda x: network(x), OBS, TWO, "q")


class ActsOtherwise(nn.Module):
    """As rsl_rl's ActorCritic, which has a forward of no use."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = net(3)

    def forward(self):
        raise NotImplementedError

    def act_inference(self, x):
        return self.policy(x)


class Bare(ActsOtherwise):
    forward = nn.Module.forward


@every_case("agent", [ActsOtherwise(), Bare()])
def test_agents_that_act_by_a_method_are_told_so(agent):
    with pytest.raises(VictimError, match=r"from_module\(\w+\.act_inference, \.\.\., 'action'\)"):
        from_module(agent, OBS, BOX, "mean")
    obs = torch.randn(5, 4)
    assert torch.equal(from_module(agent.act_inference, OBS, BOX, "action").params(obs), agent.policy(obs))


@every_case("arrays", [False, True])
@every_case("named", [False, True])
def test_a_module_that_scales_bytes_alone_is_told_so(arrays, named):
    """A victim computes in floats, and such a module would take these as they are."""
    seen, layer = spaces.Box(0, 255, (4,), np.uint8), net(2)

    def policy(x):
        if arrays:
            x = x / 255 if x.dtype == np.uint8 else x
            return layer(torch.as_tensor(x, dtype=torch.float32)).detach().numpy()
        return layer(x.float() / 255 if x.dtype == torch.uint8 else x)

    given = (lambda x: policy(x["image"])) if named else policy
    with pytest.raises(VictimError, match=r"divides bytes by 255, and floats not.*lambda x: net\(x / 255\)"):
        from_module(given, spaces.Dict(image=seen) if named else seen, TWO, "logits")
    x = seen.sample()[None]
    own = layer(torch.from_numpy(x) / 255)
    torch.testing.assert_close(
        from_module(lambda x: policy(x / 255), seen, TWO, "logits").params(torch.from_numpy(x)), own.detach()
    )
    from_module(lambda x: layer(x.float() / 255), seen, TWO, "logits")


@every_case(
    ("answer", "kind"),
    [
        (lambda a, b: [a, b], "logits"), (lambda a, b: (a, b), "logits"), (lambda a, b: ([a, b], a[:, :1]), "logits"),
        (lambda a, b: [Categorical(logits=a), Categorical(logits=b)], "logits"),
        (lambda a, b: (torch.cat([a, b], 1), a[:, :1], None), "logits"),
        (lambda a, b: (Independent(Normal(torch.cat([a, b], 1), 1.0), 1), None), None),
        (lambda a, b: (torch.cat([a, b], 1), torch.zeros(5), {}), "gaussian"),
        (lambda a, b: (torch.cat([a, b], 1), torch.zeros(5), {}), "mean"),
    ],
)  # fmt: skip
def test_parts_of_an_answer_are_put_together(answer, kind):
    """Heads of several choices, a distribution or a tuple beside a value, and what skrl's models compute."""
    first, second, x = net(3), net(2), torch.randn(4, 4)
    action = spaces.MultiDiscrete([3, 2]) if kind == "logits" else spaces.Box(-1, 1, (5,))
    victim = from_module(lambda x: answer(first(x), second(x)), OBS, action, kind)
    wanted = torch.cat([first(x), second(x)], 1).detach()
    found = victim.params(x)[:, :5]
    if kind == "logits":
        wanted, found = (
            torch.cat([part.log_softmax(1) for part in each.split([3, 2], 1)], 1) for each in (wanted, found)
        )
    torch.testing.assert_close(found, wanted)
    assert victim.gradient(lambda p: p[:, 0])(x).any()


@every_case(
    ("answer", "line"),
    [
        (lambda y: {"value": y[:, :1], "logits": y}, "net(x)['logits']"),
        (lambda y: Beside(y), "net(x).logits"),
        (lambda y: {"actor": {"mean": y}}, "net(x)['actor']['mean']"),
        (lambda y: y[:, :, None].expand(-1, -1, 5), "net(x).mean(-1)"),
        (lambda y: y[:, None], "net(x)[:, -1]"),
        (lambda y: y[:, :, None], "net(x).flatten(1)"),
        (lambda y: torch.stack([y, 1 - y], -1).softmax(-1), "net(x) @ atoms"),
        (lambda y: (y[:, :1], y), "net(x)[1]"),
    ],
)
def test_the_line_that_takes_a_part_works(answer, line):
    layers = net(2)
    policy = lambda x: answer(layers(x))  # noqa: E731
    with pytest.raises(VictimError) as found:
        from_module(policy, OBS, TWO, "logits")
    assert line in str(found.value)
    x, given = torch.randn(3, 4), {"net": policy, "atoms": torch.tensor([1.0, 0.0])}
    plays = from_module(eval(f"lambda x: {line}", given), OBS, TWO, "q")
    wanted = answer(layers(x))[..., 0] if "atoms" in line else layers(x)
    torch.testing.assert_close(plays.params(x), wanted.detach())


class Beside:
    def __init__(self, logits):
        self.logits = logits


def test_a_squeezed_answer_has_rows():
    layers, one = net(2), net(1)
    x = torch.randn(3, 4)
    squeezed = from_module(lambda x: layers(x).squeeze(), OBS, TWO, "q")
    for rows in (x, x[:1]):
        torch.testing.assert_close(squeezed.params(rows), layers(rows).detach())
    for module in (lambda x: one(x).squeeze(-1), nn.Sequential(one, nn.Flatten(0))):
        mean = from_module(module, OBS, spaces.Box(-1, 1, (1,)), "mean")
        torch.testing.assert_close(mean.params(x), one(x).detach())
        assert mean.gradient(lambda p: p[:, 0])(x).shape == x.shape


def test_batch_normalisation_in_training_mode_is_told_of():
    layers, norm = net(2), nn.BatchNorm1d(4)
    with pytest.raises(VictimError, match=r"takes 2 observations at once and not 1.*call \.eval\(\)"):
        from_module(lambda x: layers(norm(x)), OBS, TWO, "logits")
    from_module(lambda x: layers(norm.eval()(x)), OBS, TWO, "logits")


def test_rows_that_depend_on_others_are_told_of():
    layers = net(2)
    with pytest.warns(UserWarning, match="otherwise for an observation among others.*how many environments"):
        from_module(lambda x: layers(x - x.mean(0)), OBS, TWO, "logits")
