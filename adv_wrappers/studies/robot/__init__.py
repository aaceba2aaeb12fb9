"""What a robot's policy survives: a table of disturbances, a study that bisects each, and a page."""
