"""A learned model of an environment: which observation follows an observation and an action.

Weng et al. 2020 (section 3.2, step 1) learn ``s' = f(s, a)`` from transitions, and plan perturbations through it. Here
the model predicts the normalised change of the observation, as is usual in model-based reinforcement learning; the
paper's linear model ``f(s, a) = A s + B a`` is the same without hidden layers. Several networks may vote
(``ensemble=``): the prediction is their mean. A further output predicts the reward of the step.

A model is a folder with ``card.json`` and ``weights.safetensors``, which holds data and no code;
:func:`adv_wrappers.train_dynamics` makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import torch
from torch import Tensor, nn

from adv_wrappers.errors import Argument, CardError, Message, ValueRangeError, VictimError
from adv_wrappers.networks.card_format import Card, Section, Weights, section
from adv_wrappers.utils.check_numbers import is_integer
from adv_wrappers.victims.build_card_networks import mlp
from adv_wrappers.victims.saved_network_base import SavedNetwork
from adv_wrappers.victims.victim import Victim

MOST_NETWORKS = 100
LEAST_SHARE = 1e-12  # of the variance of changes, the least error: what does not change has none
ERROR_QUANTILES = (0.9, 0.99, 0.999)  # that a card has
MeanStd = tuple[Tensor, Tensor]


class TransitionModel(nn.Module):
    """Networks that predict, from a normalised observation and action, the normalised change and the reward.

    Args:
        nets: from ``n + k`` numbers to ``n + 1``: the changes of ``n`` features, and the reward.
        obs, act, change: mean and standard deviation of observations ``[n]``, of actions ``[k]``, and of changes and
            rewards ``[n + 1]``.
    """

    obs_mean: Tensor
    obs_std: Tensor
    act_mean: Tensor
    act_std: Tensor
    change_mean: Tensor
    change_std: Tensor

    def __init__(self, nets: Sequence[nn.Module], obs: MeanStd, act: MeanStd, change: MeanStd) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)
        for name, (mean, std) in (("obs", obs), ("act", act), ("change", change)):
            self.register_buffer(f"{name}_mean", mean)
            self.register_buffer(f"{name}_std", std)

    def inputs(self, obs: Tensor, act: Tensor) -> Tensor:
        """What the networks take, ``[..., n + k]``."""
        return torch.cat([(obs - self.obs_mean) / self.obs_std, (act - self.act_mean) / self.act_std], -1)

    def forward(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        """The next observations ``[..., n]`` and the rewards ``[...]``."""
        x = self.inputs(obs, act)
        first, *others = (net(x) for net in self.nets)
        mean = sum(others, first) / len(self.nets) if others else first
        change = mean * self.change_std + self.change_mean
        return obs + change[..., :-1], change[..., -1]


class Dynamics(SavedNetwork[TransitionModel]):
    """A learned model of an environment, read from its folder.

    Args:
        folder: holds ``card.json`` and ``weights.safetensors``.
        sha256: what the folder's hash must be, if given; it covers both files.

    Attributes:
        card: the parsed ``card.json``: network, environment, ``feature_names``, ``errors`` on episodes that were held
            out, and ``training``.
        net: the networks.

    Raises:
        CardError: for files that are missing, malformed, of two different moments, or changed since ``sha256``.
    """

    name = "dynamics"
    card_kind = "dynamics"
    called = "model"

    @staticmethod
    def _network(card: Card) -> TransitionModel:
        where, network = card.where, card.section("network")
        for name in ("features", "actions", "ensemble"):
            if not is_integer(size := network.get(name)) or not 1 <= size <= 2**16:
                raise CardError(f"{where}: network.{name} must be an integer of at least 1, got {size!r:.80}")
        features, actions, ensemble = (cast(int, network[name]) for name in ("features", "actions", "ensemble"))
        if ensemble > MOST_NETWORKS:
            most = f"{where}: a model has at most {MOST_NETWORKS} networks, got "
            raise CardError(Message(most, Argument("ensemble", ensemble)))
        weights = Weights(card.tensors, where)
        sizes = {"obs": features, "act": actions, "change": features + 1}
        found = {
            name: tuple(weights.take(f"{name}_{part}", size).data for part in ("mean", "std"))
            for name, size in sizes.items()
        }
        statistics = cast(dict[str, MeanStd], found)
        if not all(bool((std > 0).all()) for _, std in statistics.values()):
            raise CardError(f"{where}: standard deviations must be above 0")
        nets = [mlp(weights, f"nets.{i}", network, features + actions, features + 1) for i in range(ensemble)]
        weights.finish()
        return TransitionModel(nets, **statistics)

    @property
    def features(self) -> int:
        """How many numbers an observation has."""
        return len(self.net.obs_mean)

    @property
    def actions(self) -> int:
        """How many numbers an action has."""
        return len(self.net.act_mean)

    @cached_property
    def error_std(self) -> Tensor:
        """Root mean square of the error of every feature one step ahead, ``[n]``, in the units of the environment.

        It is that of the victim's transitions that were held out, or of those that were recorded.

        Raises:
            CardError: for a model whose card does not say how large its errors are.
        """
        shares = self._errors("one_step")
        if not isinstance(shares, list) or len(shares) != self.features:
            raise CardError("the card of this model has no errors: train it again, by train_dynamics")
        share = torch.tensor(shares, dtype=torch.float64).clamp(min=LEAST_SHARE)
        return share.sqrt() * self.net.change_std[:-1].double().cpu()

    def error_quantile(self, share: float = 0.99) -> Tensor:
        """Errors ``[n]`` that no feature of this share of transitions exceeds, in the units of the environment.

        They are those of :attr:`error_std`, half of which have noise on the actions. The unit of a feature is its error
        in the transitions that the model was trained on, so that one more transition, if it is exchangeable with those
        that were held out, exceeds this in some feature with a probability of at most ``1 - share`` (split conformal
        prediction, Lei et al. 2018). A transition under attack is not exchangeable with them.

        Args:
            share: 0.9, 0.99 or 0.999.

        Raises:
            ValueRangeError: for another share, and one for which too few transitions were held out.
            CardError: for a model whose card does not say how large its errors are.
        """
        if share not in ERROR_QUANTILES:
            raise ValueRangeError(Message(Argument("share"), f" must be one of {ERROR_QUANTILES}, got {share!r}"))
        found = self._errors("quantiles")
        if not isinstance(found, dict) or str(share) not in found:
            raise CardError("the card of this model has no quantiles of errors: train it again, by train_dynamics")
        errors = found[str(share)]
        if errors is None:
            raise ValueRangeError(f"too few transitions were held out for a quantile of {share:g}: train with more")
        if not isinstance(errors, list) or len(errors) != self.features:
            raise CardError(f"expected {self.features} errors as the quantile of {share:g}, got {errors!r:.80}")
        return torch.tensor(errors, dtype=torch.float64)

    def _errors(self, name: str) -> object:
        """What the card says of the victim's transitions that were held out, or of those recorded; None for nothing."""
        errors = self.card.get("errors")
        found = next((errors[part] for part in ("victim", "recorded") if part in errors), None) if errors else None
        return found.get(name) if isinstance(found, dict) else None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers of an observation, where the environment has some."""
        names = self.card.get("feature_names")
        return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()

    def predict(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        """One step.

        Args:
            obs: observations ``[..., n]`` in the units of the environment.
            act: native actions ``[..., k]``. The model computes in their dtype and on their device.

        Returns:
            The next observations ``[..., n]`` and the rewards ``[...]``, differentiable in both arguments.
        """
        next_obs, reward = self._net_like(act)(obs, act)
        return next_obs, reward

    def step(self, obs: Tensor, act: Tensor) -> Tensor:
        """The next observations ``[..., n]``, as :meth:`predict`."""
        return self.predict(obs, act)[0]

    def check(self, victim: Victim) -> None:
        """Raise :class:`VictimError` unless a victim sees and acts in what this is a model of, at the same rate."""
        own, theirs = ((self.features,), (self.actions,)), (victim.observation_space.shape, victim.action_space.shape)
        if own != theirs:
            raise VictimError(f"the model takes observations and actions of shapes {own}, this victim has {theirs}")
        environments = (section(card or {}, "environment", "", {}) for card in (self.card, victim.card))
        (made, held), (used, holds) = ((about.get("id"), _action_repeat(about)) for about in environments)
        if made == used and held != holds:
            raise VictimError(
                f"the model predicts what follows {held} control steps of an action, this victim holds its actions for "
                f"{holds}: train a model with the action_repeat of the victim"
            )


def _action_repeat(environment: Section) -> object:
    kwargs = environment.get("kwargs")
    return kwargs.get("action_repeat", 1) if isinstance(kwargs, dict) else 1


def load_dynamics(ref: Dynamics | str) -> Dynamics:
    """The model that a text names, ``card:FOLDER``; a model is returned as it is.

    Raises:
        CardError: for another text, and for a folder that holds no model.
    """
    if isinstance(ref, Dynamics):
        return ref
    if not isinstance(ref, str) or not ref.startswith("card:"):
        raise CardError(f"expected a model of the dynamics, or card:FOLDER, got {ref!r:.80}")
    return Dynamics(ref.removeprefix("card:"))
