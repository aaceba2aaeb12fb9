"""The PA-AD paper's Markov decision process of two states and three actions (appendices B.6 and F.1), in closed form.

An observation is the victim's own policy at the state, as two coordinates in the plane of the simplex. The plane has an
orthonormal basis, so an l2 ball of observations is the same ball of policies, and a victim that reads its policy off
the observation is perturbed in its policy directly, as the paper has it. Only ``s1`` is attacked.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers.core.engine.context import Context

Array = NDArray[np.float64]

GAMMA, RADIUS = 0.8, 0.2
REWARDS = np.array([[-0.1, -1.0, 0.1], [0.4, 1.5, 0.1]])  # [state, action]
TO_S1 = np.array([[0.9, 0.2, 0.7], [0.05, 0.25, 0.3]])  # probability that the next state is s1
POLICY = np.array([[0.215, 0.429, 0.356], [0.271, 0.592, 0.137]])
PLANE = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])  # [2, 3], orthonormal, rows of sum 0
POINTS = POLICY @ PLANE.T  # the observations of s1 and s2


def policy_of(point: Any) -> Array:
    """Probabilities ``[..., 3]`` at coordinates ``[..., 2]``."""
    return np.asarray(point) @ PLANE + 1 / 3


def values(policies: Any) -> Array:
    """``V(s1), V(s2)`` of policies ``[..., 2, 3]``: ``(1 - gamma P) V = r``."""
    policies = np.asarray(policies)
    stay = (policies * TO_S1).sum(-1)
    system = np.eye(2) - GAMMA * np.stack([stay, 1 - stay], -1)
    return np.linalg.solve(system, (policies * REWARDS).sum(-1)[..., None])[..., 0]


def perturbed(p: Any) -> Array:
    """``V(s1), V(s2)`` where the policy at s1 is ``p`` ``[..., 3]`` and at s2 the victim's."""
    p = np.asarray(p)
    return values(np.stack([p, np.broadcast_to(POLICY[1], p.shape)], -2))


def q_values(value: Array) -> Array:
    """``Q(s1, a)``, ``[3]``, where the values of the states are ``[2]``."""
    return REWARDS[0] + GAMMA * (TO_S1[0] * value[0] + (1 - TO_S1[0]) * value[1])


def towards(direction: Any, radius: float = RADIUS) -> Array:
    """The policy at s1 that is ``radius`` away in the plane, in a direction ``[..., 3]``."""
    along = np.asarray(direction) @ PLANE.T
    return policy_of(POINTS[0] + radius * along / np.linalg.norm(along, axis=-1, keepdims=True))


def optimum(radius: float = RADIUS) -> Array:
    """The policy at s1, of those at most ``radius`` away, with the lowest value.

    With the policy at s2 fixed, ``V(s1)`` is a ratio ``(n p) / (d p)``, and ``V(s2)`` grows with it, so that both have
    the same minimiser. The policies of one value c are a line, ``(n - c d) p = 0``; the lowest c is that of a line
    which only touches the disc, ``((n - c d) pi)^2 = radius^2 |n - c d|^2`` in the plane: the lower root.
    """
    r2, back = float(POLICY[1] @ REWARDS[1]), float(POLICY[1] @ TO_S1[1])
    rest = 1 - GAMMA * (1 - back)
    n = REWARDS[0] * rest + GAMMA * r2 * (1 - TO_S1[0])
    d = (1 - GAMMA * TO_S1[0]) * rest - GAMMA**2 * back * (1 - TO_S1[0])
    (n0, d0), (n1, d1) = (n @ POLICY[0], d @ POLICY[0]), (PLANE @ n, PLANE @ d)
    quadratic = [d0**2 - radius**2 * d1 @ d1, 2 * (radius**2 * n1 @ d1 - n0 * d0), n0**2 - radius**2 * n1 @ n1]
    lowest = np.roots(quadratic).real.min()
    return towards(-(n - lowest * d), radius)


