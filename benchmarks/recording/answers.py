"""What victims answer: of the zoo, of the tests, and of files of other libraries."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import adv_wrappers as adv
from benchmarks.recording.values import Items, Value, answered, digest, in_folder, inner, summary
from tests.rigs import RIGS


def answers() -> Items:
    """What victims answer at 64 observations: of the zoo, of the rigs, and of files of other libraries."""
    found: Items = {}
    for name in inner("zoo_names")():
        found[f"zoo:{name}"] = functools.partial(answers_of, lambda name=name: adv.load_victim(f"zoo:{name}"))
        found[f"zoo:{name} in float64"] = functools.partial(
            answers_of, lambda name=name: adv.load_victim(f"zoo:{name}", dtype=torch.float64)
        )
    for name, rig in RIGS.items():
        found[f"rig {name}"] = functools.partial(answers_of, rig.victim)
    for name in SB3_AGENTS:
        for load in ("zip", "model"):
            found[f"sb3 {name} {load}"] = functools.partial(sb3_answers, name, load)
    found["sb3 PPO with statistics"] = functools.partial(sb3_answers, "PPO CartPole-v1", "statistics")
    for kind in ("q", "logits", "mean", "gaussian"):
        found[f"torchscript {kind}"] = functools.partial(file_answers, "torchscript", kind)
        found[f"onnx {kind}"] = functools.partial(file_answers, "onnx", kind)
    for name in ("PPO", "PPO lstm", "SAC", "DQN"):
        found[f"rllib {name}"] = functools.partial(answers_of, lambda name=name: rllib_victim(name))
    for ref in ("smoothed:zoo:cartpole-dqn?sigma=0.1", "lower-bound:zoo:cartpole-dqn?eps=0.05"):
        found[ref] = functools.partial(answers_of, lambda ref=ref: adv.load_victim(ref))
    return found


def cards() -> Items:
    """What the cards in the folder of ``--victims`` answer."""
    folder = os.environ.get("RECORD_VICTIMS")
    names = sorted(path.parent.name for path in Path(folder).glob("*/card.json")) if folder else []
    return {
        name: functools.partial(answers_of, lambda name=name: adv.load_victim(f"card:{folder}/{name}"))
        for name in names
    }


SB3_AGENTS = (
    "PPO CartPole-v1", "A2C CartPole-v1", "DQN CartPole-v1", "PPO Pendulum-v1", "SAC Pendulum-v1", "TD3 Pendulum-v1",
    "DDPG Pendulum-v1", "TQC Pendulum-v1", "QRDQN CartPole-v1", "TRPO CartPole-v1", "RecurrentPPO CartPole-v1",
)  # fmt: skip


def answers_of(make: Callable[[], Any], rows: int = 64, fingerprint: bool = True) -> Value:
    """Parameters, actions, values and gradients of a victim at observations that its space drew."""
    victim = make()
    space = victim.observation_space
    space.seed(5)
    seen = [space.sample() for _ in range(rows)]
    x = stacked(seen)
    inputs = batch_of(x, victim.dtype)
    state = victim.initial_state(rows)
    found: dict[str, Any] = {"kind": victim.kind, "select": victim.select}
    if fingerprint:
        found["weights"] = victim.fingerprint()[:16]
    with torch.no_grad():
        params = victim.params(inputs, state)
        found["params"] = [list(params.shape), *summary([params.numpy()], 6)]
        found["actions"] = answered(chosen, victim, params)
        for name in ("value", "q"):
            given = getattr(victim, f"has_{name}", False)
            if given and (name == "value" or victim.discrete):
                found[name] = summary([getattr(victim, name)(inputs, state=state).numpy()])
        if state is not None:
            later = victim.advance(inputs, state)
            found["second step"] = summary([victim.params(inputs, later).numpy()])
    if victim.differentiable and isinstance(inputs, torch.Tensor) and inputs.dtype.is_floating_point:
        varied = inputs.clone().requires_grad_()
        weights = torch.linspace(-1, 1, params.shape[1], dtype=params.dtype)
        (slope,) = torch.autograd.grad((victim.params(varied, state) * weights).sum(), varied)
        found["gradient"] = summary([slope.numpy()])
    return found


def chosen(victim: Any, params: torch.Tensor) -> Value:
    """Actions: a hash of choices, floats of others."""
    actions = np.asarray(victim.act(params))
    floats = actions.dtype.kind == "f"
    return [str(actions.dtype), list(actions.shape), *summary([actions])] if floats else digest(actions)


def stacked(rows: Sequence[Any]) -> Any:
    """A batch of observations."""
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    return tuple(map(stacked, zip(*rows, strict=True))) if isinstance(rows[0], tuple) else np.stack(rows)


def batch_of(tree: Any, dtype: torch.dtype) -> Any:
    """Tensors as a victim takes them: choices stay whole numbers."""
    if isinstance(tree, dict):
        return {key: batch_of(leaf, dtype) for key, leaf in tree.items()}
    if isinstance(tree, tuple):
        return tuple(batch_of(leaf, dtype) for leaf in tree)
    tensor = torch.as_tensor(tree)
    return tensor if tensor.dtype in (torch.int64, torch.int32, torch.int8) else tensor.to(dtype)


def sb3_answers(name: str, load: str) -> Value:
    """Of a model with the weights that its seed gives it, from its file or itself."""
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    kind, _, env = name.partition(" ")
    make = getattr(stable_baselines3, kind, None) or getattr(sb3_contrib, kind)
    venv: Any = DummyVecEnv([lambda: gym.make(env)])
    if load == "statistics":
        venv = VecNormalize(venv)
        venv.seed(3)
        venv.reset()
        for _ in range(50):
            venv.step(np.zeros(1, np.int64))
    policy = "MlpLstmPolicy" if kind == "RecurrentPPO" else "MlpPolicy"
    off_policy = kind in ("DQN", "SAC", "TD3", "DDPG", "TQC", "QRDQN")
    model = make(policy, venv, seed=4, device="cpu", **({"buffer_size": 100} if off_policy else {}))
    if load == "model":
        return answers_of(lambda: adv.from_sb3(model))
    with in_folder() as folder:
        model.save(folder / "agent.zip")
        if load == "statistics":
            venv.save(str(folder / "vecnormalize.pkl"))
        return answers_of(lambda: adv.load_victim(f"sb3:{folder / 'agent.zip'}", trust=load == "statistics"))


def file_answers(form: str, kind: str) -> Value:
    """Of a small network in a file of TorchScript or ONNX."""
    seen = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    actions = gym.spaces.Discrete(3) if kind in ("q", "logits") else gym.spaces.Box(-1, 1, (3,), np.float32)
    width = 6 if kind == "gaussian" else 3
    rng = np.random.default_rng(8)
    weights = [rng.normal(size=size).astype(np.float32) for size in ((4, 8), (8, width))]
    with in_folder() as folder:
        if form == "onnx":
            write_onnx(folder / "net.onnx", weights, ("mean", "log_std") if kind == "gaussian" else (kind,))
            return answers_of(lambda: adv.from_onnx(folder / "net.onnx", seen, actions, kind))
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 8, bias=False), torch.nn.Tanh(), torch.nn.Linear(8, width, bias=False)
        )
        net[0].weight.data, net[2].weight.data = (torch.from_numpy(weight.T.copy()) for weight in weights)
        torch.jit.save(torch.jit.trace(net, torch.zeros(2, 4)), folder / "net.pt")
        make = functools.partial(adv.from_torchscript, folder / "net.pt", seen, actions, kind, trust=True)
        return answers_of(make, fingerprint=False)  # torch numbers the modules of a process in what it saves


def write_onnx(path: Path, weights: Sequence[np.ndarray], outputs: Sequence[str]) -> None:
    """A network of two layers with tanh, its last layer cut into the outputs."""
    import onnx
    from onnx import helper

    width = weights[1].shape[1] // len(outputs)
    parts = {f"w_{name}": weights[1][:, i * width : (i + 1) * width] for i, name in enumerate(outputs)}
    nodes = [helper.make_node("MatMul", ["obs", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["t"])]
    nodes += [helper.make_node("MatMul", ["t", f"w_{name}"], [name]) for name in outputs]
    given = [helper.make_tensor_value_info("obs", onnx.TensorProto.FLOAT, ["B", 4])]
    out = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["B", width]) for name in outputs]
    kept = [onnx.numpy_helper.from_array(np.ascontiguousarray(w), n) for n, w in {"w": weights[0], **parts}.items()]
    graph = helper.make_graph(nodes, "policy", given, out, kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def rllib_victim(name: str) -> Any:
    """A module of RLlib with the weights that a seed gives it; Ray's processes are not started."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import get_trainable_cls

    algorithm, _, lstm = name.partition(" ")
    config = get_trainable_cls(algorithm).get_default_config()
    env = gym.make("Pendulum-v1" if algorithm == "SAC" else "CartPole-v1")
    spec = config.get_default_rl_module_spec()
    spec.observation_space, spec.action_space = env.observation_space, env.action_space
    model = DefaultModelConfig(fcnet_hiddens=[8, 8], use_lstm=bool(lstm), lstm_cell_size=6, max_seq_len=4)
    spec.model_config = config._model_config_auto_includes | model.__dict__
    torch.manual_seed(0)
    return adv.from_rllib(spec.build())
