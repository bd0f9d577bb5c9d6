"""FILL IN: the mistake of wrong/a-mistake.hpp in Python. That file says which case fails, and with which sentence."""


def new_exercise(size, rank):
    return rank + 1
