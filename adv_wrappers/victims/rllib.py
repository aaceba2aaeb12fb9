"""Victims from RLlib's new API stack: an RLModule between the connectors that RLlib runs it with.

RLlib is imported only where a checkpoint is read; modules and connectors are recognised by the names of their classes.
Connectors before the module become layers of the victim where they compute the same for the same episode so far:
``MeanStdFilter`` with its present statistics, ``FlattenObservations``, and ``FrameStacking``, whose earlier frames are
a hidden state. Those behind it scale and clip actions. Any other one is refused by name. Checked with Ray 2.60.
"""

from __future__ import annotations

import copy
import importlib
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.spaces import from_zero
from adv_wrappers.errors import CardError, TrustError, VictimError
from adv_wrappers.networks.policy_layers import AppendLogStd, Normalize, OneHot, PerKey, dtype_to_normalize
from adv_wrappers.utils.trees import map_leaves
from adv_wrappers.victims.distributions import unscale
from adv_wrappers.victims.modules.module import ModuleVictim, VictimNetworks
from adv_wrappers.victims.modules.probe import random_rows
from adv_wrappers.victims.victim import OutputKind, RecurrentState, Select, choice_sizes, device_of

Connectors = Any  # a pipeline of RLlib, or a sequence of its connectors
_PLAIN = {  # of RLlib's default pipelines: they rearrange, and change no number
    "AddObservationsFromEpisodesToBatch", "AddTimeDimToBatchAndZeroPad", "AddStatesFromEpisodesToBatch",
    "BatchIndividualItems", "NumpyToTensor", "GetActions", "TensorToNumpy", "UnBatchToIndividualItems",
    "RemoveSingleTsTimeRankFromBatch", "ListifyDataForVectorEnv",
}  # fmt: skip
_SMALL = 1e-6  # RLlib's SMALL_NUMBER, which MeanStdFilter adds to a standard deviation
_LOG_STD = -5.0, 2.0  # what RLlib's TorchSquashedGaussian clamps a log standard deviation to


def from_rllib(
    agent: Any,
    *,
    module_id: str = "default_policy",
    env_to_module: Connectors | None = None,
    module_to_env: Connectors | None = None,
    observation_space: spaces.Space[object] | None = None,
    action_space: spaces.Space[object] | None = None,
    select: Select = "mode",
    trust: bool = False,
    device: torch.device | str | None = None,
    ref: str | None = None,
) -> RllibVictim:
    """A victim from an agent of RLlib's new API stack (torch); observations enter as the environment gives them.

    The victim is a frozen copy of the module and of what its connectors know. It acts as RLlib does with
    ``explore=False``, or with ``select="sample"`` as its distribution does. Discrete actions have kind ``q`` (DQN) or
    ``logits``; continuous ones ``gaussian``, of SAC before its tanh, or ``mean``, scaled to the action box and clipped
    as the algorithm was told to (``normalize_actions``, ``clip_actions``). Choices are numbered from 0, whatever
    ``start`` is, as RLlib sends them. Ray 2.60 leaves the tanh of SAC and TQC out
    where it does not explore, and so does the victim. LSTM modules are recurrent victims, and so are frame stacks. PPO
    and its relatives have a value, SAC and TQC a critic (the least of two, and the mean over quantiles).

    Args:
        agent: an ``Algorithm``, the folder of its checkpoint, an ``RLModule``, or the folder of its checkpoint.
        module_id: which module of an algorithm.
        env_to_module: the connectors before the module, as a pipeline or a sequence; None takes those of the algorithm
            or its checkpoint, and none for a module. Statistics of ``MeanStdFilter`` are those of now.
        module_to_env: those behind it; None takes the algorithm's, and for a module RLlib's default, which scales
            actions in [-1, 1] to the box.
        observation_space, action_space: of the environment; None takes those of the connectors or the module.
        select: play the mode or a sample.
        trust: a checkpoint of RLlib is a folder of pickles, and reading it runs the code that is in them: False
            refuses to.
        device: None for the module's own.

    Raises:
        VictimError: for connectors, distributions and modules that are not expressed here, which it names, for the old
            API stack, several agents, and where RLlib is not installed.
        TrustError: for a folder without ``trust``.
        CardError: for a folder that is no checkpoint, or cannot be read.

    >>> from_rllib(algorithm)  # doctest: +SKIP
    """
    module, before, behind = _taken_apart(agent, module_id, trust)
    before = before if env_to_module is None else env_to_module
    behind = behind if module_to_env is None else module_to_env
    if not isinstance(module, nn.Module):
        raise VictimError(f"expected an RLModule of torch, got {type(module).__name__}")
    # spaces of the environment: those given, or of the first connector, or of the module
    own: Any = _with_plain_heads(copy.deepcopy(module))
    pieces = [*_pieces(before)]
    known = [getattr(part, "input_observation_space", None) for part in (before, *pieces[:1])]
    observed: Any = next(space for space in (observation_space, *known, own.observation_space) if space is not None)
    acted: Any = next(
        space
        for space in (action_space, getattr(behind, "input_action_space", None), own.action_space)
        if space is not None
    )
    observed, acted = from_zero(observed), from_zero(acted)
    # connectors before the module become its first layers, those behind it say how actions are scaled
    front = _front(pieces, observed)
    where = device_of(device or next((p.device for p in module.parameters()), torch.device("cpu")))
    # the answer that it acts by, and the unit and dtype of its observations
    key, kind, tanh = _output_of(own, acted)
    unit = None if front.unit is None else front.unit.to(where)
    filters = [layer for layer in front.layers if isinstance(layer, Normalize)]
    precise = any(dtype_to_normalize(layer.mean, layer.std) == torch.float64 for layer in filters)
    dtype = torch.float64 if precise else torch.float32
    # the victim, which is tried once
    victim = RllibVictim(observed, acted, kind, select=select, device=where, dtype=dtype, ref=ref, scale=unit)
    nets = _networks(front, own, key, kind, tanh)
    nets.squash = _scaling(behind, acted, tanh)
    victim.take(nets)
    _try(victim)
    return victim


