"""The networks inside a Stable-Baselines3 policy, as plain modules from raw observations. Imports nothing of SB3.

Policies are recognised by the names of their classes, and their own forward functions are not called: those cut the
gradient with respect to the observation (``q1_forward``, shared feature extractors), keep a distribution on the policy,
or cannot be differentiated by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.policy_layers import (
    GSDE,
    AppendLogStd,
    MeanAndLogStd,
    MinimumCritic,
    Normalize,
    OneHot,
    PerKey,
    QuantileMean,
    QuantileMeanCritic,
    TwoLogits,
    mean_over_quantiles,
)
from adv_wrappers.networks.recurrent import RecurrentActor, RecurrentValue, is_plain
from adv_wrappers.victims.modules.module import VictimNetworks, is_batch_renorm
from adv_wrappers.victims.sb3.vecnormalize import check_statistics
from adv_wrappers.victims.victim import choice_sizes


class MethodModule(nn.Module):
    """A method of a module, as a module."""

    def __init__(self, owner: nn.Module, name: str) -> None:
        super().__init__()
        self.owner, self.name = owner, name

    def extra_repr(self) -> str:
        return f"name={self.name}"

    def forward(self, x: Tensor) -> Any:
        return getattr(self.owner, self.name)(x)


_LAYERS = "stable_baselines3.common.torch_layers."
Statistics = dict[str | None, tuple[Tensor, Tensor, float]]  # a key (None: all): mean, sqrt(var + epsilon), clip


def is_image_space(space: spaces.Space[object]) -> bool:
    """What SB3 divides by 255: three dimensions of uint8 from 0 to 255."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3 or space.dtype != "uint8":
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


def statistics_of(normalizer: Any, space: spaces.Space[object]) -> tuple[Statistics, spaces.Space[object]]:
    """Mean, divisor and clip by key (None: all) of a ``VecNormalize``, and the space before it."""
    if normalizer is None or not normalizer.norm_obs:
        return {}, space
    check_statistics(normalizer, "VecNormalize")
    found = normalizer.obs_rms if isinstance(normalizer.obs_rms, dict) else {None: normalizer.obs_rms}
    statistics: Statistics = {}
    for key, rms in found.items():
        leaf = space if key is None else space.spaces.get(key) if isinstance(space, spaces.Dict) else None
        # statistics of one frame count for every frame of a stack
        times = None if leaf is None else _repeats(rms.mean.shape, leaf.shape or ())
        if times is None:
            raise VictimError(
                f"VecNormalize has statistics of shape {rms.mean.shape} for {key or 'observations'}, "
                f"the policy takes {space}"
            )
        mean, var = (torch.as_tensor(part).double().repeat(times) for part in (rms.mean, rms.var))
        statistics[key] = mean, (var + float(normalizer.epsilon)).sqrt(), float(normalizer.clip_obs)
    return statistics, _before(getattr(vars(normalizer).get("venv"), "observation_space", None), space)


