"""Cards: networks of every format against a forward pass written out here, and every way a file can be wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import save_file
from torch.nn import functional

from adv_wrappers.errors import CardError
from adv_wrappers.utils.reading import parse_tensors, read_bytes
from adv_wrappers.victims.card import environment_of, load_card
from tests.every_case import every_case

OBS, ACT, HID = 5, 2, 6
RULE = {"mean": [0.5, -1.0, 0.0, 2.0, 0.0], "std": [1.0, 0.1, 0.0, 3.0, 2.0], "epsilon": 1e-8, "clip": 10.0}
RAW = {"mean": None, "std": None, "clip": None}


def linear(prefix, inputs, outputs):
    return {f"{prefix}.weight": torch.randn(outputs, inputs) / inputs**0.5, f"{prefix}.bias": torch.randn(outputs) / 3}


def mlp(prefix, inputs, outputs):
    sizes = (inputs, HID, HID, outputs)
    return {k: v for i in range(3) for k, v in linear(f"{prefix}.{2 * i}", sizes[i], sizes[i + 1]).items()}


def lstm(prefix, outputs):
    shapes = {"weight_ih": (4 * HID, 3), "weight_hh": (4 * HID, HID), "bias_ih": (4 * HID,), "bias_hh": (4 * HID,)}
    weights = {f"{prefix}.lstm.{k}_l0": torch.randn(shape) / 2 for k, shape in shapes.items()}
    return linear(f"{prefix}.embed", OBS, 3) | weights | linear(f"{prefix}.head", HID, outputs)


def cnn():
    shapes = {"0": (4, 4, 8, 8), "2": (3, 4, 4, 4), "4": (2, 3, 3, 3)}
    convs = {f"trunk.{i}.weight": torch.randn(s) / s[1] / s[2] for i, s in shapes.items()}
    biases = {f"trunk.{i}.bias": torch.randn(s[0]) for i, s in shapes.items()}
    weights = convs | biases | linear("trunk.7", 98, HID) | linear("policy", HID, 3) | linear("value", HID, 1)
    return {k: v.half() for k, v in weights.items()}


def critics():
    return mlp("policy", OBS, ACT) | mlp("critic", OBS + ACT, 1) | mlp("robust_sarsa", OBS + ACT, 1)


CARDS = {
    "gaussian-mlp": (
        RULE, lambda: mlp("policy", OBS, ACT) | mlp("value", OBS, 1) | {"log_std": torch.tensor([0.1, -1.0])}, "tanh"
    ),
    "categorical-mlp": (RAW, lambda: mlp("policy", OBS, 3) | mlp("value", OBS, 1), "tanh"),
    "q-mlp": (RAW, lambda: mlp("q", OBS, 3), "relu"),
    "quantile-q-mlp": (RAW, lambda: mlp("q", OBS, 12), "relu"),
    "tanh-mlp": (RULE, critics, "relu"),
    "gaussian-lstm": (RULE, lambda: lstm("policy", ACT) | lstm("value", 1) | {"log_std": torch.zeros(ACT)}, "none"),
    "categorical-cnn": ({"mean": 0.0, "std": 255.0, "clip": None}, cnn, "relu"),
    "layers": (RULE, lambda: _layered(), "none"),
}  # fmt: skip
LAYERS = {
    "output": "gaussian",
    "policy": [{"kind": "linear", "bias": False}, {"kind": "elu", "alpha": 0.5}, {"kind": "layer_norm"},
               {"kind": "linear"}, {"kind": "append_log_std"}],
    "value": [{"kind": "linear"}, {"kind": "gelu"}, {"kind": "linear"}],
    "critic": [{"kind": "linear"}, {"kind": "tanh"}, {"kind": "linear"}],
}  # fmt: skip


def _layered():
    policy = linear("policy.0", OBS, HID) | linear("policy.3", HID, ACT) | {"policy.4.log_std": torch.zeros(1, ACT)}
    del policy["policy.0.bias"]
    norm = {"policy.2.weight": torch.rand(HID), "policy.2.bias": torch.rand(HID)}
    value = linear("value.0", OBS, HID) | linear("value.2", HID, 1)
    return policy | norm | value | linear("critic.0", OBS + ACT, HID) | linear("critic.2", HID, 1)


def write(folder, kind, **changes):
    torch.manual_seed(0)
    rule, weights, activation = CARDS[kind]
    card = {
        "environment": {"id": "Hopper-v4", "kwargs": {"a": 1}},
        "network": {"kind": kind, "activation": activation, "quantiles": 4},
        "observation": rule,
        "action": {"select": "sample", "clip": kind == "gaussian-mlp"},
    }
    if kind == "layers":
        card |= {"format": 3, "role": "victim", "network": LAYERS}
        card["spaces"] = {"observation": {"shape": [OBS]}, "action": {"low": -1, "high": 1}}
    tensors = weights()
    for key, value in changes.items():
        card = value(card) if key == "card" else card
        tensors = value(tensors) if key == "tensors" else tensors
    folder.mkdir(exist_ok=True)
    (folder / "card.json").write_text(json.dumps(card))
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "weights.safetensors")
    return folder, tensors


def forward(weights, prefix, x, activation):
    for i in range(3):
        x = functional.linear(
            x, weights[f"{prefix}.{2 * i}.weight"].double(), weights[f"{prefix}.{2 * i}.bias"].double()
        )
        x = activation(x) if i < 2 else x
    return x


def normalised(x):
    mean, std = (torch.tensor(RULE[k], dtype=torch.float64) for k in ("mean", "std"))
    return ((x - mean) / (std + 1e-8)).clamp(-10, 10)


def observations(rows=4):
    x = torch.randn(rows, OBS, dtype=torch.float64) * 3
    x[:, 2] = 0.0  # a constant feature: its std is 0
    return x


EXPECTED = {  # of the kinds that older cards name, from the weights as these name them: policy, value, critic
    "gaussian-mlp": lambda w, x, act: (
        torch.cat([forward(w, "policy", normalised(x), torch.tanh), w["log_std"].double().expand(4, -1)], 1),
        forward(w, "value", normalised(x), torch.tanh)[:, 0],
    ),
    "categorical-mlp": lambda w, x, act: (
        forward(w, "policy", x, torch.tanh), forward(w, "value", x, torch.tanh)[:, 0],
    ),
    "q-mlp": lambda w, x, act: (forward(w, "q", x, torch.relu),),
    "quantile-q-mlp": lambda w, x, act: (forward(w, "q", x, torch.relu).view(4, 4, 3).mean(1),),
    "tanh-mlp": lambda w, x, act: (
        forward(w, "policy", normalised(x), torch.relu).tanh(),
        None,
        *(forward(w, net, torch.cat([normalised(x), act], 1), torch.relu)[:, 0] for net in ("critic", "robust_sarsa")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", EXPECTED)
def test_older_kinds(kind, tmp_path):
    folder, w = write(tmp_path, kind)
    victim, x, act = load_card(folder, dtype=torch.float64), observations(), torch.rand(4, ACT, dtype=torch.float64)
    critics = [critic(x, act) for critic in (victim.critic, victim.robust_sarsa) if critic is not None]
    found = [victim.params(x), None if victim.kind == "q" else victim.value(x), *critics]
    for one, expected in zip(found, EXPECTED[kind](w, x, act), strict=False):
        assert (one is None) is (expected is None)
        torch.testing.assert_close(one, expected) if one is not None else None
    assert victim.card["role"] == "victim" and victim.ref == f"card:{folder}"


def test_what_a_card_says_of_its_victim(tmp_path):
    folder, _ = write(tmp_path / "a", "gaussian-mlp")
    victim = load_card(folder, dtype=torch.float64)
    params = victim.params(observations())
    torch.testing.assert_close(victim.mode(params), params[:, :ACT].clamp(-1, 1))
    assert victim.select == "sample" and load_card(folder, select="mode").select == "mode"
    np.testing.assert_array_equal(victim.scale.numpy(), np.array(RULE["std"]) + 1e-8)
    assert isinstance(victim.observation_space, spaces.Box) and victim.observation_space.shape == (OBS,)
    assert environment_of(victim.card) == ("Hopper-v4", {"a": 1})
    discrete = load_card(write(tmp_path / "b", "categorical-mlp")[0])
    assert discrete.kind == "logits" and discrete.action_space == spaces.Discrete(3) and discrete.scale is None
    scaled = write(tmp_path / "c", "tanh-mlp", card=lambda c: c | {"attack": {"scale": [1, 2, 3, 4, 0]}})[0]
    assert load_card(scaled).scale.tolist() == [1, 2, 3, 4, 0]


def test_the_tiny_std_survives_float32(tmp_path):
    victim, x = load_card(write(tmp_path, "gaussian-mlp")[0]), observations().float()
    at, near = victim.params(x), victim.params(x + torch.tensor([0.0, 0, 1e-8, 0, 0]))
    assert torch.isfinite(at).all() and (at - near).abs().max() > 1e-3  # one unit of the victim


def test_a_q_network_may_be_named_policy(tmp_path):
    folder, w = write(tmp_path, "q-mlp", tensors=lambda t: {k.replace("q.", "policy."): v for k, v in t.items()})
    torch.testing.assert_close(
        load_card(folder, dtype=torch.float64).q(observations(2) * 0),
        forward(w, "policy", observations(2) * 0, torch.relu),
    )


def test_an_lstm_of_an_older_card(tmp_path):
    """Its weights are those of a list of layers."""
    folder, w = write(tmp_path, "gaussian-lstm")
    victim, x = load_card(folder, dtype=torch.float64), observations()
    w = {name: weight.double() for name, weight in w.items()}
    for part, found in (("policy", victim.params), ("value", victim.value)):
        seen = functional.linear(normalised(x), w[f"{part}.embed.weight"], w[f"{part}.embed.bias"])
        out = torch_lstm(w, f"{part}.lstm", 3)(seen[:, None])[0][:, 0]
        out = functional.linear(out, w[f"{part}.head.weight"], w[f"{part}.head.bias"]).detach()
        expected = torch.cat([out, torch.zeros_like(out)], 1) if part == "policy" else out[:, 0]
        torch.testing.assert_close(found(x, victim.initial_state(4)), expected)
    layers = ["linear", "lstm", "linear"]
    assert [layer["kind"] for layer in victim.card["network"]["policy"]] == [*layers, "append_log_std"]
    assert [layer["kind"] for layer in victim.card["network"]["value"]] == layers


def torch_lstm(weights, prefix, inputs, layers=1):
    """``torch.nn.LSTM`` of the weights that are named ``prefix.*``, float64."""
    module = torch.nn.LSTM(inputs, HID, layers, batch_first=True).double()
    module.load_state_dict({k.removeprefix(f"{prefix}."): v for k, v in weights.items() if k.startswith(prefix + ".")})
    return module


RECURRENT = {
    "output": "logits",
    "policy": [{"kind": "linear"}, {"kind": "relu"}, {"kind": "lstm"}, {"kind": "linear"}],
    "value": [{"kind": "lstm"}, {"kind": "tanh"}, {"kind": "linear"}],
}


def recurrent(tmp_path, **network):
    """The folder of a card whose policy has an LSTM of two layers, and its weights."""
    policy = torch.nn.LSTM(4, HID, 2).state_dict()
    value = torch.nn.LSTM(OBS, HID).state_dict()
    weights = linear("policy.0", OBS, 4) | {f"policy.2.{k}": v for k, v in policy.items()} | linear("policy.3", HID, 3)
    weights |= {f"value.0.{k}": v for k, v in value.items()} | linear("value.2", HID, 1)
    change = {"network": RECURRENT | network, "spaces": {"observation": {"shape": [OBS]}}}
    return write(tmp_path, "layers", tensors=lambda _: weights, card=lambda card: card | change)


def test_lists_of_layers_with_an_lstm(tmp_path):
    folder, w = recurrent(tmp_path)
    victim, rows = load_card(folder, dtype=torch.float64), 3
    w = {name: weight.double() for name, weight in w.items()}
    sequence = torch.stack([observations(rows) for _ in range(4)], 1)
    seen = functional.linear(normalised(sequence), w["policy.0.weight"], w["policy.0.bias"]).relu()
    params = functional.linear(torch_lstm(w, "policy.2", 4, 2)(seen)[0], w["policy.3.weight"], w["policy.3.bias"])
    valued = torch_lstm(w, "value.0", OBS)(normalised(sequence))[0].tanh()
    values = functional.linear(valued, w["value.2.weight"], w["value.2.bias"])
    state = victim.initial_state(rows)
    assert victim.recurrent and [tuple(leaf.shape) for leaf in state] == [(3, 2, HID)] * 2 + [(3, 1, HID)] * 2
    for t in range(4):
        torch.testing.assert_close(victim.params(sequence[:, t], state), params[:, t].detach())
        torch.testing.assert_close(victim.value(sequence[:, t], state), values[:, t, 0].detach())
        state = victim.advance(sequence[:, t], state)


def test_cnn(tmp_path):
    folder, w = write(tmp_path, "categorical-cnn")
    victim = load_card(folder)
    x = torch.randint(0, 256, (2, 4, 84, 84)).float()
    y = x / 255
    for i, stride in (("0", 4), ("2", 2), ("4", 1)):
        y = functional.conv2d(y, w[f"trunk.{i}.weight"].float(), w[f"trunk.{i}.bias"].float(), stride).relu()
    y = functional.linear(y.flatten(1), w["trunk.7.weight"].float(), w["trunk.7.bias"].float()).relu()
    torch.testing.assert_close(
        victim.params(x), functional.linear(y, w["policy.weight"].float(), w["policy.bias"].float())
    )
    assert victim.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert victim.scale.shape == (4, 84, 84) and (victim.scale == 255).all()


def test_lists_of_layers(tmp_path):
    folder, w = write(tmp_path, "layers")
    victim, x = load_card(folder, dtype=torch.float64), observations()
    w = {name: weight.double() for name, weight in w.items()}
    y = functional.elu(functional.linear(normalised(x), w["policy.0.weight"]), 0.5)
    y = functional.layer_norm(y, (HID,), w["policy.2.weight"], w["policy.2.bias"])
    mean = functional.linear(y, w["policy.3.weight"], w["policy.3.bias"])
    torch.testing.assert_close(victim.params(x), torch.cat([mean, torch.zeros(4, ACT).double()], 1))
    value = functional.gelu(functional.linear(normalised(x), w["value.0.weight"], w["value.0.bias"]))
    torch.testing.assert_close(
        victim.value(x), functional.linear(value, w["value.2.weight"], w["value.2.bias"]).squeeze(1)
    )
    act = torch.rand(4, ACT).double()
    q = functional.linear(torch.cat([normalised(x), act], 1), w["critic.0.weight"], w["critic.0.bias"]).tanh()
    torch.testing.assert_close(
        victim.q(x, act), functional.linear(q, w["critic.2.weight"], w["critic.2.bias"]).squeeze(1)
    )
    assert victim.observation_space.shape == (OBS,) and victim.kind == "gaussian"


@pytest.mark.parametrize("kind", CARDS)
def test_gradient_is_autograd_and_nothing_global_moves(kind, tmp_path):
    folder, _ = write(tmp_path, kind)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    victim = load_card(folder, dtype=torch.float64)
    assert torch.equal(before, torch.random.get_rng_state())
    x = torch.rand(2, 4, 84, 84).double() * 255 if kind == "categorical-cnn" else observations(2)
    state = victim.initial_state(2)
    slope = torch.randn_like(victim.params(x, state))
    y = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad((victim.params(y, state) * slope).sum(), y)
    torch.testing.assert_close(victim.gradient(lambda p: (p * slope).sum(-1), state)(x), expected)
    assert (victim.layer_graph() is None) is (kind == "gaussian-lstm")
    assert not any(p.requires_grad for m in victim.modules() for p in m.parameters())


def test_spaces_can_be_given(tmp_path):
    entry = {"observation": {"low": -1, "high": 1}, "action": {"low": [-2, -1], "high": 2}}
    victim = load_card(write(tmp_path, "gaussian-mlp", card=lambda c: c | {"spaces": entry})[0])
    assert victim.observation_space == spaces.Box(-1, 1, (OBS,), np.float64)
    assert victim.action_space == spaces.Box(np.float32([-2, -1]), np.float32([2, 2]))


def test_the_fingerprint_is_that_of_the_weights(tmp_path):
    first, same = (load_card(write(tmp_path / n, "q-mlp")[0]).fingerprint() for n in "ab")

    def nudge(tensors):
        tensors["q.0.bias"][0] += 1e-6
        return tensors

    assert first == same != load_card(write(tmp_path / "c", "q-mlp", tensors=nudge)[0]).fingerprint()


def put(section, key, value):
    return lambda card: card | {section: card[section] | {key: value}}


def drop(section):
    return lambda card: {k: v for k, v in card.items() if k != section}


@every_case(
    ("kind", "change", "message"),
    [
        ("gaussian-mlp", drop("network"), "'network' is missing"),
        ("layers", drop("network"), "needs an object 'network'"),
        ("layers", lambda c: c | {"format": 4}, "cards have a format up to 3, got 4"),
        ("layers", lambda c: c | {"role": "critic"}, "expected the card of a victim, got that of a critic"),
        ("gaussian-mlp", put("environment", "id", 3), "text id"),
        ("gaussian-mlp", put("network", "kind", "transformer"), "'transformer'; known: gaussian-mlp"),
        ("gaussian-mlp", put("observation", "mean", [0.0]), "as long as mean"),
        ("gaussian-mlp", put("observation", "std", [1.0, 1, 1, 1, float("nan")]), "all finite"),
        ("gaussian-mlp", put("observation", "std", "wide"), "ValueError: could not convert string to float: 'wide'"),
        ("gaussian-mlp", put("observation", "epsilon", 0.0), "above 0 with epsilon"),
        ("gaussian-mlp", lambda c: c | {"observation": RULE | {"std": [1e-60] * 5, "epsilon": 0}}, "must answer with"),
        ("gaussian-mlp", put("action", "squash", "sin"), "action.squash is 'scale' or 'tanh', .* got 'sin'"),
        ("gaussian-mlp", lambda card: [card], "expected a JSON object"),
        ("layers", put("network", "output", "actions"), "output must be 'q', 'logits', 'mean', 'gaussian' or"),
        ("layers", put("network", "policy", LAYERS["policy"][:-1]), "cannot read"),
        ("layers", put("network", "policy", None), "does not have: policy.0"),
        ("layers", put("network", "policy", {}), "expected policy as a list of layers"),
        ("layers", put("network", "policy", ["trunk", {"kind": "linear"}]), "of the kinds .*, got 'trunk'"),
        ("layers", put("network", "critic", [{"kind": "lstm"}]), "expected critic.0.weight_hh_l0"),
        ("layers", put("network", "critics", [[]] * 101), "at most 100 networks of at most 5000 layers"),
        ("layers", put("network", "value", None), "does not have: value.0"),
        ("layers", put("network", "value", [*LAYERS["value"], {"kind": "two_logits"}]), "with one number"),
        ("layers", put("network", "value", [{"kind": "lstm"}, {"kind": "linear"}]), "expected value.0.weight_hh"),
        ("layers", put("spaces", "observation", {"shape": [6]}), "cannot read"),
        ("layers", put("spaces", "observation", {"shape": "wide"}), "cannot read"),
    ],
)  # fmt: skip
def test_wrong_cards(kind, change, message, tmp_path):
    """One sentence, which names the folder."""
    with pytest.raises(CardError, match=message) as found:
        load_card(write(tmp_path, kind, card=change)[0])
    assert str(found.value).startswith(f"cannot read {tmp_path}")


def _huge(tensors, name):
    """Finite weights, whose products with each other are not."""
    return tensors | {
        f"{name}.{i}.{part}": torch.full_like(tensors[f"{name}.{i}.{part}"], 1e38)
        for i, part in ((2, "bias"), (4, "weight"))
    }


@every_case(
    ("kind", "change", "message"),
    [
        (
            "gaussian-mlp",
            lambda t: {k: v for k, v in t.items() if k != "log_std"},
            r"policy.1.log_std of shape \(1, 'any'\)",
        ),
        ("gaussian-mlp", lambda t: t | {"extra": torch.zeros(3)}, "does not have: extra"),
        ("gaussian-mlp", lambda t: t | {"policy.2.weight": torch.zeros(6, 9)}, r"in_features=9.* does not take \(6,\)"),
        (
            "gaussian-mlp",
            lambda t: t | {"policy.0.bias": torch.full((6,), torch.nan)},
            "trunk.0.bias must hold",
        ),
        ("gaussian-mlp", lambda t: {"other": torch.zeros(1)}, "expected trunk.0.weight"),
        ("gaussian-mlp", lambda t: t | {"trunk.0.weight": torch.zeros(6, 5)}, "does not have: log_std, policy.0.bias"),
        ("layers", lambda t: t | {"value.2.weight": torch.zeros(1, 7)}, r"in_features=7.* does not take \(6,\)"),
        ("layers", lambda t: t | {"value.0.weight": torch.zeros(6, 7)}, r"does not take \(5,\)"),
        ("categorical-mlp", lambda t: _huge(t, "policy"), r"the policy network must .* observation of zeros .*inf"),
        ("tanh-mlp", lambda t: _huge(t, "critic"), "the critic network must answer with finite numbers"),
        ("quantile-q-mlp", lambda t: t | mlp("q", OBS, 13), "quantiles must divide the 13 outputs, got 4"),
    ],
)
def test_wrong_weights(kind, change, message, tmp_path):
    with pytest.raises(CardError, match=message):
        load_card(write(tmp_path, kind, tensors=change)[0])


def test_missing_and_truncated_files(tmp_path):
    with pytest.raises(CardError, match=r"card\.json"):
        load_card(tmp_path / "nowhere")
    folder, _ = write(tmp_path / "card", "q-mlp")
    weights = (folder / "weights.safetensors").read_bytes()
    for damaged in (weights[: len(weights) // 2], weights[:4], b""):
        (folder / "weights.safetensors").write_bytes(damaged)
        with pytest.raises(CardError, match=r"weights\.safetensors"):
            load_card(folder)
    (folder / "card.json").write_text('{"network": ')
    with pytest.raises(CardError, match=r"card\.json"):
        load_card(folder)


def test_what_is_read_does_not_change_with_its_file(tmp_path):
    _, tensors = write(tmp_path, "gaussian-mlp")
    path = tmp_path / "weights.safetensors"
    read, victim = parse_tensors(read_bytes(path), path), load_card(tmp_path)
    x = observations().float()
    before = victim.params(x)
    with path.open("r+b") as file:  # where it lies
        file.write(bytes(path.stat().st_size))
    assert all(torch.equal(read[name], tensors[name]) for name in tensors) and len(read) == len(tensors)
    assert torch.equal(victim.params(x), before)
