"""The engine: it applies one threat to the rows of a batch, step by step."""
