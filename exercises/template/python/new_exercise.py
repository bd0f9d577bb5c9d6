"""FILL IN: what one writes here, in a sentence."""


def new_exercise(size, rank):
    """FILL IN: what it gets and what it returns, with shapes and units."""
    return (rank + 1) % size
