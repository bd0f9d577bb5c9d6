"""`postmortem` of the records that PyTorch wrote: read here, judged by the program `ringside`, whose
verdict has one text for its own records and these. Where there is no program, what was read."""

import argparse
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterable, List, Set

from ringside.command_line import Command, Exit, Option, counted
from ringside.lab.flights import Flight, Folder, as_json, files_in, is_own, read_folder
from ringside.library import RingsideError
from ringside.program import find_program


def enumerate_ranks(ranks: Iterable[int]) -> str:
    """ "rank 3", "ranks 0, 1 and 3"."""
    texts = [str(rank) for rank in sorted(ranks)]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"


def numbers_in_words(numbers: List[int]) -> str:
    """ "call #7", "calls #7 to #9"."""
    first, last = min(numbers), max(numbers)
    return f"call #{first}" if first == last else f"calls #{first} to #{last}"


def numbers_of(flight: Flight) -> List[int]:
    """The numbers of its collective calls."""
    return [call.number for call in flight.calls if call.collective != "send"]


def line_of_rank(flight: Flight, made: Dict[int, Set[int]]) -> str:
    """What a rank called, and which calls of the others it lacks. `made`: by the number of a
    collective call, the ranks that made it."""
    own, text = numbers_of(flight), f"rank {flight.in_job(flight.rank):<3} "
    if flight.calls:
        last = flight.calls[-1]
        text += f"made {numbers_in_words(own)}; " if own else ""
        text += f"{'ended' if last.ended else 'is in'} #{last.number}, {last}"
        if last.collective == "send":
            text += f" from rank {flight.in_job(last.root)} to rank {flight.in_job(last.peer)}"
    else:
        text += "made no call"
    lacks = [number for number in made if number > max(own, default=0)]
    if lacks:
        others = set().union(*(made[number] for number in lacks))
        text += f"; lacks {numbers_in_words(lacks)} of {enumerate_ranks(others)}"
    return text


def lines_of_group(flights: List[Flight]) -> List[str]:
    """A line for each rank of a group, and one for those without a record."""
    made: Dict[int, Set[int]] = {}
    for flight in flights:
        rank = flight.in_job(flight.rank)
        for number in numbers_of(flight):
            made.setdefault(number, set()).add(rank)
    lines = [line_of_rank(flight, made) for flight in flights]
    absent = set(range(flights[0].size)) - {flight.rank for flight in flights}
    if absent:
        lines.append(f"{enumerate_ranks(map(flights[0].in_job, absent))} left no record")
    return lines


def what_was_read(folder: Folder) -> str:
    """The lines of all groups."""
    groups: Dict[str, List[Flight]] = {}
    for flight in folder.flights:
        groups.setdefault(flight.group, []).append(flight)
    text = f"The records of a job of {counted(folder.size, 'rank')}:\n"
    for name, flights in groups.items():
        text += f"\nSub-group {name}:\n" if name else "\n"
        text += "".join(line + "\n" for line in lines_of_group(flights))
    return text


def left_out_in_words(sentences: List[str]) -> str:
    """A paragraph about the files that are not of the job."""
    return "\nLeft out:\n" + "".join(f"  {each}\n" for each in sentences) if sentences else ""


def run(args: argparse.Namespace) -> None:
    gc.disable()  # the records of a large job are millions of objects, and none is in a cycle
    path = Path(args.DIR)
    own = path.is_file() or path.is_dir() and any(map(is_own, files_in(path)))
    try:
        if own:  # the program reads it alone
            os.execv(find_program(), ["ringside", "postmortem", args.DIR])
    except (RingsideError, OSError) as error:
        if path.is_file():
            raise RingsideError(f"the program ringside reads {path}: {error}")
    folder = read_folder(path)
    left_out = left_out_in_words(folder.left_out)
    try:
        sys.stdout.flush()
        done = subprocess.run(
            [find_program(), "postmortem", "/dev/stdin"], input=as_json(folder.flights), text=True
        )
    except (RingsideError, OSError) as error:
        print(f"{what_was_read(folder)}{left_out}\nThe verdict needs the program ringside: {error}")
        return
    print(left_out, end="")
    if done.returncode != 0:
        raise Exit(done.returncode)


COMMAND = Command(
    "postmortem",
    "Read the flight records of a failed job: which rank stopped where",
    run,
    [Option("DIR", "The folder with the flight records, or a JSON file of them", required=True)],
    notes="""\
It reads what PyTorch's recorder wrote, of NCCL and gloo: the folder with
nccl_trace_rank_0, nccl_trace_rank_1 and so on, pickles or JSON, compressed by
gzip or not. A name may begin as it likes, and ends in the rank's number. The
program `ringside` gives the verdict; where it is not built, you see what each
rank called, and which calls it lacks.
""",
)
