"""`ringside simulate`: how long a step of a plan, or a collective, takes on a machine that is not
here."""

import argparse
import re
from typing import Any, Dict, List, TextIO, Tuple

from ringside.command_line import (
    JSON_OPTION,
    Command,
    Flag,
    Option,
    UsageError,
    in_range,
    number,
    text_beside,
    whole_number,
)
from ringside.lab.account_text import sources_text
from ringside.lab.numbers import parse_bytes
from ringside.lab.plan_options import PLAN_OPTIONS, machine_from, plan_from
from ringside.lab.report import Report, text_of, write_json_file, write_report, write_text_file
from ringside.lab.simulation_report import (
    collective_figure,
    collective_json,
    collective_table,
    comparison,
    comparison_json,
    simulation_json,
    simulation_report,
)
from ringside.lab.step_pictures import lanes_figure, picture_of_pipeline, simulated_traces
from ringside.lab.svg import svg_of
from ringside.planning.collective_time import (
    CLOSED_FORMS,
    MOST_RANKS_WALKED,
    algorithms_on,
    collective_times,
)
from ringside.planning.json_fields import require
from ringside.planning.machine import find_machine
from ringside.planning.model import find_model
from ringside.planning.recorded_step import chrome_trace, read_traces, stages_of_trace, step_parts
from ringside.planning.simulation import simulate
from ringside.planning.stragglers import Stragglers

SIZES = "1KB,4KB,16KB,64KB,256KB,1MB,4MB,16MB,64MB,256MB,1GB"
NOTES = """
With --model: a step of a plan. Every rank of the mesh takes the actions of the
pipeline schedule. An action starts when its rank, its message and the ranks
that it communicates with are ready. --mesh names axes as in ringside account.
Of identical data-parallel replicas one is simulated.

With a collective: the time of each algorithm, with * at the fastest, and its
bandwidth in 10^9 bytes per second. algbw: bytes of the buffer per second.
busbw: algbw times 2 (n-1)/n, which compares with the rate of a link
(nccl-tests). For up to 64 ranks the command walks the schedules of all ranks,
if the program ringside is built; for more it computes a closed form. Over
several servers a ring has a channel for each rank of a server, so it uses all
network cards; double_tree joins the servers by two binary trees; hierarchical
exchanges inside the servers first. in_network: the switches add up, if the
topology says that they can.

A message or a collective travels over the innermost network that joins its
ranks, and has it to itself. --topology takes a machine by name
(ringside account --list) or a JSON file: `python3 -m pydoc
ringside.planning.machine` has its fields.

Examples:
  ringside simulate --model llama3-405b --mesh pp=16,dp=128,tp=8 \\
      --micro-batches 32 --topology llama3 --html step.html
      a step on 16,384 GPUs: bubble, exposed communication, load of the links
  ringside simulate --model llama3-8b --mesh pp=4,tp=8 --schedule zb_h1 \\
      --micro-batches 16 --slow 5=1.3 --svg lanes.svg
      zero bubble, with one rank that is 1.3 times as slow
  ringside train -n 2 --mesh pp=2 --micro-batches 4 --steps 10 --trace step.json
      a measured step, for the next two
  ringside simulate --model tiny --topology laptop --mesh pp=2 --micro-batch 4 \\
      --micro-batches 4 --against step.json
      the prediction beside what was measured
  ringside simulate --model tiny --topology h100 --mesh pp=2 --micro-batch 4 \\
      --micro-batches 16 --schedule zb_h1 --measured step.json
      another schedule, with the measured times of the actions
  ringside simulate all_reduce -n 8,1024 --algorithm ring,halving_doubling \\
      --bytes 1KB,1MB,1GB --topology h100 --html curves.html
      which all-reduce is fastest at which size
"""


def slow_rank(text: str) -> Tuple[int, float]:
    """ "5=1.3": rank 5 takes 1.3 times as long for every computation."""
    found = re.fullmatch(r"(-?\d+)=([\d.eE+-]+)", text, re.ASCII)
    try:
        rank, factor = (int(found[1]), float(found[2])) if found else (0, 0.0)
    except ValueError:
        factor = 0.0
    if not factor >= 1:
        raise UsageError(
            f"--slow {text}: a rank and a factor of at least 1 are expected, as in --slow 5=1.3"
        )
    return rank, factor


