"""What stands on Stable-Baselines3: its vectors, algorithms, networks and callbacks."""
