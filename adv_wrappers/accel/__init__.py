"""Accelerators: CUDA graphs, transfers between host and device, the Triton loader."""