def simulate_plan(args: argparse.Namespace, out: TextIO) -> None:
    machine, model = machine_from(args, args.topology), find_model(args.model)
    stragglers = Stragglers(dict(map(slow_rank, args.slow)), args.jitter, args.seed)
    measured = stages_of_trace(read_traces(args.measured)) if args.measured else []
    plan = plan_from(args, model)
    simulation = simulate(model, plan, machine, stragglers, not args.every_rank, measured)
    report, figures = simulation_report(simulation), simulation_json(simulation)
    text = text_of(report)
    if args.against:
        recorded = read_traces(args.against)
        require(
            len(recorded) == plan.mesh.ranks(),
            f"{args.against} has traces of {len(recorded)} "
            f"ranks, but the mesh has {plan.mesh.ranks()}: name the mesh of that run",
        )
        table = comparison(step_parts(simulated_traces(simulation)), step_parts(recorded))
        text += f"\nPredicted beside measured: a rank's mean, ms\n{table.text()}"
        figures["against"] = comparison_json(table)
    out.write(text)
    if args.svg:
        title = f"A step of {model.name} on {args.mesh}"
        write_text_file(args.svg, svg_of(picture_of_pipeline(simulation, title)), "the drawing")
        print(f"drawing: {args.svg}", file=out)
    if args.trace:
        write_json_file(args.trace, chrome_trace(simulated_traces(simulation)))
        print(f"trace, for ui.perfetto.dev or chrome://tracing: {args.trace}", file=out)
    if args.html:
        report.figures.insert(0, lanes_figure(simulation))
        write_report(args.html, report, out)
    if args.json:
        write_json_file(args.json, figures)


def simulate_collective(args: argparse.Namespace, out: TextIO) -> None:
    if args.collective not in CLOSED_FORMS:
        raise UsageError(
            f"there is no simulation of '{args.collective}': choose one of "
            f"{', '.join(CLOSED_FORMS)}"
        )
    machine = find_machine(args.topology)
    report = Report(f"{args.collective} on {machine.name}", [("machine", sources_text(machine))])
    rows: List[Dict[str, Any]] = []
    texts: List[str] = []
    for ranks in args.ranks:
        algorithms = args.algorithm or algorithms_on(args.collective, ranks, machine)
        sizes = [parse_bytes(text) for text in args.bytes]
        for text, size in zip(args.bytes, sizes):
            require(size > 0, f"--bytes {text}: at least one byte is needed")
        times = list(
            zip(
                *(
                    collective_times(args.collective, algorithm, ranks, sizes, machine)
                    for algorithm in algorithms
                )
            )
        )
        texts.append(collective_table(times, machine))
        rows += collective_json(times, machine)
        report.figures.append(collective_figure(times, machine))
    out.write("\n".join(texts))
    if args.json:
        write_json_file(args.json, rows)
    write_report(args.html, report, out)


def run(args: argparse.Namespace) -> None:
    if args.congestion:
        raise UsageError(
            "transfers that share links are simulated no more: leave out "
            "--congestion; each message and collective has its links to itself"
        )
    if args.collective and args.model:
        raise UsageError("give either a collective or --model, not both")
    if not args.collective and not args.model:
        raise UsageError(
            "what is to be simulated? Give --model and --mesh for a step, or all_reduce"
        )
    out = text_beside("-" if args.json == "/dev/stdout" else args.json)
    (simulate_collective if args.collective else simulate_plan)(args, out)


COMMAND = Command(
    "simulate",
    "Predict the time of a step, or of a collective, on another machine",
    run,
    [
        Option("collective NAME", f"{', '.join(CLOSED_FORMS)}; or else give --model", default=""),
        Option(
            "--topology MACHINE", "Device and network: a name or a JSON file [h100]", default="h100"
        ),
        *PLAN_OPTIONS,
        Option(
            "--slow RANK=FACTOR,...",
            "Slow ranks: 5=1.3 lets rank 5 take 1.3 times as long for each computation",
            default=[],
        ),
        Option(
            "--jitter SHARE",
            "Each computation of a rank takes up to this share longer, at random [0]",
            in_range(0.0, 10.0, number),
            default=0.0,
        ),
        Option("--seed N", "Seed of --jitter [0]", whole_number, default=0),
        Flag("--congestion", ""),
        Flag("--every-rank", "Simulate every replica, also identical ones"),
        Option("--svg FILE", "Draw the lanes of a step into this file", default=""),
        Option(
            "--trace FILE",
            "Write the step as a trace for ui.perfetto.dev or chrome://tracing",
            default="",
        ),
        Option(
            "--measured FILE",
            "Take how long each stage computes from a trace of `ringside "
            "train --trace`, not from formulas",
            default="",
        ),
        Option(
            "--against FILE",
            "A trace of `ringside train --trace`: predicted beside measured",
            default="",
        ),
        Option(
            "-n,--ranks N,...",
            "For a collective: numbers of ranks, at least 2 [8]",
            in_range(2, 1e6),
            default=[8],
        ),
        Option(
            "--algorithm NAME,...",
            "For a collective: algorithms, or files with algorithms; above "
            f"{MOST_RANKS_WALKED} ranks only the default ones [those with a closed form: of "
            f"all_reduce {','.join(CLOSED_FORMS['all_reduce'])}, double_tree over several "
            "servers, and in_network where switches add up; hierarchical by name]",
            default=[],
        ),
        Option(
            "--bytes SIZE,...",
            "For a collective: sizes of the buffer [1KB to 1GB]",
            default=SIZES.split(","),
        ),
        JSON_OPTION,
        Option("--html FILE", "Write a page with pictures to this file", default=""),
    ],
    notes=NOTES,
)
