"""`ringside msccl`: algorithms of Microsoft's MSCCL, as XML, become our JSON, and ours become XML.

What is converted is proved here (lab/lockstep.py), so no program needs to be built; the core proves
it again before it runs.
"""

import argparse
import json
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
    visible,
    write_text,
)
from ringside.lab.lockstep import COLLECTIVES, Json, faults_of
from ringside.lab.msccl_reader import COLLECTIVE_OF, MOST_CHUNKS, MOST_RANKS, fail, read_xml
from ringside.lab.msccl_writer import write_xml
from ringside.library import RingsideError
from ringside.planning.json_fields import shown

NUMBER, COUNT = range(-(10**9), 10**9 + 1), range(MOST_CHUNKS + 1)
CHUNKS = {"first": NUMBER, "count": COUNT, "stride?": NUMBER, "run?": range(1, 10**9 + 1)}
FORM = {  # of our JSON, for each rank; a key with a question mark may be left out
    "chunks": range(1, MOST_CHUNKS + 1),
    "steps": [
        {
            "send?": {"to": NUMBER, **CHUNKS, "input?": NUMBER, "held?": NUMBER},
            "receive?": {"from": NUMBER, **CHUNKS, "action": {"add", "overwrite"}},
        }
    ],
}


def checked(value: Any, form: Any, place: str) -> Any:
    """A value of that form. A number becomes an integer, for some languages write 2 as 2.0.
    Whether messages match, and name ranks and chunks that there are, is for the proof."""
    if isinstance(form, list):
        expected = "a list"
        if isinstance(value, list):
            return [checked(each, form[0], f"{place}[{i}]") for i, each in enumerate(value)]
    elif isinstance(form, dict):
        expected = f"an object with {', '.join(form)}"
        known = {key.rstrip("?"): inner for key, inner in form.items()}
        needed = known.keys() & form.keys()
        if isinstance(value, dict) and needed <= value.keys() <= known.keys():
            return {key: checked(each, known[key], f"{place}.{key}") for key, each in value.items()}
    elif isinstance(form, range):
        expected = f"an integer from {form[0]} to {form[-1]}"
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        if type(whole) is int and whole in form:
            return whole
    else:
        expected = " or ".join(sorted(form))
        if isinstance(value, str) and value in form:
            return value
    fail(f"{place} is {shown(value)}, but {expected} is expected")


def check_form(data: Any) -> None:
    """Raises RingsideError for what is no algorithm of MSCCL's collectives, with the place."""
    schedules = data.get("schedules") if isinstance(data, dict) else None
    if not isinstance(schedules, list) or not isinstance(data.get("collective"), str):
        fail('expected {"collective": "all_reduce", "schedules": [one for each rank]}')
    known = list(dict.fromkeys(COLLECTIVE_OF.values()))
    if data["collective"] not in known:
        fail(
            f"MSCCL's files are for {', '.join(known[:-1])} and {known[-1]}, not for '{data['collective']}'"
            f"{did_you_mean(data['collective'], known)}"
        )
    if not 1 <= len(schedules) <= MOST_RANKS:
        fail(f"it has schedules for {len(schedules)} ranks: expected 1 to {MOST_RANKS}")
    data["schedules"] = checked(schedules, [FORM], "schedules")


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
        fail(f"the algorithm {file} cannot be used: {visible(str(error))}")


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
The algorithm is proved before it is converted. The execution plans of MSCCL++,
which are JSON, cannot be converted: their put and get access the memory of a
peer that takes no step, and in a schedule each message has a send and a
receive.

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
        "Write it as XML for MSCCL's runtime, which runs it on GPUs; - writes it to standard output",
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
