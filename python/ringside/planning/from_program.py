"""What the program `ringside` computes for the planner: schedules of files, and algorithms."""

import json
import re
from typing import Any, Sequence

from ringside.library import RingsideError
from ringside.program import run


def figures_of(words: Sequence[str]) -> Any:
    """What a command writes with --json. Raises RingsideError with its sentence."""
    done = run([*words, "--json", "-"])
    if done.returncode != 0:
        raise RingsideError(re.sub(r"^ringside: |\nTry: .*", "", done.stderr.strip()))
    return json.loads(done.stdout)
