"""`ringside msccl`: algorithms of Microsoft's MSCCL, as XML, become our JSON, and ours become XML.

What is converted is proved here (lab/lockstep.py), so no program needs to be built; the core proves
it again before it runs.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any, Dict, Optional

from ringside.command_line import (
    Command,
    Option,
    UsageError,
    counted,
    did_you_mean,
    in_range,
    text_beside,
    write_text,
)
from ringside.lab.lockstep import COLLECTIVES, Json, faults_of
from ringside.lab.msccl_reader import MOST_CHUNKS, MOST_RANKS, fail, read_xml
from ringside.lab.msccl_writer import write_xml
from ringside.library import RingsideError

KNOWN = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
KEYS = {
    "schedule": "chunks steps",
    "step": "send receive",
    "send": "to first count stride run input held",
    "receive": "from first count action stride run",
}
NEEDED = {"schedule": 2, "step": 0, "send": 3, "receive": 4}  # as many of them, from the first on


# Our JSON: its form. Whether messages match is for the proof.


def check_keys(value: Any, kind: str, most: Dict[str, int]) -> None:
    """Each key is known, so that a misspelt one is noticed, and each number is an integer of
    -most to most. Some languages write 2 as 2.0, which becomes 2."""
    known, needed = KEYS[kind].split(), KEYS[kind].split()[: NEEDED[kind]]
    shown = json.dumps(value, separators=(",", ":"))
    if not isinstance(value, dict) or not set(needed) <= set(value) <= set(known):
        fail(
            f"expected a {kind} with {', '.join(needed) or 'perhaps ' + ', '.join(known)}"
            + (
                f" and perhaps {', '.join(known[len(needed) :])}"
                if needed and needed != known
                else ""
            )
            + f", not {shown}"
        )
    for key, number in value.items():
        if key in ("steps", "send", "receive", "action"):
            continue
        limit = most.get(key, 10**9)
        if (
            isinstance(number, bool)
            or not isinstance(number, (int, float))
            or not -limit <= number <= limit
            or number != int(number)
        ):
            fail(f"expected an integer up to {limit} as '{key}' in {shown}")
        value[key] = int(number)


def check_schedule(schedule: Any, ranks: int) -> None:
    check_keys(schedule, "schedule", {"chunks": MOST_CHUNKS})
    chunks, steps = schedule["chunks"], schedule["steps"]
    if chunks < 1 or not isinstance(steps, list):
        fail(f"expected 1 to {MOST_CHUNKS} chunks and a list of steps")
    for number, step in enumerate(steps):
        try:
            check_keys(step, "step", {})
            for kind, message in step.items():
                check_keys(message, kind, {"count": chunks, "to": ranks - 1, "from": ranks - 1})
                if message["count"] < 0 or message.get("run", 1) < 1:
                    fail(f"expected a count of 0 or more, and runs of 1 or more, in {message}")
                if message.get("action", "add") not in ("add", "overwrite"):
                    fail(f'the action must be "add" or "overwrite", not {message["action"]!r}')
        except RingsideError as error:
            fail(f"step {number}: {error}")


def check_form(data: Any) -> None:
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("collective"), str)
        or not isinstance(data.get("schedules"), list)
    ):
        fail('expected {"collective": "all_reduce", "schedules": [one for each rank]}')
    if data["collective"] not in KNOWN:
        fail(
            "MSCCL's files are for all_reduce, all_gather, reduce_scatter and all_to_all, not for "
            f"'{data['collective']}'{did_you_mean(data['collective'], KNOWN)}"
        )
    ranks = len(data["schedules"])
    if not 1 <= ranks <= MOST_RANKS:
        fail(f"it has schedules for {ranks} ranks: expected 1 to {MOST_RANKS}")
    for rank, schedule in enumerate(data["schedules"]):
        try:
            check_schedule(schedule, ranks)
        except RingsideError as error:
            fail(f"rank {rank}, {error}")


def read_json(text: bytes, ranks: Optional[int]) -> Json:
    """`ranks` chooses one of several algorithms."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(f"expected XML or JSON, but: {error}")
    if isinstance(data, dict) and "gpus" in data:
        fail(
            "it is an execution plan of MSCCL++: its put and get access the memory of a peer that "
            "takes no step, and signal and wait order them, but in a schedule each message has a "
            "send and a receive. No command converts it"
        )
    cases = data if isinstance(data, list) else [data]
    for each in cases:
        check_form(each)
    sizes = ", ".join(str(len(each["schedules"])) for each in cases)
    if ranks is not None:
        cases = [each for each in cases if len(each["schedules"]) == ranks]
    if len(cases) != 1:
        fail(
            f"expected one algorithm, but it has those for {sizes or 'no'} ranks: choose one with "
            "-n"
        )
    return cases[0]


