"""Train an adversary with Stable-Baselines3 by hand, then deploy it as an ordinary threat.

    python examples/train_director.py --out adversary

``adv.train_adversary`` does this and more in one call: checkpoints on separate seeds, a run that goes on after a kill.
Here are the parts, for those who want another algorithm, another reward or a curriculum.
"""

from __future__ import annotations

import argparse
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

import adv_wrappers as adv
from adv_wrappers.training.sb3.director_networks import director_of


def fall(reward: Any, *, terminated: Any, **rest: object) -> Any:
    """What the victim loses, and a prize for its fall; arrays of one number a row."""
    return 10.0 * terminated - reward


def main() -> None:
    """Train, deploy, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--victim", default="zoo:cartpole-a2c")
    parser.add_argument("--eps", type=float, default=0.1, help="in raw observations")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--out", help="folder for the adversary")
    arguments = parser.parse_args()

    victim, within = adv.load_victim(arguments.victim), adv.Linf(arguments.eps)
    actor = adv.PAAD(victim)

    # The victim sees raw observations: observations are normalised for the adversary only, outside of its environment.
    game: Any = adv.AdversaryEnv(make_vec_env(arguments.env, 16, seed=0), victim, actor, within, reward=fall)
    env = VecNormalize(VecMonitor(game), gamma=0.99)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=128, learning_rate=1e-3, seed=0, device="cpu")
    model.learn(arguments.steps)

    adversary = adv.Learned(director_of(model), actor)
    threats = [adv.ThreatModel("observation", how, within) for how in (adv.Noise(), adv.MaxDiff(victim), adversary)]
    print(adv.evaluate(victim, arguments.env, threats, arguments.episodes))
    if arguments.out:
        saved = adversary.save(arguments.out, within)
        print(f"saved; evaluate it again as learned:card={saved.card}")


if __name__ == "__main__":
    main()
