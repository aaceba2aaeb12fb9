"""Agents of Stable-Baselines3 made from victims, and victims made from agents: weights, live victims, cards."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.policy_layers import AppendLogStd, Normalize
from adv_wrappers.networks.recurrent import RecurrentActor, RecurrentValue
from adv_wrappers.networks.tracing import layers_in_order
from adv_wrappers.training.sb3.image_policy import ImageNetworks, image_networks_of, is_stack
from adv_wrappers.victims import Victim, from_sb3

ACTIVATIONS: set[type[nn.Module]] = {nn.ReLU, nn.Tanh}


@dataclass(frozen=True)
class MLP:
    """Linear layers with biases and one activation between them.

    Attributes:
        normalize: the layer before them, if there is one.
        linear: at least one.
        activation: ReLU or tanh; None where there is one layer alone.
        end: the log standard deviation of actions behind the last of them, or None.
        norms: of a Q-network, the layer normalisations behind its hidden layers, as many, or none.
    """

    normalize: Normalize | None
    linear: tuple[nn.Linear, ...]
    activation: type[nn.Module] | None
    end: AppendLogStd | None
    norms: tuple[nn.LayerNorm, ...] = ()

    @property
    def hidden(self) -> list[int]:
        """Widths of the hidden layers."""
        return [layer.out_features for layer in self.linear[:-1]]


@dataclass(frozen=True)
class MLPPolicy:
    """The networks of an agent that are MLPs.

    Attributes:
        policy: the network of the actions, with the normaliser of observations and the log standard deviation.
        value: the network of the state value, or None.

    Raises:
        VictimError: for different activations in the two networks, which no policy of SB3 has.
    """

    policy: MLP
    value: MLP | None

    def __post_init__(self) -> None:
        found = {mlp.activation for mlp in (self.policy, self.value) if mlp is not None and mlp.activation is not None}
        if len(found) > 1:
            names = " and ".join(sorted(kind.__name__.lower() for kind in found))
            raise VictimError(f"expected one activation in the networks of actions and state value, got {names}")

    @property
    def activation(self) -> type[nn.Module] | None:
        """ReLU or tanh; None where there are no hidden layers."""
        own = self.policy.activation
        return self.value.activation if own is None and self.value is not None else own

    @property
    def normalise(self) -> Normalize | None:
        """The normaliser of observations."""
        return self.policy.normalize

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        """Those of the policy that have weights, layer normalisations last."""
        return *self.policy.linear, *self.policy.norms

    @property
    def value_layers(self) -> tuple[nn.Module, ...]:
        """Those of the value that have weights; none where the victim has no value."""
        return () if self.value is None else self.value.linear


@dataclass(frozen=True)
class RecurrentPolicy:
    """The networks of an agent of RecurrentPPO: an LSTM, and another one of the state value.

    Attributes:
        normalise: the normaliser of observations, or None.
        lstm: the LSTM that the policy sees observations through.
        value_lstm: that of the state value, of the same size; None where the victim has no value.
        heads: the MLPs behind the two.
    """

    normalise: Normalize | None
    lstm: nn.LSTM
    value_lstm: nn.LSTM | None
    heads: MLPPolicy


AgentNetworks = MLPPolicy | RecurrentPolicy | ImageNetworks


def networks_of_agent(victim: Victim) -> AgentNetworks:
    """The parts of a victim that an agent can be made of.

    An MLP on observations ``[n]``, of a recurrent victim with an LSTM before it, or convolutions on images.

    Raises:
        VictimError: for other victims, and for networks of other layers than Linear with tanh or ReLU between, and
            layer normalisation before these in a Q-network.
    """
    space, net, valued = victim.observation_space, getattr(victim, "net", None), getattr(victim, "value_net", None)
    if is_stack(space):
        return image_networks_of(victim)
    if victim.recurrent:
        return recurrent_policy_of(victim)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or not isinstance(net, nn.Module):
        raise VictimError(f"expected a feed-forward network on observations [n], got one on {space}")
    if victim.kind == "q":
        return MLPPolicy(_mlp(net, q=True), None)
    return MLPPolicy(_mlp(net), _mlp(valued) if isinstance(valued, nn.Module) else None)


def _mlp(net: nn.Module, q: bool = False) -> MLP:
    """A network as an MLP, with layer normalisations where it is a Q-network. A ``Flatten`` of vectors does nothing."""
    layers = [layer for layer in layers_in_order(net, pairs=True) or [] if not isinstance(layer, nn.Flatten)]
    norms = tuple(layer for layer in layers if q and isinstance(layer, nn.LayerNorm))
    rest: list[Any] = [layer for layer in layers if layer not in norms]
    first = rest.pop(0) if rest and isinstance(rest[0], Normalize) else None
    last = rest.pop() if rest and isinstance(rest[-1], AppendLogStd) else None
    linear = tuple(layer for layer in rest[::2] if isinstance(layer, nn.Linear) and layer.bias is not None)
    between = {type(layer) for layer in rest[1::2]}
    if not linear or 2 * len(linear) - 1 != len(rest) or len(between) > 1 or not between <= ACTIVATIONS:
        raise VictimError(f"expected linear layers with tanh or ReLU between them, got {net}")
    # layer normalisation has to stand behind each hidden layer, with torch's defaults
    behind = [before for before, layer in itertools.pairwise(layers) if layer in norms]
    same = all(norm.eps == 1e-5 and norm.weight is not None and norm.bias is not None for norm in norms)
    if norms and (behind != list(linear[:-1]) or not same):
        raise VictimError(f"expected layer normalisation, as torch has it, behind all hidden layers or none, got {net}")
    return MLP(first, linear, next(iter(between), None), last, norms)


def recurrent_policy_of(victim: Victim) -> RecurrentPolicy:
    """The parts of a recurrent victim: of RecurrentPPO, or of a card with an LSTM.

    A value that shares the policy's LSTM gets one of its own with the same weights. A linear layer before an LSTM
    becomes one with the LSTM's own first layer, so that answers differ by rounding.

    Raises:
        VictimError: for other victims; for layers other than a normaliser and a linear layer before the LSTM, or other
            than Linear with tanh or ReLU between behind it; for a state value without an LSTM, or with one of another
            size; and for different activations.
    """
    space = victim.observation_space
    net = getattr(victim, "net", None)
    valued = getattr(victim, "value_net", None)
    if not isinstance(net, RecurrentActor) or not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise VictimError(f"expected an agent of RecurrentPPO on observations [n], or a card of one, got {victim!r}")
    (rule, lstm), head = _before_lstm(net.features, net.lstm), _mlp(net.head)
    # the state value, with an LSTM of its own or the policy's
    value_lstm = value = None
    if isinstance(valued, RecurrentValue):
        if valued.lstm is None:
            raise VictimError("expected a state value with an LSTM, its own or the policy's, this one has none")
        (_, value_lstm), value = _before_lstm(valued.features, valued.lstm), _mlp(valued.head)
    sizes = {(each.num_layers, each.hidden_size) for each in (lstm, value_lstm) if each is not None}
    if len(sizes) > 1:
        raise VictimError(f"expected LSTMs of one size for policy and value, got {lstm} and {value_lstm}")
    if any(mlp is not None and mlp.normalize is not None for mlp in (head, value)):
        raise VictimError(f"expected linear layers behind the LSTM, got a normaliser: {net}")
    return RecurrentPolicy(rule, lstm, value_lstm, MLPPolicy(head, value))


def _before_lstm(features: nn.Module, lstm: nn.LSTM) -> tuple[Normalize | None, nn.LSTM]:
    """The normaliser before an LSTM, and the LSTM with the linear layer before it as a part of it."""
    found = layers_in_order(features)
    layers = [features] if found is None else [layer for layer in found if not isinstance(layer, nn.Flatten)]
    rule: Any = layers.pop(0) if layers and isinstance(layers[0], Normalize) else None
    if layers and isinstance(layers[-1], nn.Linear) and layers[-1].bias is not None:
        lstm = _with_linear(layers.pop(), lstm)
    if layers:
        raise VictimError(f"expected a normaliser, a linear layer or nothing before the LSTM, got {features}")
    return rule, lstm


@torch.no_grad()
def _with_linear(linear: Any, lstm: nn.LSTM) -> nn.LSTM:
    """The LSTM that computes what a linear layer and an LSTM behind it do."""
    found = nn.LSTM(linear.in_features, lstm.hidden_size, lstm.num_layers, device="meta")
    weight, bias = lstm.weight_ih_l0 @ linear.weight, lstm.bias_ih_l0 + lstm.weight_ih_l0 @ linear.bias
    for name, own in {**dict(lstm.named_parameters()), "weight_ih_l0": weight, "bias_ih_l0": bias}.items():
        setattr(found, name, nn.Parameter(own.detach(), requires_grad=False))
    return found


def policy_kwargs_of(parts: AgentNetworks, q: bool = False) -> dict[str, Any]:
    """The ``policy_kwargs`` of SB3's actor-critic policies, or of its ``DQNPolicy``, for networks of the same sizes."""
    if isinstance(parts, ImageNetworks):
        return parts.policy_kwargs
    if isinstance(parts, RecurrentPolicy):
        sizes = {"lstm_hidden_size": parts.lstm.hidden_size, "n_lstm_layers": parts.lstm.num_layers}
        return {**sizes, **policy_kwargs_of(parts.heads)}
    hidden, value = parts.policy.hidden, parts.policy if parts.value is None else parts.value
    arch = hidden if q else {"pi": hidden, "vf": value.hidden}
    return {"net_arch": arch, "activation_fn": parts.activation or (nn.ReLU if q else nn.Tanh)}