# The command.


def read_algorithm(file: str, ranks: Optional[int] = None) -> Json:
    """A file of XML or of JSON: XML begins with '<', and JSON never does."""
    try:
        text = Path(file).read_bytes()
    except OSError as error:
        fail(f"cannot read the algorithm {file}: {error.strerror}")
    try:
        if text.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"<"):
            return read_xml(text, Path(file).stem)
        return read_json(text, ranks)
    except RingsideError as error:
        shown = re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", str(error))  # no control characters of a file
        fail(f"the algorithm {file} cannot be used: {shown}")


def run(args: argparse.Namespace) -> None:
    if not args.json and not args.xml:
        raise UsageError("name the file to write: --json FILE or --xml FILE")
    algorithm = read_algorithm(args.file, args.ranks)
    collective, schedules = algorithm["collective"], algorithm["schedules"]
    faults = faults_of(algorithm)
    if args.json:  # a wrong one, too: the program runs only right ones, but draws any
        write_text(args.json, json.dumps(algorithm) + "\n")
    if faults:
        draws = f"\n`ringside step --algorithm {args.json}` draws it" if args.json else ""
        fail(f"{args.file} does not do what {collective} promises: {faults[0]}{draws}")
    if args.xml:
        name = algorithm.get("algorithm")
        try:
            xml = write_xml(algorithm, name if isinstance(name, str) else Path(args.file).stem)
        except RingsideError as error:
            fail(f"the algorithm {args.file} cannot be written for MSCCL: {error}")
        write_text(args.xml, xml)
    print(
        f"{collective} on {counted(len(schedules), 'rank')}: "
        f"{counted(len(schedules[0]['steps']), 'step')}, the buffer in "
        f"{counted(schedules[0]['chunks'], 'chunk')}. Proved: {COLLECTIVES[collective].promise}.",
        file=text_beside("-" if "-" in (args.json, args.xml) else None),
    )


COMMAND = Command(
    "msccl",
    "Convert an algorithm of MSCCL (XML) to the JSON of --algorithm, or back",
    run,
    [
        Option("file FILE", "An algorithm: MSCCL's my.xml, or ours, my.json", required=True),
        Option(
            "--json FILE",
            "Write it as the JSON that --algorithm reads; - writes it to standard output",
        ),
        Option(
            "--xml FILE",
            "Write it as XML for MSCCL's runtime, which takes it on GPUs; - "
            "writes it to standard output",
        ),
        Option(
            "-n,--ranks N",
            "Of a file with several algorithms, the one for N ranks",
            in_range(1, MOST_RANKS),
        ),
    ],
    notes="""
What is converted is proved first. The execution plans of MSCCL++, which are
JSON, cannot be converted: their put and get access the memory of a peer that
takes no step, and in a schedule each message has a send and a receive.

Examples:
  ringside step ring_all_reduce -n 4 --json ring.json
      the ring of 4 ranks as JSON
  ringside msccl ring.json --xml ring.xml
      the ring for MSCCL
  ringside msccl ring.xml --json again.json
      an algorithm of MSCCL as a file that --algorithm reads
""",
)
