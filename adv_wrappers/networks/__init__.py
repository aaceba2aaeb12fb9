"""Networks: one description of a network, as layers in a row, from which gradients, bounds and cards are made."""
