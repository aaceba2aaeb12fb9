"""What networks compute, one class for each operation."""
