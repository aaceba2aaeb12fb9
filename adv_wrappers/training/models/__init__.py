"""Networks that are trained without Stable-Baselines3: critics, models of the dynamics, imitations."""
