"""`ringside msccl`: algorithms of Microsoft's MSCCL, as XML, become our JSON, and ours become XML.

What is converted is proved here (lab/lockstep.py), so no program needs to be built; the core proves
it again before it runs.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any, Optional

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
from ringside.lab.msccl_reader import COLLECTIVE_OF, MOST_CHUNKS, MOST_RANKS, fail, read_xml
from ringside.lab.msccl_writer import write_xml
from ringside.library import RingsideError
from ringside.planning.json_fields import shown

KEYS = {  # [kind] the keys that it has, and those that it may have
    "schedule": (("chunks", "steps"), ()),
    "step": ((), ("send", "receive")),
    "send": (("to", "first", "count"), ("stride", "run", "input", "held")),
    "receive": (("from", "first", "count", "action"), ("stride", "run")),
}
ANY = 10**9


# Our JSON: its form. Whether messages match is for the proof.


def check_keys(value: Any, kind: str, where: str) -> None:
    """Each key is known, so that a misspelt one is noticed."""
    needed, more = KEYS[kind]
    if not isinstance(value, dict) or not set(needed) <= set(value) <= {*needed, *more}:
        keys = " and perhaps ".join(filter(None, [", ".join(needed), ", ".join(more)]))
        fail(f"{where}: expected a {kind} with {keys}, not {shown(value)}")


def check_number(value: Json, key: str, least: int, most: int, where: str) -> None:
    """It becomes an integer: some languages write 2 as 2.0."""
    seen = value.get(key, least)
    is_number = isinstance(seen, (int, float)) and not isinstance(seen, bool)
    if not is_number or not least <= seen <= most or seen != int(seen):
        fail(f"{where}: expected an integer from {least} to {most} as '{key}' in {shown(value)}")
    if key in value:
        value[key] = int(seen)


def check_schedule(schedule: Any, ranks: int, rank: int) -> None:
    check_keys(schedule, "schedule", f"rank {rank}")
    check_number(schedule, "chunks", 1, MOST_CHUNKS, f"rank {rank}")
    if not isinstance(schedule["steps"], list):
        fail(f"rank {rank}: expected a list of steps, not {shown(schedule['steps'])}")
    limits = {"to": (0, ranks - 1), "from": (0, ranks - 1), "count": (0, schedule["chunks"])}
    limits["run"] = (1, ANY)
    for number, step in enumerate(schedule["steps"]):
        where = f"rank {rank}, step {number}"
        check_keys(step, "step", where)
        for kind, message in step.items():
            check_keys(message, kind, where)
            for key in message:
                if key != "action":
                    check_number(message, key, *limits.get(key, (-ANY, ANY)), where)
            if message.get("action", "add") not in ("add", "overwrite"):
                fail(f'{where}: the action must be "add" or "overwrite", not {message["action"]!r}')


def check_form(data: Any) -> None:
    """Raises RingsideError for what is no algorithm of MSCCL's collectives, with the place."""
    schedules = data.get("schedules") if isinstance(data, dict) else None
    if not isinstance(schedules, list) or not isinstance(data.get("collective"), str):
        fail('expected {"collective": "all_reduce", "schedules": [one for each rank]}')
    known = list(dict.fromkeys(COLLECTIVE_OF.values()))
    if data["collective"] not in known:
        fail(
            f"MSCCL's files are for {', '.join(known)}, not for '{data['collective']}'"
            f"{did_you_mean(data['collective'], known)}"
        )
    if not 1 <= len(schedules) <= MOST_RANKS:
        fail(f"it has schedules for {len(schedules)} ranks: expected 1 to {MOST_RANKS}")
    for rank, schedule in enumerate(schedules):
        check_schedule(schedule, len(schedules), rank)


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
    sizes = [len(each["schedules"]) for each in cases]
    chosen = [each for each, size in zip(cases, sizes) if ranks in (None, size)]
    if len(chosen) != 1:
        found = ", ".join(map(str, sizes)) or "no"
        fail(f"expected one algorithm, but it has those for {found} ranks: choose one with -n")
    return chosen[0]


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
    steps, chunks = len(schedules[0]["steps"]), schedules[0]["chunks"]
    print(
        f"{collective} on {counted(len(schedules), 'rank')}: {counted(steps, 'step')}, the buffer "
        f"in {counted(chunks, 'chunk')}. Proved: {COLLECTIVES[collective].promise}.",
        file=text_beside("-" if "-" in (args.json, args.xml) else None),
    )


NOTES = """
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
"""

OPTIONS = [
    Option("file FILE", "An algorithm: MSCCL's my.xml, or ours, my.json", required=True),
    Option(
        "--json FILE", "Write it as the JSON that --algorithm reads; - writes it to standard output"
    ),
    Option(
        "--xml FILE",
        "Write it as XML for MSCCL's runtime, which takes it on GPUs; - writes it to standard output",
    ),
    Option(
        "-n,--ranks N",
        "Of a file with several algorithms, the one for N ranks",
        in_range(1, MOST_RANKS),
    ),
]

COMMAND = Command(
    "msccl",
    "Convert an algorithm of MSCCL (XML) to the JSON of --algorithm, or back",
    run,
    OPTIONS,
    NOTES,
)
