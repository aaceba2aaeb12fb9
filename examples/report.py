import torch

import adv_wrappers as adv

net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))  # yours
env = adv.Environment("CartPole-v1")
spaces = env.make_one()
victim = adv.from_module(net, spaces.observation_space, spaces.action_space, "logits")
print(adv.report(victim, env, minutes=5, out="my-report"))
