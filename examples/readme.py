import gymnasium as gym

import adv_wrappers as adv

victim = adv.load_victim("zoo:hopper-ppo")  # or adv.from_module(net, ...), or adv.from_sb3(model)

env = gym.make("Hopper-v5")
env = adv.PerturbObservation(env, adv.MaxDiff(victim, steps=10), within=adv.Linf(0.1, scale="victim"))
env = adv.PerturbAction(env, adv.ActionNoise("uniform"), within=adv.Linf(0.1), when=adv.Bernoulli(0.5))
obs, info = env.reset(seed=0)
print(info["adv_wrappers"])  # what each layer did at this step

threats = ["noise:eps=0.1,scale=victim", "max-diff:eps=0.1,scale=victim"]
report = adv.evaluate(victim, "Hopper-v5", threats, episodes=4, seed=0)
print(report)  # a table; to_dict(), to_json(path), to_dataframe() and plot(path) have the rest