class TwoStates(gym.Env[Array, np.int64]):
    """Episodes of ``length`` steps that begin in s1; observations float64 ``[2]``, see the head of this file."""

    def __init__(self, length: int = 20) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._t = 0, 0
        return POINTS[0].copy(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward = float(REWARDS[self._state, action])
        self._state = int(self.np_random.random() >= TO_S1[self._state, action])
        self._t += 1
        return POINTS[self._state].copy(), reward, False, self._t >= self.length, {}


class ManyStates(VectorEnv[Array, Any, Any]):
    """``rows`` endless episodes of :class:`TwoStates`, begun in s1: discounting ends them soon enough."""

    def __init__(self, rows: int) -> None:
        one = TwoStates()
        self.num_envs, self.metadata = rows, {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = one.observation_space, one.action_space
        self.observation_space = batch_space(one.observation_space, rows)
        self.action_space = batch_space(one.action_space, rows)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self._state = np.zeros(self.num_envs, np.int64)
        return POINTS[self._state], {}

    def step(self, actions: Any) -> tuple[Array, Array, Any, Any, dict[str, Any]]:
        rewards = REWARDS[self._state, actions]
        self._state = (self.np_random.random(self.num_envs) >= TO_S1[self._state, actions]).astype(np.int64)
        over = np.zeros((2, self.num_envs), bool)
        return POINTS[self._state], rewards, over[0], over[1], {}


class ReadOff(nn.Module):
    """Logits ``[B, 3]``, the logarithms of the probabilities at coordinates ``[B, 2]``."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("plane", torch.from_numpy(PLANE.copy()))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.plane + 1 / 3).clamp(min=1e-12).log()


def victim() -> adv.Victim:
    """The paper's victim, in float64; it samples its actions."""
    env = TwoStates()
    return adv.from_module(ReadOff(), env.observation_space, env.action_space, "logits", select="sample")


def in_s1(x: Tensor, context: Context) -> Tensor:
    """Timing: the rows ``[B]`` that are in s1."""
    return (x - torch.as_tensor(POINTS[0], dtype=x.dtype)).abs().amax(-1) < 1e-6


def steered(actor: adv.PAAD, direction: Any) -> adv.Learned:
    """An adversary that always goes in the direction ``[3]``, of sum zero."""
    axes = actor._direction(torch.eye(2, dtype=torch.float64))
    adversary_action = torch.linalg.lstsq(axes.T, torch.as_tensor(direction)[:, None]).solution[:, 0]
    adversary_action = adversary_action / adversary_action.abs().max()
    return adv.Learned(lambda x: adversary_action.expand(len(x), -1), actor)


def attacked(how: Any, seed: int = 0, radius: float = RADIUS) -> Array:
    """The policy at s1, ``[3]``, under a perturbation within ``L2(radius)``: what a wrapper hands out at a reset."""
    obs, _ = adv.PerturbObservation(TwoStates(), how, adv.L2(radius), in_s1).reset(seed=seed)
    return policy_of(obs)


def trained(seed: int) -> adv.Learned:
    """An adversary that PPO trained in the environment of :class:`adv_wrappers.AdversaryEnv`, in seconds.

    A step's reward says little about a direction (its standard deviation is eight times the most that a direction
    changes it by), so there are many rows and one minibatch a rollout; plain gradient steps average over rollouts,
    where Adam's would wander. Two observations need no hidden layer.
    """
    from stable_baselines3 import PPO  # an extra
    from stable_baselines3.common.vec_env import VecNormalize

    from adv_wrappers.training.sb3.director_networks import director_of
    from adv_wrappers.training.sb3.vec_env import Sb3Adapter

    actor = adv.PAAD(victim())
    game = adv.AdversaryEnv(ManyStates(4096), actor.victim, actor, adv.L2(RADIUS), in_s1)
    ppo = PPO(
        "MlpPolicy",
        VecNormalize(Sb3Adapter(game), norm_reward=False),
        n_steps=8,
        batch_size=8 * 4096,
        n_epochs=4,
        learning_rate=lambda left: 0.2 * left,
        gamma=GAMMA,
        gae_lambda=0.0,
        max_grad_norm=100.0,
        seed=seed,
        device="cpu",
        policy_kwargs={
            "net_arch": [],
            "log_std_init": -0.7,
            "optimizer_class": torch.optim.SGD,
            "optimizer_kwargs": {},
        },
    )
    return adv.Learned(director_of(ppo.learn(50 * 8 * 4096)), actor)
