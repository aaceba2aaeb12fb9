import adv_wrappers as adv

found = adv.certify("zoo:cartpole-radial-ppo", "CartPole-v1", eps=0.02, episodes=2, budget_s=1)
print(found.clean, found.lower, found.gwc, found.acr)  # lower: no attack leaves less; gwc is an estimate
