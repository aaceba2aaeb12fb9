"""Train an agent of the zoo, and write it as a card.

Agents are trained with Stable-Baselines3, those of Atari with the PPO of ``ppo_atari.py``, and hardened ones with
``adv.train_agent``.

    python examples/train_victim.py hopper-ppo --out adv_wrappers/zoo --seed 0

A card is a folder with ``card.json`` (environment, network, observation rule, action rule, scores) and
``weights.safetensors``; ``adv_wrappers.load_victim("card:FOLDER")`` reads it. The best checkpoint is chosen on one
set of evaluation seeds and scored on another, so that the figure in the card is not the luckiest of many.

Atari takes hours. Its training is saved in ``OUT/NAME.checkpoint.safetensors`` after every update (that of a hardened
agent, and of SAC after every evaluation, in the folder ``OUT/NAME.training``), and the same command with ``--resume``
goes on from there however it ended; SAC with its replay buffer, and with new episodes:

    python examples/train_victim.py bankheist-ppo --out zoo --resume
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ppo_atari import Agent, ppo
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import adv_wrappers as adv
from adv_wrappers.core.training_schedules import LinearSchedule, SmoothSchedule
from adv_wrappers.environments.dmc import dmc
from adv_wrappers.networks.policy_layers import ActionValue, Normalize
from adv_wrappers.training.defences.radial import Radial

TANH = {"activation_fn": torch.nn.Tanh, "net_arch": [64, 64]}
MUJOCO: dict[str, Any] = {
    "algorithm": PPO, "num_envs": 8, "normalize": True, "anneal": True,
    "learning_rate": 3e-4, "n_steps": 256, "batch_size": 64, "n_epochs": 10, "gamma": 0.99, "gae_lambda": 0.95,
    "clip_range": 0.2, "ent_coef": 0.0, "policy_kwargs": TANH | {"log_std_init": -0.5},
}  # fmt: skip
ATARI: dict[str, Any] = {  # that of Huang et al. 2022, "The 37 implementation details of PPO"
    "steps": 3_000_000, "checks": 30, "num_envs": 8, "horizon": 128, "minibatches": 4, "epochs": 4, "rate": 2.5e-4,
    "clip": 0.1, "entropy": 0.01, "clip_rewards": True, "terminal_on_life_loss": True,
}  # fmt: skip

# Of adv.train_agent: an agent goes on by RADIAL-PPO. eps rises nearly as a power, since bounds through a network that
# was not trained for them are up to 10^4 times the gap between logits. Equation 6 alone made Pong's policy nearly
# uniform, so the agent is imitated besides
RADIAL_ATARI: dict[str, Any] = {
    "eps": 1, "num_envs": 16, "checks": 10, "episodes": 3,
    "robust": Radial(
        0.5, SmoothSchedule(0.0, 1.0, end=0.7, bend=0.9, exponent=8.0), "log", imitate=2.0, sharpness=2.0
    ),
    "settings": {
        "n_steps": 128, "n_epochs": 4, "batch_size": 128, "clip_range": 0.1, "ent_coef": 0.0,
        "learning_rate": LinearSchedule(1e-4, 5e-4),  # of the share of the training that is left
    },
}  # fmt: skip


def control(task: str, action_repeat: int, steps: int, width: int = 256) -> dict[str, Any]:
    """The recipe of a task of the DeepMind Control Suite; a step is a decision of ``action_repeat`` control steps."""
    return {
        "env": f"dm_control/{task}-v0",
        "env_kwargs": {"action_repeat": action_repeat},
        "steps": steps,
        "algorithm": SAC,
        "num_envs": 1,
        "learning_rate": 3e-4,
        "batch_size": 256,
        "buffer_size": 300_000,
        "learning_starts": 2000,
        "gamma": 0.99,
        "tau": 0.005,
        "policy_kwargs": {"net_arch": [width, width]},
    }


RECIPES: dict[str, dict[str, Any]] = {
    "cartpole-dqn": {
        "env": "CartPole-v1", "algorithm": DQN, "num_envs": 1, "steps": 50_000, "learning_rate": 2.3e-3,
        "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "gamma": 0.99,
        "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [64, 64]},
    },
    "cartpole-a2c": {
        "env": "CartPole-v1", "algorithm": A2C, "num_envs": 8, "steps": 500_000, "anneal": True,
        "learning_rate": 7e-4, "n_steps": 5, "gamma": 0.99, "ent_coef": 0.0, "policy_kwargs": TANH,
    },
    "cartpole-ppo": {
        "env": "CartPole-v1", "algorithm": PPO, "num_envs": 8, "steps": 100_000, "anneal": True,
        "learning_rate": 1e-3, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
        "clip_range": 0.2, "ent_coef": 0.0, "policy_kwargs": TANH,
    },
    "mountaincar-dqn": {
        "env": "MountainCar-v0", "algorithm": DQN, "num_envs": 1, "steps": 150_000, "learning_rate": 4e-3,
        "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000, "gamma": 0.98,
        "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8, "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07, "policy_kwargs": {"net_arch": [256, 256]},
    },
    "cartpole-radial-dqn": {  # of adv.train_agent: hardened by RADIAL-DQN
        "env": "CartPole-v1", "eps": 0.05, "robust": "radial", "algorithm": "dqn", "num_envs": 8, "steps": 160_000,
        "checks": 32, "episodes": 20,
    },
    "cartpole-radial-ppo": {  # of adv.train_agent: hardened by RADIAL-PPO
        "env": "CartPole-v1", "eps": 0.1, "robust": Radial(0.5, form="ratio"), "num_envs": 8, "steps": 200_000,
        "checks": 10, "episodes": 10, "rewards": "raw", "observations": "raw",
        "settings": {
            "n_steps": 128, "n_epochs": 10, "batch_size": 256, "learning_rate": LinearSchedule(0.0, 1e-3),
            "gamma": 0.98, "gae_lambda": 0.8, "ent_coef": 0.0,
        },
    },
    "hopper-ppo": {"env": "Hopper-v5", "steps": 2_000_000} | MUJOCO,
    "walker2d-ppo": {"env": "Walker2d-v5", "steps": 3_000_000} | MUJOCO,
    "cartpole-balance-sac": control("cartpole-balance", 4, 20_000),
    "cartpole-swingup-sac": control("cartpole-swingup", 4, 60_000),
    "fish-upright-sac": control("fish-upright", 4, 60_000),
    "walker-stand-sac": control("walker-stand", 2, 100_000),
    "walker-walk-sac": control("walker-walk", 2, 200_000),
    "humanoid-stand-sac": control("humanoid-stand", 2, 3_000_000, 1024),
    "humanoid-walk-sac": control("humanoid-walk", 2, 3_000_000, 1024),
    "pong-ppo": {
        "env": "PongNoFrameskip-v4", "rom": "pong", "steps": 2_700_000, "checks": 9, "num_envs": 16, "horizon": 128,
        "minibatches": 8, "epochs": 4, "rate": 4e-4, "entropy": 0.01,
    },
    "pong-radial-ppo": {
        "env": "PongNoFrameskip-v4", "victim": "zoo:pong-ppo", "steps": 700_000, "rewards": "raw",
    } | RADIAL_ATARI,
    "bankheist-ppo": {"env": "BankHeistNoFrameskip-v4", "rom": "bank_heist"} | ATARI,
    "roadrunner-ppo": {"env": "RoadRunnerNoFrameskip-v4", "rom": "road_runner"} | ATARI,
    "roadrunner-radial-ppo": {
        "env": "RoadRunnerNoFrameskip-v4", "victim": "zoo:roadrunner-ppo", "steps": 500_000, "rewards": "clipped",
    } | RADIAL_ATARI,
    "bankheist-radial-ppo": {
        "env": "BankHeistNoFrameskip-v4", "victim": "zoo:bankheist-ppo", "steps": 300_000, "rewards": "clipped",
    } | RADIAL_ATARI,
}  # fmt: skip
CHOOSE, SCORE = 1_000_000, 2_000_000  # disjoint blocks of evaluation seeds


Act = Callable[[np.ndarray], Any]


def make_env(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """The environment of a recipe."""
    make: Callable[..., gym.Env[Any, Any]] = gym.make
    if "NoFrameskip" in env_id:
        make = adv.atari.atari
    elif env_id.startswith("dm_control/"):
        make = dmc
    return make(env_id, **kwargs)


def play(act: Act, recipe: dict[str, Any], episodes: int, seed: int) -> np.ndarray:
    """Return of each of ``episodes`` episodes of the agent ``act(observation)``, as a float64 array ``[episodes]``."""
    env, returns = make_env(recipe["env"], **recipe.get("env_kwargs", {})), np.zeros(episodes)
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        done = False
        while not done:
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            returns[episode] += float(reward)
            done = terminated or truncated
    return returns


def training_of(recipe: dict[str, Any]) -> dict[str, Any]:
    """How an agent learned, for its card, in the words of ``adv.train_agent``, which goes on in the same way."""
    algorithm, usual = recipe.get("algorithm", PPO), "raw"
    if "robust" in recipe or recipe.get("normalize"):
        usual = "normalized"
    elif recipe.get("clip_rewards"):
        usual = "clipped"
    gamma = recipe.get("settings", recipe).get("gamma", 0.99)
    name = algorithm if isinstance(algorithm, str) else algorithm.__name__.lower()
    found = {"algorithm": name, "rewards": recipe.get("rewards", usual), "settings": {"gamma": gamma}}
    if "robust" in recipe:
        kind = recipe["robust"] if isinstance(recipe["robust"], str) else recipe["robust"].name
        found["robust"] = {"type": kind, "within": adv.Linf(recipe["eps"]).to_dict()}
    return found


def save(folder: Path, name: str, victim: adv.Victim, returns: np.ndarray, steps: int, seed: int, half: bool) -> None:
    """Write the card of a victim of a recipe, ``half`` of the size where its weights are numbers of float16."""
    scores = {"mean": round(float(returns.mean()), 1), "std": round(float(returns.std()), 1)}
    print(f"  best so far; on the scoring seeds {scores['mean']} +- {scores['std']}", flush=True)
    adv.save_card(
        folder / name,
        victim,
        environment=(RECIPES[name]["env"], RECIPES[name].get("env_kwargs", {})),
        name=name,
        training=training_of(RECIPES[name]),
        measured=[{"attack": "none", "eps": 0.0, "episodes": len(returns), **scores, "steps": steps, "seed": seed}],
        source={"script": "examples/train_victim.py", "recipe": name},
        licence="MIT",
        stored=torch.float16 if half else None,
    )


def rounded(module: torch.nn.Module) -> torch.nn.Module:
    """A copy whose weights are numbers of float16."""
    found: Any = copy.deepcopy(module).half().float()
    return found.to(memory_format=torch.contiguous_format)  # type: ignore[no-any-return]


class KeepBest:
    """Every ``every`` steps, plays on the choosing seeds; writes the card when the mean return is a new best.

    Args:
        episodes: number of episodes to choose by.
        scored: number of episodes behind the score in the card.
        act: the agent as it is now, by the mode.
        victim: the agent as a victim, and whether its weights are numbers of float16.

    ``notes`` is all that it remembers, for a checkpoint: the number of checks, the best mean return, and the minutes.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        every: int,
        seed: int,
        episodes: int,
        scored: int,
        act: Act,
        victim: Callable[[], tuple[adv.Victim, bool]],
    ) -> None:
        self.name, self.folder, self.every, self.seed = name, folder, every, seed
        self.episodes, self.scored, self.act, self.victim = episodes, scored, act, victim
        self.notes: dict[str, Any] = {"checks": 0, "best": None, "minutes": 0.0}
        self.clock = time.monotonic()

    def tell(self, step: int, score: float = np.nan) -> None:
        """``step`` steps are done; ``score`` is the return in training, if it is known."""
        self.notes["minutes"] += (time.monotonic() - self.clock) / 60
        self.clock = time.monotonic()
        if step >= self.every * (self.notes["checks"] + 1):
            self.notes["checks"] += 1
            self.check(step, score)

    def check(self, step: int, score: float = np.nan) -> None:
        """Play, compare and, on a new best, score on the other seeds and write."""
        chosen = play(self.act, RECIPES[self.name], self.episodes, CHOOSE)
        minutes, best = self.notes["minutes"] + (time.monotonic() - self.clock) / 60, self.notes["best"]
        training = "" if np.isnan(score) else f", {score:.1f} in training"
        print(f"{self.name} {step} {chosen.mean():.1f} +- {chosen.std():.1f}{training} ({minutes:.1f} min)", flush=True)
        if best is None or chosen.mean() >= best:  # of equals, the longest trained
            self.notes["best"] = float(chosen.mean())
            victim, half = self.victim()  # played as it is stored, which may be rounded
            returns = play(lambda obs: victim.act_on(obs[None])[0], RECIPES[self.name], self.scored, SCORE)
            save(self.folder, self.name, victim, returns, step, self.seed, half)


