"""Ringside in gdb: pretty-printers (printers.py) and the command `ring` (ring.py)."""
from ringside_gdb import printers, ring  # noqa: F401

printers.register()
