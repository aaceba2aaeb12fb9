"""The standing: a table of agents that anyone can join, made of what was measured alone."""