class Teller(BaseCallback):
    """Tells :class:`KeepBest` of SB3's steps, and saves the training after each of its checks if there is a folder."""

    def __init__(self, keep: KeepBest, folder: Path | None = None) -> None:
        super().__init__()
        self.keep, self.folder = keep, folder

    def _on_step(self) -> bool:
        before = self.keep.notes["checks"]
        self.keep.tell(self.num_timesteps)
        if self.folder is not None and self.keep.notes["checks"] > before:
            save_off_policy(self.model, self.keep.notes, self.folder)
        return True


def save_off_policy(model: Any, notes: dict[str, Any], folder: Path) -> None:
    """Save an agent with its replay buffer; ``notes.json``, which names both, is written last and all at once."""
    names = {"model": f"model-{model.num_timesteps}.zip", "replay": f"replay-{model.num_timesteps}.pkl"}
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / names["model"])
    model.save_replay_buffer(folder / names["replay"])
    (folder / "notes.tmp").write_text(json.dumps({**names, "notes": notes}))
    os.replace(folder / "notes.tmp", folder / "notes.json")
    for path in folder.iterdir():
        if path.name not in (*names.values(), "notes.json"):
            path.unlink()


def sb3_victim(model: BaseAlgorithm, normalizer: VecNormalize | None) -> tuple[adv.Victim, bool]:
    """An SB3 agent as a victim; of SAC the mean's path, and of its two critics the first, in float16."""
    if not isinstance(model, SAC):
        return adv.from_sb3(model, vec_normalize=normalizer), False
    policy: Any = model.policy
    net = torch.nn.Sequential(*policy.actor.latent_pi, policy.actor.mu, torch.nn.Tanh())
    critic = ActionValue(torch.nn.Identity(), torch.nn.Sequential(*policy.critic.q_networks[0]))
    spaces = model.observation_space, model.action_space
    return adv.from_module(rounded(net), *spaces, "mean", critic=rounded(critic)), True


