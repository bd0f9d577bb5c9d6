"""`ringside train --against one-process`: trains as asked, trains again with one process, and
compares the two. The program has read the options, and says how large the batch is: its default
follows from the number of ranks."""

import argparse
import subprocess
import sys
import tempfile
from typing import List, Tuple

from ringside.command_line import run_command
from ringside.lab.compare import COMMAND
from ringside.library import RingsideError
from ringside.program import find_program

# What says how ranks divide the work, and what a run writes: not for the one process.
VALUES = (
    "-n,--ranks --elastic --restarts --backend --link --algorithm --parallel --mesh "
    "--tensor-parallel --context --token-order --schedule --stages-per-rank --bucket-mb "
    "--device-backend --metrics --trace --trace-steps --report --dump --dump-every --save --save-every"
).split()
FLAGS = ("--sequence-parallel", "--overwrite")
AT_THE_ENDS = ("--dump-every", "0")  # after the first step and the last


def without(
    values: List[str], flags: Tuple[str, ...], words: List[str]
) -> Tuple[argparse.Namespace, List[str]]:
    """These options as they are given, and the other words."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for names in values:
        parser.add_argument(*names.split(","))
    for name in flags:
        parser.add_argument(name, action="store_true")
    return parser.parse_known_args(words)


def train(words: List[str], batch: str) -> int:
    """The words that follow `ringside train`. Returns the exit code."""
    try:
        asked = without(["--against"], (), words)[1]
        own, same = without(VALUES, FLAGS, asked)
        with tempfile.TemporaryDirectory(prefix="ringside-against-") as folder:
            first, again = own.dump or f"{folder}/asked", f"{folder}/one-process"
            if not own.dump:
                asked += ["--dump", first, *AT_THE_ENDS]
            alone = [*same, "-n", "1", "--batch", batch, "--dump", again, *AT_THE_ENDS]
            for title, options in (("", asked), ("\nThe same with one process\n", alone)):
                print(title, end="", flush=True)
                code = subprocess.run([find_program(), "train", *options]).returncode
                if code != 0:
                    return code if code > 0 else 128 - code  # the program has said why
            print("\nHow far the two are apart, after the first step and the last\n", flush=True)
            return run_command(COMMAND, [first, again])
    except KeyboardInterrupt:
        return 130
    except (RingsideError, OSError) as error:
        print(f"ringside: {error}", file=sys.stderr)
        return 1
