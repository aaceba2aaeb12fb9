"""Networks: one description of a network, from which gradients, bounds and cards are made."""