def _taken_apart(agent: Any, module_id: str, trust: bool) -> tuple[Any, Connectors, Connectors]:
    """The module, and the connectors before and behind it, of what :func:`from_rllib` takes."""
    if isinstance(agent, (str, Path)):
        return _read(Path(agent), module_id, trust)
    # by the names of classes, since RLlib is not imported for it
    names = {c.__name__ for c in type(agent).__mro__}
    if "MultiRLModule" in names:
        agent = _of_several(agent, module_id)
        names = {c.__name__ for c in type(agent).__mro__}
    if "RLModule" in names:
        return agent, None, None
    if "Algorithm" not in names:
        raise VictimError(
            "expected an Algorithm or RLModule of RLlib, or the folder of a checkpoint, got "
            f"{type(agent).__name__}; from_module takes any function from observations to actions"
        )
    # the new API stack has a learner group, and connectors in its runner
    group, runner = getattr(agent, "learner_group", None), agent.env_runner
    if group is None or not (runner is None or hasattr(runner, "_env_to_module")):
        raise VictimError("expected an Algorithm of RLlib's new API stack, got one of the old one")
    learner = getattr(group, "_learner", None)
    if learner is None or runner is None:  # they live in other processes, whose state a checkpoint gathers
        with tempfile.TemporaryDirectory() as folder:
            agent.save_to_path(folder)
            return _read(Path(folder), module_id, True)
    return _of_several(learner.module, module_id), runner._env_to_module, runner._module_to_env


def _of_several(modules: Any, module_id: str) -> Any:
    if module_id not in modules:
        raise VictimError(f"no module {module_id!r:.80}; the agent has {', '.join(map(str, modules.keys())):.300}")
    return modules[module_id]


def _read(folder: Path, module_id: str, trust: bool) -> tuple[Any, Connectors, Connectors]:
    """The parts that a checkpoint of an algorithm, or of a module, consists of."""
    inner = folder / "learner_group" / "learner" / "rl_module"
    whole = inner.is_dir()
    if not whole and not (folder / "module_state.pkl").is_file():
        expected = "expected learner_group/learner/rl_module or module_state.pkl in it"
        raise CardError(f"{folder} is no checkpoint of an Algorithm or RLModule of RLlib's new API stack: {expected}")
    if not trust:
        raise TrustError(f"{folder}: checkpoints of RLlib are pickles, and reading them runs code. trust=True does so")
    if whole and not (inner / module_id).is_dir():
        found = sorted(path.name for path in inner.iterdir() if path.is_dir())
        raise VictimError(f"{folder}: no module {module_id!r:.80}; there is {', '.join(found) or 'none'}")
    # the module alone, or a whole algorithm with its connectors
    try:
        if not whole:
            return _rllib("core.rl_module.rl_module").RLModule.from_checkpoint(folder), None, None
        module = _rllib("core.rl_module.rl_module").RLModule.from_checkpoint(inner / module_id)
        both = [
            _rllib(f"connectors.{name}").__dict__[kind].from_checkpoint(_connectors_in(folder, name))
            for name, kind in (("env_to_module", "EnvToModulePipeline"), ("module_to_env", "ModuleToEnvPipeline"))
        ]
    except VictimError:
        raise
    except Exception as error:  # what unpickling meets raises errors of any kind
        raise CardError(f"cannot read {folder} as a checkpoint of RLlib: {error!s:.300}") from error
    return module, both[0], both[1]


