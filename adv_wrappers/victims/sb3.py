"""Victims from Stable-Baselines3 and sb3-contrib: DQN, QR-DQN, PPO, A2C, SAC, TD3, DDPG and RecurrentPPO."""

from __future__ import annotations

import copy
import functools
import importlib
import pickle
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.arrays import fits
from adv_wrappers.core.errors import CardError, TrustError, VictimError
from adv_wrappers.victims.card_nets import Nets
from adv_wrappers.victims.chain import Normalize, chain_of
from adv_wrappers.victims.families import unscale
from adv_wrappers.victims.module import ModuleVictim, check_live, unstable_of
from adv_wrappers.victims.sb3_nets import actor_critic_nets, is_image, off_policy_nets, q_nets, statistics_of
from adv_wrappers.victims.sb3_policies import family_of
from adv_wrappers.victims.sb3_zip import Contents, read_zip
from adv_wrappers.victims.victim import Select


def from_sb3(
    model_or_policy: Any, *, vec_normalize: Any = None, select: Select = "mode",
    device: torch.device | str | None = None, live: bool = False, ref: str | None = None,
    observation_space: spaces.Space[Any] | None = None, action_space: spaces.Space[Any] | None = None,
) -> Sb3Victim:  # fmt: skip
    """A victim from an SB3 model or policy; observations enter as the environment gives them, before ``VecNormalize``.

    Images enter channels first, in 0..255, as in the model's own observation space. Discrete actions have kind ``q``
    (DQN, QR-DQN) or ``logits``; PPO and A2C on a Box ``gaussian``, clipped to the box when acting; SAC ``gaussian``
    before its tanh; TD3 and DDPG ``mean`` in [-1, 1]. Native actions are in the units of the action box.

    Args:
        model_or_policy: an algorithm, or its policy.
        vec_normalize: the ``VecNormalize`` that the agent was trained with, whose statistics are frozen here; None
            takes the model's own, if it has one.
        device: None for the policy's own.
        live: follow the policy's weights instead of a copy.
        observation_space, action_space: of the environment, where they differ from the model's in more than shape.

    Raises:
        VictimError: without SB3, for policies that are not SB3's own in what they compute, for state-dependent
            exploration (gSDE), and where spaces or statistics do not fit.
    """
    _sb3("stable_baselines3.common.policies")
    policy = getattr(model_or_policy, "policy", model_or_policy)
    if vec_normalize is None and hasattr(model_or_policy, "get_vec_normalize_env"):
        vec_normalize = model_or_policy.get_vec_normalize_env()
    family = family_of(policy)
    if getattr(policy, "use_sde", False) or getattr(getattr(policy, "actor", None), "use_sde", False):
        raise VictimError(
            "no victim for state-dependent exploration (gSDE): use from_module with a function of your own"
        )
    statistics, raw = statistics_of(vec_normalize, policy.observation_space)
    if family in ("DQNPolicy", "QRDQNPolicy"):
        nets, squash = q_nets(policy, statistics, live), ""
    elif family == "ActorCriticPolicy":
        nets, squash = actor_critic_nets(policy, statistics), "clip"
    else:
        nets, squash = off_policy_nets(policy, statistics), "tanh" if family == "SACPolicy" else "scale"
    observed, acted = observation_space or raw, action_space or policy.action_space
    victim = Sb3Victim(observed, acted, nets.kind, select=select, device=device or policy.device, ref=ref)
    fits(victim, policy.observation_space, policy.action_space)
    victim.take(nets, squash, live)
    if not isinstance(observed, spaces.Dict) and isinstance(observed, spaces.Box):
        unit = statistics[None][1] if None in statistics else None
        if unit is None and policy.normalize_images and is_image(policy.observation_space):
            unit = torch.full(observed.shape, 255.0)
        victim.scale = None if unit is None else unit.to(victim.device)
    return victim