def atari_victim(agent: Agent) -> tuple[adv.Victim, bool]:
    """An Atari agent as a victim, in float16."""
    frames = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    pixels = Normalize(torch.tensor(0.0), torch.tensor(255.0))
    trunk, *heads = map(rounded, (agent.trunk, agent.policy, agent.value))
    policy, value = (torch.nn.Sequential(pixels, trunk, head) for head in heads)
    actions = gym.spaces.Discrete(agent.policy.out_features)
    return adv.from_module(policy, frames, actions, "logits", value=value, scale=torch.full(frames.shape, 255.0)), True


def main() -> None:
    """Train one recipe and write its card."""
    parser = argparse.ArgumentParser(description="Train an agent of the zoo and write it as a card.")
    parser.add_argument("name", choices=sorted(RECIPES))
    parser.add_argument("--out", type=Path, default=Path("zoo"), help="the card goes to OUT/NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="override the recipe's number of environment steps")
    parser.add_argument("--episodes", type=int, help="episodes of each choosing evaluation, 10 unless a recipe has it")
    parser.add_argument("--scored", type=int, default=30, help="episodes behind the score in the card")
    parser.add_argument("--resume", action="store_true", help="Atari, SAC: go on from the last checkpoint, if any")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    name, recipe = arguments.name, dict(RECIPES[arguments.name])
    atari = "NoFrameskip" in recipe["env"]
    checkpoint = arguments.out / f"{name}.{'checkpoint.safetensors' if 'rom' in recipe else 'training'}"
    resumable = atari or recipe.get("algorithm") is SAC
    if arguments.resume and not resumable:
        parser.error(f"--resume is for Atari and SAC, and {name} is trained in minutes")
    if resumable and checkpoint.exists() and not arguments.resume:
        parser.error(f"{checkpoint} holds an earlier training: give --resume to go on from it, or remove it")
    steps = arguments.steps or recipe["steps"]
    episodes = arguments.episodes or recipe.get("episodes", 10)
    if "robust" in recipe:
        recipe |= {"steps": steps, "episodes": episodes, "out": checkpoint if atari else None}
        return train_robust(arguments, recipe)
    every = max(steps // recipe.pop("checks", 25), 1)
    del recipe["steps"]
    best = functools.partial(KeepBest, name, arguments.out, every, arguments.seed, episodes, arguments.scored)
    if "rom" in recipe:
        keep = train_atari(recipe, steps, arguments.seed, best, checkpoint)
    else:
        keep = train_sb3(recipe, steps, arguments.seed, best, checkpoint if resumable else None)
    keep.check(steps)


def train_robust(arguments: argparse.Namespace, recipe: dict[str, Any]) -> None:
    """Train with :func:`adv_wrappers.train_agent`, which chooses the checkpoint, and write the card."""
    name, seed = arguments.name, arguments.seed
    hardened = adv.train_agent(
        **recipe,
        seed=seed,
        progress=lambda steps, clean, attacked: print(f"{name} {steps} {clean:.1f}", flush=True),
    )
    victim, images = hardened.victim, recipe["out"] is not None
    if images:  # their weights are stored in float16
        victim = adv.load_victim(f"card:{recipe['out']}")
        with torch.no_grad():
            for parameter in (parameter for module in victim.modules() for parameter in module.parameters()):
                parameter.copy_(parameter.half())
    returns = play(lambda obs: victim.act_on(obs[None])[0], recipe, arguments.scored, SCORE)
    print(f"  {hardened.protocol}", flush=True)
    save(arguments.out, name, victim, returns, hardened.record[hardened.best]["steps"], seed, images)


def train_atari(
    recipe: dict[str, Any], steps: int, seed: int, best: Callable[..., KeepBest], checkpoint: Path
) -> KeepBest:
    """Train with the PPO of ``ppo_atari.py``, from the checkpoint if there is one."""
    torch.manual_seed(seed)
    actions = adv.atari.atari(recipe.pop("env")).action_space
    assert isinstance(actions, gym.spaces.Discrete)
    agent = Agent(int(actions.n))

    def act(obs: np.ndarray) -> int:
        with torch.no_grad():
            return int(agent(torch.from_numpy(obs)[None])[0].argmax())

    keep = best(act=act, victim=lambda: atari_victim(agent))
    ppo(recipe.pop("rom"), agent, steps, seed=seed, tell=keep.tell, checkpoint=checkpoint, notes=keep.notes, **recipe)
    return keep


def train_sb3(
    recipe: dict[str, Any], steps: int, seed: int, best: Callable[..., KeepBest], checkpoint: Path | None = None
) -> KeepBest:
    """Train with Stable-Baselines3, SAC from the folder ``checkpoint`` if there is a training in it."""
    algorithm = recipe.pop("algorithm")
    made = functools.partial(make_env, recipe.pop("env"), **recipe.pop("env_kwargs", {}))
    env: Any = make_vec_env(made, n_envs=recipe.pop("num_envs"), seed=seed)
    normalizer = VecNormalize(env, gamma=recipe["gamma"]) if recipe.pop("normalize", False) else None
    if recipe.pop("anneal", False):
        rate = recipe["learning_rate"]
        recipe["learning_rate"] = lambda remaining: remaining * rate
    saved = None
    if checkpoint is not None and (checkpoint / "notes.json").exists():
        saved = json.loads((checkpoint / "notes.json").read_text())
        model = algorithm.load(checkpoint / saved["model"], env, device="cpu")
        model.load_replay_buffer(checkpoint / saved["replay"])
    else:
        model = algorithm("MlpPolicy", normalizer or env, seed=seed, device="cpu", **recipe)

    def act(obs: np.ndarray) -> Any:
        return model.predict(normalizer.normalize_obs(obs) if normalizer else obs, deterministic=True)[0]

    keep = best(act=act, victim=lambda: sb3_victim(model, normalizer))
    if saved is not None:
        keep.notes.update(saved["notes"])
    left = steps - model.num_timesteps
    if left > 0:
        model.learn(left, callback=Teller(keep, checkpoint), reset_num_timesteps=saved is None)
    return keep


if __name__ == "__main__":
    main()