def _connectors_in(folder: Path, name: str) -> Path:
    for place in (folder / f"{name}_connector", folder / "env_runner" / f"{name}_connector"):
        if place.is_dir():
            return place
    raise VictimError(f"{folder}: the checkpoint holds no {name} connectors: give {name}=, [] for none")


def _rllib(module: str) -> Any:
    try:
        return importlib.import_module(f"ray.rllib.{module}")
    except ImportError as error:
        raise VictimError(f"this needs ray[rllib], which is not installed: {error}") from error


def _pieces(connectors: Connectors | None) -> Iterable[Any]:
    """The connectors of nested pipelines, one after the other, without those that change no number."""
    parts: Any = () if connectors is None else getattr(connectors, "connectors", connectors)
    for piece in parts:
        if hasattr(piece, "connectors"):
            yield from _pieces(piece)
        elif not (type(piece).__name__ in _PLAIN and _is_rllibs(piece)):
            yield piece


def _is_rllibs(thing: Any) -> bool:
    return type(thing).__module__.startswith("ray.rllib.")


def _refused(piece: Any, why: str = "") -> VictimError:
    name = f"{type(piece).__module__}.{type(piece).__qualname__}"
    return VictimError(
        f"the connector {name} is not expressed in a victim{why}: give the module and the connectors that are to "
        "from_rllib (env_to_module=, module_to_env=), or a function that applies all of them to from_module"
    )


# connectors before the module


class Front(nn.Module):
    """What happens to observations before the module sees them.

    Args:
        layers: applied one after the other to an observation ``[B, *S]``, or to a dictionary of them.
        frames: how many of what these give are stacked on the last axis; 0 for no stack.
        shape: of one frame, where there is a stack.
        unit: the divisor of a ``MeanStdFilter`` on a Box, in the units of observations.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        frames: int = 0,
        shape: tuple[int, ...] = (),
        unit: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.frames = frames
        self.shape = shape
        self.unit = unit

    def extra_repr(self) -> str:
        return f"frames={self.frames}"

    def forward(self, obs: Any, earlier: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What the module takes, and the frames that the next step stacks ``[B, *S[:-1], frames - 1]``."""
        x: Tensor = self.layers(obs)
        if earlier is None:
            return x, None
        stack = torch.cat([earlier, x], -1)
        return stack, stack[..., 1:]


class Joined(nn.Module):
    """The leaves of a (nested) dictionary ``[B, n]`` side by side, in the order of sorted keys."""

    def forward(self, obs: Mapping[str, Any]) -> Tensor:
        return torch.cat([leaf if isinstance(leaf, Tensor) else self(leaf) for _, leaf in sorted(obs.items())], -1)


def _front(pieces: Sequence[Any], space: spaces.Space[object]) -> Front:
    layers: list[nn.Module] = []
    frames, unit = 0, None
    shape: tuple[int, ...] = ()
    for piece in pieces:
        name = type(piece).__name__
        if not _is_rllibs(piece) or getattr(piece, "_as_learner_connector", False):
            raise _refused(piece)
        if getattr(piece, "_multi_agent", False) or name == "AgentToModuleMapping":
            raise _refused(piece, " of several agents")
        if frames:  # RLlib hands the stack to the module, and what follows changes the newest frame too late
            raise _refused(piece, " behind a frame stack")
        # the connectors that are known, each as layers for what reaches it
        if name == "MeanStdFilter":
            layer = _filter(piece, space)
            unit = None if layers else layer.std.clone()  # of what comes from the environment
            layers.append(layer)
        elif name == "FlattenObservations":
            layers += _flatten(piece, space)
            space = spaces.Box(-np.inf, np.inf, (_size(space, piece._keys_to_remove),))
        elif name == "FrameStacking" and isinstance(space, spaces.Box) and len(space.shape) == 3:
            # RLlib joins (height, width, 1) on the last axis, zeros where the episode has no earlier ones
            frames, shape = int(piece.num_frames), space.shape
        else:
            raise _refused(piece, " here")
    return Front(layers, frames if frames > 1 else 0, shape, unit)


