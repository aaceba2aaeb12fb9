"""Triton kernels of the daylight transforms: twins of the torch functions, equal to them to the bit."""
