import gymnasium as gym
import torch

import adv_wrappers as adv

frames = torch.randint(0, 256, (64, 84, 84, 4), dtype=torch.uint8)
crooked = adv.daylight.rotate(frames, degrees=3.0)
blocky = adv.daylight.jpeg(frames, quality=30)

env = gym.make("adv_wrappers:adv-daylight/Pong-Rotation-v0")  # the paper's setting for Pong, on the frame stack
# the screen itself, at another angle in every episode
env = adv.atari.atari("PongNoFrameskip-v4", raw="rotation:degrees=-5;5")
obs, info = env.reset(seed=0)
print(crooked.shape, blocky.dtype, obs.shape, info["adv_wrappers"])
