"""The engine: threats are values, and one engine applies them to batches of rows."""
