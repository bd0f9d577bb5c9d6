"""`ringside timeline TRACE`: what each rank of a traced run did when."""

import argparse
import sys
from typing import Any, Dict, List

from ringside.command_line import JSON_OPTION, Command, Option
from ringside.lab.report import Report, text_of, write_json_file, write_report
from ringside.lab.tracks import tracks_figure
from ringside.library import RingsideError
from ringside.planning.recorded_step import read_traces, recorded_steps


def run(args: argparse.Namespace) -> None:
    traces = read_traces(args.TRACE)
    steps = recorded_steps(traces)
    if not steps:
        raise RingsideError(
            f"{args.TRACE} has no training step: expected a file of `ringside train --trace` or of "
            "`ringside simulate --model ... --trace`"
        )
    report = Report("What the ranks did", [("trace", args.TRACE)])
    rows: List[Dict[str, Any]] = []
    for name, window in steps.items():
        figure = tracks_figure(f"What the ranks did in {name}", traces, window)
        figure.choice = name
        report.figures.append(figure)
        rows += [{"step": name, **row} for row in figure.table.json()]
    out = sys.stderr if args.json in ("-", "/dev/stdout") else sys.stdout
    print(text_of(report), end="", file=out)
    write_report(args.html, report, out)
    if args.json:
        write_json_file(args.json, rows)


COMMAND = Command(
    "timeline",
    "Show what each rank of a traced run did when, and how long it waited",
    run,
    [
        Option(
            "TRACE",
            "A file of `ringside train --trace` or `ringside simulate --trace`",
            required=True,
        ),
        JSON_OPTION,
        Option("--html FILE", "Write a page with the tracks of every rank, to zoom into"),
    ],
    notes="""\
computing: in phases, without the waits within them. waiting: exposed
communication, for a call or, in a pipeline, for a message.

Examples:
  ringside train -n 2 --steps 6 --trace trace.json
      a run that records three of its steps
  ringside timeline trace.json --html timeline.html
      how long each rank computed and waited in them, and a page that draws it
""",
)