def _filter(piece: Any, space: spaces.Space[object]) -> Normalize:
    """The layer of a ``MeanStdFilter``, with the statistics that it has now."""
    if not isinstance(space, spaces.Box) or np.dtype(space.dtype).kind != "f":
        raise _refused(piece, f" on {space}")  # it rounds to whole numbers, and fails on dictionaries
    (state,) = piece.get_state().values()
    stat = _rllib("utils.filter").RunningStat.from_state(state["running_stats"][0])
    mean = torch.as_tensor(stat.mean if state["de_mean_to_zero"] else np.zeros_like(stat.mean))
    std = torch.as_tensor(stat.std + _SMALL if state["de_std_to_one"] else np.ones_like(stat.mean))
    clip = state["clip_by_value"]
    return Normalize(mean.double(), std.double(), float(clip) if clip else None)


def _flatten(piece: Any, space: spaces.Space[object]) -> list[nn.Module]:
    """Layers that make one vector of an observation, discrete ones as one-hot."""
    removed = piece._keys_to_remove
    if not isinstance(space, spaces.Dict):
        return [_vector(piece, space)]
    kept = {key: leaf for key, leaf in space.spaces.items() if key not in removed}
    return [PerKey({key: _vector(piece, leaf) for key, leaf in sorted(kept.items())}), Joined()]


def _vector(piece: Any, space: spaces.Space[object]) -> nn.Module:
    if isinstance(space, spaces.Dict):
        return PerKey({key: _vector(piece, leaf) for key, leaf in sorted(space.spaces.items())})
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return OneHot(tuple(choice_sizes(space)))
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return nn.Flatten()
    raise _refused(piece, f" on {space}")


def _size(space: spaces.Space[object], removed: Sequence[str] = ()) -> int:
    if isinstance(space, spaces.Dict):
        return sum(_size(leaf) for key, leaf in space.spaces.items() if key not in removed)
    return spaces.flatdim(space)


# the module


class RLModuleOutput(nn.Module):
    """What a module answers when it does not explore, ``[B, K]``.

    Args:
        module: an RLModule.
        key: the name of the answer.
        clamped: whether log standard deviations are clamped as RLlib's squashed Gaussian does.
    """

    module: Any

    def __init__(self, module: nn.Module, key: str, clamped: bool) -> None:
        super().__init__()
        self.module = module
        self.key = key
        self.clamped = clamped

    def extra_repr(self) -> str:
        return f"key={self.key}, clamped={self.clamped}"

    def forward(self, x: Tensor, state: RecurrentState = None) -> Any:
        """The answer; with a state, the answer and the next state."""
        batch = {"obs": x} if state is None else {"obs": x[:, None], "state_in": state}
        answer = self.module.compute_q_values(batch) if self.key == "qf_preds" else _inference(self.module, batch)
        out = answer[self.key] if state is None else answer[self.key][:, 0]
        if self.clamped:
            mean, log_std = out.chunk(2, -1)
            out = torch.cat([mean, log_std.clamp(*_LOG_STD)], -1)
        return out if state is None else (out, answer["state_out"])


