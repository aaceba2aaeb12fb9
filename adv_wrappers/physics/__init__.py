"""The physical parameters of simulators, as numbers that can be read, written and restored."""
