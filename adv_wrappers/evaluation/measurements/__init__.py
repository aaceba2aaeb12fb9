"""What is measured while episodes are played: distances, metrics and changed actions."""
