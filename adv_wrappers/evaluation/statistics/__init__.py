"""Statistics over returns and rows: intervals, aggregates, claims and curves."""
