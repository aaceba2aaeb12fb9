"""Register an adversarial environment under an id, and use it wherever an id is enough.

    python examples/register_and_make_vec.py --episodes 5

The id works with ``gymnasium.make`` and ``gymnasium.make_vec``, takes keyword arguments, and its spec survives JSON.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch

import adv_wrappers as adv

ID = "lab/CartPole-Hostile-v0"


def play(victim: adv.Victim, num_envs: int, episodes: int, seed: int) -> list[float]:
    """Returns of the first ``episodes`` episodes that end, in ``num_envs`` environments side by side."""
    envs = gym.make_vec(ID, num_envs=num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    obs, _ = envs.reset(seed=seed)
    returns: list[float] = []
    score = np.zeros(num_envs)
    while len(returns) < episodes:
        with torch.no_grad():
            actions = victim.act(victim.params(torch.as_tensor(obs, dtype=victim.dtype)))
        obs, reward, terminated, truncated, _ = envs.step(actions.numpy())
        score += reward
        done = terminated | truncated
        returns += score[done].tolist()
        score[done] = 0.0
    envs.close()
    return returns[:episodes]


def main() -> None:
    """Register, make one, make many, play."""
    parser = argparse.ArgumentParser(description="Register an adversarial id and play a vector of it.")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    # innermost first: the observation is attacked, and one action in ten is turned round
    adv.register(ID, env="CartPole-v1", threats=["fgsm:victim=zoo:cartpole-dqn,eps=0.1", "action-flip:p=0.1"])

    env = gym.make(ID)
    assert env.spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    same = np.array_equal(env.reset(seed=arguments.seed)[0], again.reset(seed=arguments.seed)[0])
    print(f"{env}\nrebuilt from JSON, the same first observation: {same}")

    returns = play(adv.load_victim("zoo:cartpole-dqn"), arguments.num_envs, arguments.episodes, arguments.seed)
    print(f"mean return over {len(returns)} episodes: {np.mean(returns):.1f}")


if __name__ == "__main__":
    main()