def load_weights(policy: BasePolicy, parts: AgentNetworks) -> None:
    """Write the weights of a victim into an SB3 policy made with :func:`policy_kwargs_of`, and into its target."""
    own: Any = policy
    # LSTMs first, then what stands behind them
    if isinstance(parts, RecurrentPolicy):
        own.lstm_actor.load_state_dict(parts.lstm.state_dict())
        if parts.value_lstm is not None:
            own.lstm_critic.load_state_dict(parts.value_lstm.state_dict())
        parts = parts.heads
    images = isinstance(parts, ImageNetworks)
    if isinstance(policy, DQNPolicy):
        for net in (policy.q_net, policy.q_net_target):
            _copy([net if images else net.q_net], parts.layers)  # a denoiser before an MLP stays as new
        return
    before = [own.features_extractor] if images else []
    _copy([*before, own.mlp_extractor.policy_net, own.action_net], parts.layers)
    if parts.value_layers:
        _copy([own.mlp_extractor.value_net, own.value_net], parts.value_layers)
    if isinstance(parts, MLPPolicy) and parts.policy.end is not None:
        own.log_std.data.copy_(parts.policy.end.log_std.reshape(-1))


def _copy(into: Sequence[nn.Module], layers: Sequence[nn.Module]) -> None:
    """Copy layers one by one into those of modules, layer normalisations after all others."""
    own = [layer for module in into for layer in module.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    norms = [layer for module in into for layer in module.modules() if isinstance(layer, nn.LayerNorm)]
    for mine, other in zip([*own, *norms], layers, strict=True):
        mine.load_state_dict(other.state_dict())


def update_normaliser(victim: Victim, normal: VecNormalize) -> None:
    """Copy the present statistics of a ``VecNormalize`` into a live victim, whose weights are the model's own."""
    if not normal.norm_obs:
        return
    assert isinstance(normal.obs_rms, RunningMeanStd)
    mean = torch.as_tensor(normal.obs_rms.mean).double()
    std = (torch.as_tensor(normal.obs_rms.var).double() + normal.epsilon).sqrt()
    # every network of the victim begins with a copy of it
    for net in victim.modules():
        for layer in net.modules():
            if isinstance(layer, Normalize):
                layer.mean, layer.std = mean.to(victim.dtype), std.to(victim.dtype)
    victim.scale = std


def live_victim(model: BaseAlgorithm, select: Literal["mode", "sample"]) -> Victim:
    """A victim that is the model itself, now and later; :func:`update_normaliser` updates its normaliser."""
    victim = from_sb3(model, select=select, live=True)
    normal = model.get_vec_normalize_env()
    assert normal is not None
    update_normaliser(victim, normal)
    return victim
