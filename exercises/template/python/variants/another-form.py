"""FILL IN: the same answer in another form. Three such files or more, or patches of the reference."""


def new_exercise(size, rank):
    return rank + 1 if rank + 1 < size else 0
