"""Trained critics as folders of data: ``card.json`` and ``weights.safetensors``, which hold no code."""

from __future__ import annotations

from torch import Tensor

from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.card_format import Card, Weights, section
from adv_wrappers.networks.layers_torch_lacks import ActionValue, Normalize
from adv_wrappers.networks.serialization import clip_of
from adv_wrappers.victims.build_card_networks import mlp
from adv_wrappers.victims.saved_network_base import SavedNetwork
from adv_wrappers.victims.victim import Victim


class Critic(SavedNetwork[ActionValue]):
    """A trained critic, read from its folder: ``(observations [B, n], native actions [B, D]) -> Q [B]``.

    Args:
        folder: holds ``card.json`` and ``weights.safetensors``.
        sha256: what the folder's hash must be, if given; it covers both files.

    Attributes:
        card: the parsed ``card.json``: network, victim (``ref`` and ``sha256``), environment and ``training``.
        net: the network.

    Raises:
        CardError: for files that are missing, malformed, of two different moments, or changed since ``sha256``.
    """

    name = "critic"
    card_kind = "critic"
    called = "critic"

    @staticmethod
    def _network(card: Card) -> ActionValue:
        where, network = card.where, card.section("network")
        try:
            features, actions = int(network["features"]), int(network["actions"])  # type: ignore[call-overload]
            clip = clip_of(card.section("observation")["clip"], where, "observation.clip")
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise CardError(f"cannot read a critic from {where}: {type(error).__name__}: {error!s:.200}") from error
        weights = Weights(card.tensors, where)
        mean, std = (weights.take(name, features).data for name in ("mean", "std"))
        if not (std > 0).all():
            raise CardError(f"{where}: std must be above 0")
        net = ActionValue(Normalize(mean, std, clip), mlp(weights, "critic", network, features + actions, 1))
        weights.finish()
        return net

    def _tensors(self) -> dict[str, Tensor]:
        layers = {f"critic.{name}": value for name, value in self.net.net.state_dict().items()}
        return layers | self.net.normalise.state_dict()

    def __call__(self, obs: Tensor, act: Tensor) -> Tensor:
        """Q ``[B]``, in the units of the environment's return, in the dtype and on the device of ``act``."""
        return self._net_like(act)(obs, act)  # type: ignore[no-any-return]

    def check(self, victim: Victim) -> None:
        """Raise :class:`VictimError` unless a victim's observations and actions are as long as this critic's."""
        network = section(self.card, "network", "the critic")
        own = (network["features"],), (network["actions"],)
        shapes = victim.observation_space.shape, victim.action_space.shape
        if own != shapes:
            raise VictimError(f"the critic takes observations and actions of shapes {own}, this victim has {shapes}")
