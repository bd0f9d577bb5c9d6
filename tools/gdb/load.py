"""Loads Ringside's pretty-printers and the command `ring` into gdb: source tools/gdb/load.py

gdb does so by itself for a program beside which CMake has written NAME-gdb.py, if the build folder
is in gdb's auto-load safe-path. tools/debug and the dev container see to it (docs/debugging.md).
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ringside_gdb  # noqa: E402,F401