def load_sb3(
    path: str | Path, *, trust: bool = False, device: torch.device | str = "cpu", vec_normalize: Any = None,
    select: Select = "mode", ref: str | None = None,
) -> Sb3Victim:  # fmt: skip
    """The victim in an SB3 ``.zip``.

    Without ``trust`` nothing in the file is unpickled: spaces and arguments are read from the plain text beside the
    pickles, weights with ``weights_only=True``. A file does not say whether its agent was trained under
    ``VecNormalize``: give it, or the path of its pickle, which needs ``trust``.

    Raises:
        CardError: for a file that is missing, damaged or holds weights of another network.
        TrustError: where something needed exists only as a pickle. ``trust=True`` runs whatever code the file holds.
    """
    contents = read_zip(Path(path), trust)
    if isinstance(vec_normalize, (str, Path)):
        if not trust:
            raise TrustError(f"{vec_normalize} is a pickle: reading it runs code from it, which needs trust=True")
        with open(vec_normalize, "rb") as file:
            vec_normalize = pickle.load(file)
    if trust:
        name = contents.algorithm
        kind = getattr(_sb3("sb3_contrib" if name in ("QRDQN", "RecurrentPPO") else "stable_baselines3"), name)
        policy = kind.load(path, device=device).policy
    else:
        policy = _rebuild(contents, str(path))
    return from_sb3(policy, vec_normalize=vec_normalize, select=select, device=device, ref=ref or f"sb3:{path}")


class Sb3Victim(ModuleVictim):
    """A victim around the networks of an SB3 policy; made by :func:`from_sb3`."""

    squash = ""

    def take(self, nets: Nets, squash: str, live: bool) -> None:
        """Own the networks: a copy of them, or themselves if ``live``."""
        every = [nets.net, nets.value, nets.critic]
        if live:
            self.unstable = unstable_of(net for net in every if net is not None)
            check_live(self.unstable)
            for net in every:  # the statistics are a copy, and only they are cast
                for layer in net.modules() if net is not None else ():
                    if isinstance(layer, Normalize):
                        layer.to(device=self.device, dtype=self.dtype)
        else:  # together, so that what they share stays shared; and not the policy, whose optimizer would come along
            every = copy.deepcopy(every)
            for net in every:
                if net is not None:
                    net.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)
        self.net, self.value_net, self.critic = every  # type: ignore[assignment]
        self.live, self.squash = live, squash
        if nets.start is not None:
            self.recurrent, self.start = True, functools.partial(nets.start, device=self.device, dtype=self.dtype)
        elif isinstance(self.net, nn.Module) and isinstance(self.observation_space, spaces.Box):
            self.plain = chain_of(self.net)

    def native(self, action: Tensor) -> Tensor:
        box = self.action_space
        if not isinstance(box, spaces.Box):
            return super().native(action)
        low, high = (torch.as_tensor(b, device=action.device).to(action.dtype).flatten() for b in (box.low, box.high))
        if self.squash == "clip":
            out = torch.clamp(action, low, high)
        else:
            out = unscale(action.tanh() if self.squash == "tanh" else action, low, high)
        return out.view(len(action), *box.shape)


def _sb3(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise VictimError(
            f"this needs {module.split('.')[0].replace('_', '-')}, which is not installed: {error}"
        ) from error


def _rebuild(contents: Contents, where: str) -> Any:
    """A policy of SB3's own class with the file's weights."""
    module, name = contents.policy
    layers = _sb3("stable_baselines3.common.torch_layers")
    arguments = dict(contents.arguments)
    arguments["features_extractor_class"] = getattr(layers, arguments["features_extractor_class"])
    kind = getattr(_sb3(module), name)
    try:
        with torch.random.fork_rng(devices=[]):  # making the layers draws numbers that the weights then replace
            policy = kind(contents.observation_space, contents.action_space, lambda _: 0.0, **arguments)
        missing, extra = policy.load_state_dict(contents.weights, strict=False)
    except Exception as error:  # the arguments are a stranger's: their errors are of any kind
        raise CardError(f"{where}: the weights are not those of {name} with {contents.arguments}: {error}") from error
    # files of SB3 < 1.8 name a shared extractor once
    missing = [key for key in missing if not key.startswith(("pi_features_extractor.", "vf_features_extractor."))]
    if missing or extra:
        raise CardError(f"{where}: expected weights {missing}, got {extra} instead")
    if not all(torch.isfinite(value).all() for value in policy.state_dict().values()):
        raise CardError(f"{where}: weights that are not finite")
    return policy
