"""Networks: one description of a network, a graph of layers, from which gradients, bounds and cards are made."""
