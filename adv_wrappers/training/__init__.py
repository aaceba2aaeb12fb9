"""Training: critics, adversaries and hardened agents."""
