"""`python3 FOLDER`, where this file is in FOLDER, is `python3 -m ringside`: the program `ringside`
runs its Python commands so, and needs no PYTHONPATH."""

import sys

from ringside.__main__ import main

sys.exit(main(sys.argv[1:]))
