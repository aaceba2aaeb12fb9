"""Rows and reports: what was measured, where it is kept, and signs that it should not be trusted."""