def _inference(module: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """What ``forward_inference`` answers, with gradients: RLlib's default calls ``_forward`` without."""
    default = type(module)._forward_inference.__qualname__.startswith("TorchRLModule.")
    answer: dict[str, Any] = module._forward(batch) if default else module._forward_inference(batch)
    return answer


class ClampedHead(nn.Module):
    """A policy's head whose log standard deviations are clamped by numbers, ``[B, 2 D]``."""

    def __init__(self, net: nn.Module, most: float) -> None:
        super().__init__()
        self.net, self.most = net, most

    def extra_repr(self) -> str:
        return f"most={self.most}"

    def forward(self, x: Tensor) -> Tensor:
        mean, log_std = self.net(x).chunk(2, -1)
        return torch.cat([mean, log_std.clamp(-self.most, self.most)], -1)


def _with_plain_heads(module: Any) -> Any:
    """A copy of a module in which RLlib's heads of Gaussians are layers whose gradient is written out."""
    head: Any = getattr(module, "pi", None)
    clamp = getattr(head, "clip_log_std", False)
    most = float(head.log_std_clip_param_const) if head is not None and clamp else math.inf
    if type(head).__name__ == "TorchMLPHead" and _is_rllibs(head) and clamp:
        module.pi = ClampedHead(head.net, most)
    elif type(head).__name__ == "TorchFreeLogStdMLPHead" and _is_rllibs(head):
        module.pi = nn.Sequential(head.net, AppendLogStd(head.log_std.detach().clamp(-most, most)))
    return module


class RLModuleValue(nn.Module):
    """The state values of an RLModule, or its Q-values at actions as it gives them, ``[B]``."""

    def __init__(self, module: Any, of_actions: bool = False) -> None:
        super().__init__()
        self.module, self.of_actions = module, of_actions

    def extra_repr(self) -> str:
        return f"of_actions={self.of_actions}"

    def forward(self, x: Tensor, beside: Any = None) -> Any:
        if self.of_actions:
            return self.module.compute_q_values({"obs": x, "actions": beside})
        if beside is None:
            return self.module.compute_values({"obs": x})
        return self.module.compute_values({"obs": x[:, None], "state_in": beside})[:, 0]


def _output_of(module: Any, space: spaces.Space[object]) -> tuple[str, OutputKind, bool | None]:
    """The name of a module's answer, its kind, and of a squashed Gaussian whether its mode is squashed."""
    dqn = "DefaultDQNRLModule" in {c.__name__ for c in type(module).__mro__}
    if dqn and type(module)._forward_inference.__module__.startswith("ray.rllib."):  # which takes the largest
        return "qf_preds", "q", None
    # any other module names the distribution that it acts by
    distribution = module.get_inference_action_dist_cls()
    # that of MultiDiscrete is a class made for its sizes, around RLlib's own
    found = {c.__name__ for c in [*distribution.__mro__, *getattr(distribution, "__bases__", ())]}
    name = next((n for n in _DISTRIBUTIONS if n in found), None)
    if name is None:
        raise VictimError(
            f"the distribution {distribution.__module__}.{distribution.__qualname__} is not expressed in a victim "
            f"(known: {', '.join(_DISTRIBUTIONS)}): give from_module a function from observations to logits or means"
        )
    if name != "TorchSquashedGaussian":
        return "action_dist_inputs", _DISTRIBUTIONS[name], None
    two = torch.tensor([[2.0, 0.0]])
    return "action_dist_inputs", "gaussian", float(distribution.from_logits(two).to_deterministic().sample()) < 1.5


_DISTRIBUTIONS: dict[str, OutputKind] = {
    "TorchSquashedGaussian": "gaussian",
    "TorchDiagGaussian": "gaussian",
    "TorchMultiCategorical": "logits",
    "TorchCategorical": "logits",
    "TorchDeterministic": "mean",
}


# connectors behind the module


def _scaling(behind: Connectors | None, space: spaces.Space[object], tanh: bool | None) -> str:
    """What becomes of an action of the module, as a text: ``tanh`` always or of samples, then ``scale`` or ``clip``."""
    pieces = [*_pieces(behind)]
    for piece in pieces:
        if type(piece).__name__ != "NormalizeAndClipActions" or not _is_rllibs(piece) or len(pieces) > 1:
            raise _refused(piece)
    scales, clips = (True, False) if behind is None else (False, False)
    if pieces:
        scales, clips = bool(pieces[0].normalize_actions), bool(pieces[0].clip_actions)
    # only floats are scaled
    if not isinstance(space, spaces.Box):
        return ""
    if np.dtype(space.dtype).kind != "f":
        raise VictimError(f"expected actions that are floats, got {space}")
    steps = [] if tanh is None else ["tanh" if tanh else "tanh of samples"]
    if scales and space.is_bounded():
        steps.append("scale")
    elif clips and not scales:
        steps.append("clip")
    return ", ".join(steps)


class RllibVictim(ModuleVictim):
    """A victim around an RLModule of RLlib and its connectors; made by :func:`from_rllib`.

    Attributes:
        squash: what becomes of an action of the module, see :func:`_scaling`.
    """

    from_zero = True
    squash = ""
    integers = False

    def native(self, action: Tensor) -> Tensor:
        box = self.action_space
        if not isinstance(box, spaces.Box):
            return super().native(action)
        # what RLlib does with an action of the module, in its order
        low, high = self.ends(action)
        steps = self.squash.split(", ")
        if "tanh" in steps or ("tanh of samples" in steps and self.select == "sample"):
            action = action.tanh()
        if "scale" in steps:
            action = unscale(action, low, high)
        if "scale" in steps or "clip" in steps:
            action = torch.clamp(action, low, high)
        return action.view(len(action), *box.shape)

    def q(self, obs: Any, act: Tensor | None = None, state: RecurrentState = None) -> Tensor | None:
        box = self.action_space
        if self.critic is None or act is None or not isinstance(box, spaces.Box):
            return super().q(obs, act, state)
        act = act.flatten(1)
        if "scale" in self.squash.split(", "):  # critics of RLlib learn from actions before they are scaled
            low, high = self.ends(act)
            act = 2 * (act - low) / (high - low) - 1
        return super().q(obs, act, state)


class RecurrentNet(nn.Module):
    """A module with a hidden state, behind a frame stack, or both: a state has ``frames``, ``module``, or both."""

    def __init__(self, front: Front, core: Any, value: bool = False) -> None:
        super().__init__()
        self.front = front
        self.core = core
        self.value = value

    def initial_state(self, rows: int) -> dict[str, Any]:
        """The state at the start of an episode: frames of zeros, and the module's own."""
        module, new = self.core.module, dict[str, Any]()
        like = next(module.parameters())

        def start(leaf: Any) -> Tensor:
            one = torch.as_tensor(leaf).to(like)
            return one[None].expand(rows, *one.shape).contiguous()

        # the module's own state for every row, and the frames that a stack has before the first
        if module.is_stateful():
            new["module"] = map_leaves(start, module.get_initial_state())
        if self.front.frames:
            new["frames"] = like.new_zeros(rows, *self.front.shape[:-1], self.front.frames - 1)
        return new

    def forward(self, obs: Any, state: dict[str, Any]) -> Any:
        """The answer and the next state; of a value network the answer alone."""
        x, frames = self.front(obs, state.get("frames"))
        out = self.core(x, state.get("module"))
        if self.value:
            return out
        out, inner = out if "module" in state else (out, None)
        new = {"frames": frames, "module": inner}
        return out, {key: new[key] for key in state}


class CriticOfObservations(nn.Module):
    """A critic behind the layers of observations."""

    def __init__(self, layers: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.layers, self.critic = layers, critic

    def forward(self, obs: Any, act: Tensor) -> Any:
        return self.critic(self.layers(obs), act)


def _networks(front: Front, module: Any, key: str, kind: OutputKind, tanh: bool | None) -> VictimNetworks:
    """What a victim is made of: an RLModule behind what happens to observations."""
    core = RLModuleOutput(module, key, tanh is not None)
    built = not module.inference_only  # else without its value head
    value = RLModuleValue(module) if built and hasattr(module, "compute_values") else None
    if module.is_stateful() or front.frames:
        valued = None if value is None else RecurrentNet(front, value, True)
        return VictimNetworks(RecurrentNet(front, core), kind, valued)
    critic = None  # of an agent with a frame stack, a critic would need the earlier frames
    if built and kind in ("mean", "gaussian") and hasattr(module, "compute_q_values"):
        critic = CriticOfObservations(front.layers, RLModuleValue(module, True))
    behind = None if value is None else nn.Sequential(*front.layers, value)
    return VictimNetworks(nn.Sequential(*front.layers, core), kind, behind, critic)


def _try(victim: RllibVictim) -> None:
    """Raise :class:`VictimError` unless the networks take what the environment gives, and answer what they should."""
    space = victim.observation_space
    if not isinstance(space, (spaces.Box, spaces.Dict)):
        raise VictimError(f"expected Box or Dict observations, got {space}")
    try:
        with torch.no_grad():
            obs = random_rows(space, victim.device, victim.dtype)(0, 2)
            params = victim.params(obs, victim.initial_state(2))
    except VictimError:
        raise
    except Exception as error:  # of a module of one's own, errors of any kind
        raise VictimError(
            f"the module does not answer to observations of {space} behind its connectors ({error!s:.300}): give "
            "env_to_module= or observation_space=, or from_module a function of your own"
        ) from error
    victim.check_params(params, 2)
