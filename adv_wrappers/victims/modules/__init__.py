"""Victims from torch modules and functions: what one takes, returns and remembers is found out by calling it."""
