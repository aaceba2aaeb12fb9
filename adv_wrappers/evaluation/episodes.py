"""evaluate."""
def evaluate(*a, **k):
    raise NotImplementedError