def _repeats(one: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """How often statistics of one observation are repeated along every axis, for a stack of them.

    ``VecFrameStack(VecNormalize(env))`` normalises each of the observations that it joins, along the first axis or the
    last. None for statistics of another space.
    """
    if len(one) != len(whole) or any(n % m for n, m in zip(whole, one, strict=True)):
        return None
    times = tuple(n // m for n, m in zip(whole, one, strict=True))
    several = [axis for axis, count in enumerate(times) if count > 1]
    return times if several in ([], [0], [len(times) - 1]) else None


def _before(inner: Any, space: spaces.Space[object]) -> spaces.Space[object]:
    """``space`` with the bounds that images have before ``VecNormalize``, except behind a transposition of axes."""
    if isinstance(space, spaces.Dict) and isinstance(inner, spaces.Dict):
        return spaces.Dict([(key, _before(inner.spaces.get(key), leaf)) for key, leaf in space.spaces.items()])
    return inner if isinstance(inner, spaces.Box) and inner.shape == space.shape else space


def _leaf(
    space: spaces.Space[object], images: bool, statistics: tuple[Tensor, Tensor, float] | None
) -> list[nn.Module]:
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return [OneHot(tuple(choice_sizes(space)))]
    first: list[nn.Module] = [] if statistics is None else [Normalize(*statistics)]
    return [*first, Normalize(torch.tensor(0.0), torch.tensor(255.0))] if images and is_image_space(space) else first


def _is(module: nn.Module, name: str) -> bool:
    return f"{type(module).__module__}.{type(module).__qualname__}" == _LAYERS + name


def features(policy: Any, extractor: Any, statistics: Statistics) -> list[nn.Module]:
    """Layers from raw observations to features; those of plain extractors one by one, so that they are known."""
    space, images = policy.observation_space, bool(policy.normalize_images)
    if isinstance(space, spaces.Dict):
        parts = {k: nn.Sequential(*_leaf(s, images, statistics.get(k))) for k, s in space.spaces.items()}
        return [PerKey(parts), extractor]
    before = _leaf(space, images, statistics.get(None))
    if _is(extractor, "FlattenExtractor"):
        return [*before, nn.Flatten()]
    return [*before, *extractor.cnn, *extractor.linear] if _is(extractor, "NatureCNN") else [*before, extractor]


def q_nets(policy: Any, statistics: Statistics, live: bool) -> VictimNetworks:
    """DQN and QR-DQN."""
    quantile = hasattr(policy, "quantile_net")
    owner = policy.quantile_net if quantile else policy.q_net
    net = owner.quantile_net if quantile else owner.q_net
    layers = list(net) if type(net) is nn.Sequential else [net]  # a dueling network of one's own is one module
    if quantile and not live and isinstance(layers[-1], nn.Linear):
        layers[-1] = mean_over_quantiles(layers[-1], owner.n_quantiles)
    elif quantile:  # a layer of means would not follow the weights
        layers.append(QuantileMean(owner.n_quantiles))
    return VictimNetworks(nn.Sequential(*features(policy, owner.features_extractor, statistics), *layers), "q")


def off_policy_nets(policy: Any, statistics: Statistics, live: bool) -> VictimNetworks:
    """SAC, TD3, DDPG, TQC and CrossQ."""
    actor, critic = policy.actor, policy.critic
    seen = features(policy, actor.features_extractor, statistics)
    valued = nn.Sequential(*features(policy, critic.features_extractor, statistics))
    heads: list[nn.Module] = [nn.Sequential(*_layers_of(head, live)) for head in critic.q_networks]
    kind = QuantileMeanCritic if hasattr(critic, "quantiles_total") else MinimumCritic
    q = kind(valued, heads, *map(torch.as_tensor, (policy.action_space.low, policy.action_space.high)))
    # TD3 and DDPG have a mean alone; the others a Gaussian before its tanh
    if not hasattr(actor, "latent_pi"):
        return VictimNetworks(nn.Sequential(*seen, *actor.mu), "mean", critic=q, squash="scale")
    if getattr(actor, "use_sde", False):
        mu: list[Any] = [*actor.mu] if isinstance(actor.mu, nn.Sequential) else [actor.mu]  # and a clip behind it
        clip = mu[1].max_val if len(mu) > 1 else None
        head: nn.Module = GSDE(mu[0], actor.log_std, actor.use_expln, clip)
    else:
        head = MeanAndLogStd(actor.mu, actor.log_std)
    net = nn.Sequential(*seen, *_layers_of(actor.latent_pi, live), head)
    return VictimNetworks(net, "gaussian", critic=q, squash="tanh")


def _layers_of(net: Any, live: bool) -> list[nn.Module]:
    """The layers of a ``Sequential``; CrossQ's batch renormalisation of a frozen copy as torch's own layer."""
    return [layer if live or not is_batch_renorm(layer) else _batch_norm(layer) for layer in net]


def _batch_norm(layer: Any) -> nn.BatchNorm1d:
    """What sb3-contrib's ``BatchRenorm1d`` computes in evaluation mode, in a form whose gradient is written out."""
    norm = nn.BatchNorm1d(layer.num_features, eps=layer.eps, affine=layer.affine, device="meta")
    norm.running_mean, norm.running_var = layer.ra_mean, layer.ra_var
    norm.num_batches_tracked = layer.steps
    if layer.affine:
        norm.weight, norm.bias = layer.scale, layer.bias
    return norm


def ars_nets(policy: Any, statistics: Statistics, live: bool) -> VictimNetworks:
    """ARS, linear or not, whose outputs are an action or the scores of each."""
    seen = features(policy, policy.features_extractor, statistics)
    kind: Any = "mean" if isinstance(policy.action_space, spaces.Box) else "logits"
    squash = "scale" if policy.squash_output else "clip"
    return VictimNetworks(nn.Sequential(*seen, *policy.action_net), kind, squash=squash)


def actor_critic_nets(policy: Any, statistics: Statistics, live: bool) -> VictimNetworks:
    """PPO, A2C, TRPO and RecurrentPPO."""
    # what turns the features into parameters of the distribution
    tail: list[nn.Module] = [policy.action_net]
    kind = type(policy.action_dist).__name__
    if kind == "DiagGaussianDistribution":
        tail.append(AppendLogStd(policy.log_std))
    elif kind == "StateDependentNoiseDistribution":
        tail = [GSDE(policy.action_net, policy.log_std, policy.action_dist.use_expln)]
    elif kind == "BernoulliDistribution":
        tail.append(TwoLogits())
    elif kind not in ("CategoricalDistribution", "MultiCategoricalDistribution"):
        raise VictimError(f"no victim for a policy with {kind}: use from_module with a function of your own")
    # policy and value, each behind its features
    mlp = policy.mlp_extractor
    plain = _is(mlp, "MlpExtractor")
    pi = nn.Sequential(*(mlp.policy_net if plain else [MethodModule(mlp, "forward_actor")]), *tail)
    vf = nn.Sequential(*(mlp.value_net if plain else [MethodModule(mlp, "forward_critic")]), policy.value_net)
    seen, valued = (
        features(policy, e, statistics) for e in (policy.pi_features_extractor, policy.vf_features_extractor)
    )
    output: Any = "gaussian" if isinstance(policy.action_space, spaces.Box) else "logits"
    squash = "tanh" if policy.squash_output else "clip"
    if not hasattr(policy, "lstm_actor"):
        return VictimNetworks(nn.Sequential(*seen, *pi), output, nn.Sequential(*valued, *vf), squash=squash)
    # RecurrentPPO: an LSTM behind the features, and one of the value's own, a shared one, or none
    lstm, own = policy.lstm_actor, policy.lstm_critic
    if not is_plain(lstm):
        raise VictimError("no victim for a bidirectional or projected LSTM, or one without biases")
    # the value's LSTM: its own, or the policy's
    before = nn.Sequential(*valued)
    net = RecurrentActor(nn.Sequential(*seen), lstm, pi, None if own is None else (before, own))
    value = RecurrentValue(before, own or (lstm if policy.shared_lstm else None), policy.critic, vf, own is not None)
    return VictimNetworks(net, output, value, squash=squash)


Makes = Callable[[Any, Statistics, bool], VictimNetworks]  # of a policy, its statistics, and whether it is live
_PLAIN = ("_predict", "forward")
FAMILIES: dict[str, tuple[Makes, tuple[str, ...]]] = {  # by the class of a policy, also what it computes by
    "ActorCriticPolicy": (
        actor_critic_nets,
        ("get_distribution", "_predict", "predict_values", "extract_features", "_get_action_dist_from_latent"),
    ),
    **dict.fromkeys(("DQNPolicy", "QRDQNPolicy"), (q_nets, _PLAIN)),
    **dict.fromkeys(("SACPolicy", "TD3Policy", "TQCPolicy", "CrossQPolicy"), (off_policy_nets, _PLAIN)),
    "ARSPolicy": (ars_nets, _PLAIN),
}
MASKED = (
    "MaskablePPO chooses among the actions that a mask leaves, which is no part of its observations: put the mask into "
    "the observations and give from_module a function that sets the logits of other actions to minus infinity"
)


def networks_of(policy: Any) -> Makes:
    """What makes the networks of a policy; a class that overrides what it computes is none of the known ones."""
    own = ("stable_baselines3", "sb3_contrib")
    classes = {c.__name__ for c in type(policy).__mro__ if c.__module__.split(".")[0] in own}
    if "MaskableActorCriticPolicy" in classes:
        raise VictimError(MASKED)
    family = next((name for name in FAMILIES if name in classes), None)
    if family is None or not isinstance(policy, nn.Module):
        raise VictimError(
            "expected a model or policy of DQN, QR-DQN, PPO, A2C, TRPO, SAC, TD3, DDPG, TQC, CrossQ, ARS or "
            f"RecurrentPPO, got {type(policy).__name__}; from_module takes any function from observations to actions"
        )
    # the methods that these networks stand for have to be the library's own
    makes, used = FAMILIES[family]
    for name in used:
        if getattr(type(policy), name).__module__.split(".")[0] not in own:
            raise VictimError(f"{type(policy).__name__} overrides {name}: use from_module with a function of your own")
    return makes
