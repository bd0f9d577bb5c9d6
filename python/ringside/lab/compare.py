"""`ringside compare A B`: two training runs side by side. Of two files of --metrics the losses and
the times; of two folders of --dump or --save every parameter (differences.py)."""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from ringside.command_line import JSON_OPTION, Command, Option, counted, number, text_beside
from ringside.lab.differences import compare_arrays, holds_arrays
from ringside.lab.report import Figure, Report, text_of, write_json_file, write_report
from ringside.lab.tables import Column, Table, words
from ringside.library import RingsideError

KEYS = ("bits_per_byte", "step_seconds", "communication_seconds", "tokens_per_second")


class Metrics(NamedTuple):
    """The rows of `ringside train --metrics`, read back."""

    name: str  # of the file
    steps: Dict[int, Dict[str, float]]  # by their numbers, the figures of KEYS
    validations: List[float]  # bits per byte

    def of(self, key: str) -> List[float]:
        return [step[key] for step in self.steps.values()]


def read_metrics(path: str) -> Metrics:
    metrics = Metrics(path, {}, [])
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        raise RingsideError(
            f"cannot read {path}: is it a file of `ringside train --metrics`, or a folder of --dump "
            "or --save?"
        ) from None
    for count, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if "validation_bits_per_byte" in row:
                metrics.validations.append(float(row["validation_bits_per_byte"]))
            else:
                metrics.steps[int(row["step"])] = {key: float(row[key]) for key in KEYS}
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            raise RingsideError(
                f"line {count} of {path} is not a row of `ringside train --metrics`"
            ) from None
    if not metrics.steps:
        raise RingsideError(f"{path} has no step: is it a file of `ringside train --metrics`?")
    return metrics


def losses_in_words(a: Metrics, b: Metrics) -> Tuple[str, float]:
    """How far the losses of the steps that both runs took are apart."""
    key = "bits_per_byte"
    apart = {
        step: abs(a.steps[step][key] - b.steps[step][key]) for step in a.steps if step in b.steps
    }
    if not apart:
        return "The runs have no step in common.", 0.0
    steps, where = counted(len(apart), "step"), max(apart, key=lambda step: apart[step])
    if apart[where] == 0:
        return f"The losses of {steps} are equal.", 0.0
    return (
        f"The losses of {steps} differ by at most {apart[where]:.2g} bits per byte, in step {where}."
    ), apart[where]


def side_by_side(a: Metrics, b: Metrics) -> List[Tuple[str, str, float, float]]:
    """Rows: what, how it is shown, and the figure of each run."""

    def row(
        name: str, show: str, figure: Callable[[Metrics], float]
    ) -> Tuple[str, str, float, float]:
        return name, show, figure(a), figure(b)

    def median(key: str, times: float = 1.0) -> Callable[[Metrics], float]:
        return lambda run: times * statistics.median(run.of(key))

    rows = [
        row("steps", ".0f", lambda run: len(run.steps)),
        row("step, ms (median)", ".1f", median("step_seconds", 1e3)),
        row("waiting, ms (median)", ".1f", median("communication_seconds", 1e3)),
        row("tokens/s (median)", ".0f", median("tokens_per_second")),
        row("all steps, s", ".1f", lambda run: sum(run.of("step_seconds"))),
        row("last loss, bits/byte", ".4f", lambda run: run.steps[max(run.steps)]["bits_per_byte"]),
    ]
    if a.validations and b.validations:
        rows.append(row("held out, bits/byte", ".4f", lambda run: run.validations[-1]))
    return rows


def chart_of(
    title: str, unit: str, runs: Tuple[Metrics, Metrics], key: str, times: float
) -> Figure:
    """A figure of each step, of both runs."""
    table, series = Table([words("run"), Column("step"), Column(unit)]), []
    for colour, run in enumerate(runs):
        points = [[step, times * figures[key]] for step, figures in sorted(run.steps.items())]
        style = "dashed" if colour else "line"
        series.append({"name": run.name, "style": style, "colour": colour, "points": points})
        table.rows += [[run.name, step, f"{value:.4g}"] for step, value in points]
    axes = {
        axis: {"label": label, "log": False, "unit": ""}
        for axis, label in (("x", "step"), ("y", unit))
    }
    return Figure(title, {"kind": "chart", **axes, "series": series}, "", table)


def compare_metrics(a: Metrics, b: Metrics) -> Tuple[List[Figure], Any, float]:
    caption, largest = losses_in_words(a, b)
    rows = side_by_side(a, b)
    head = [words("", "", 20), Column(a.name, width=10), Column(b.name, width=10), Column("ratio")]
    table = Table(head)
    for name, show, of_a, of_b in rows:
        ratio = f"{of_b / of_a:.3f}" if of_a > 0 else ""
        table.rows.append([name, format(of_a, show), format(of_b, show), ratio])
    figures = [
        Figure("Side by side", None, caption, table),
        chart_of("Loss over steps", "loss (bits per byte)", (a, b), "bits_per_byte", 1),
        chart_of("Time of each step", "ms", (a, b), "step_seconds", 1e3),
    ]
    return (
        figures,
        [{"figure": name, "a": of_a, "b": of_b} for name, _, of_a, of_b in rows],
        largest,
    )


def run(args: argparse.Namespace) -> None:
    if holds_arrays(args.A) or holds_arrays(args.B):
        figures, rows, largest = compare_arrays(Path(args.A), Path(args.B))
    else:
        figures, rows, largest = compare_metrics(read_metrics(args.A), read_metrics(args.B))
    out = text_beside(args.json)
    shown = Report("", [], [figure for figure in figures if figure.drawing is None])
    print(text_of(shown).lstrip("\n"), end="", file=out)
    write_report(args.html, Report(f"{args.A} and {args.B}", [], figures), out)
    if args.json:
        write_json_file(args.json, rows)
    if args.tolerance is not None and not largest <= args.tolerance:
        raise RingsideError(
            f"the largest difference, {largest:.2g}, is above --tolerance {args.tolerance:g}"
        )


COMMAND = Command(
    "compare",
    "Compare two training runs: loss and times, or every parameter",
    run,
    [
        Option(
            "A",
            "A file of `ringside train --metrics`, or a folder of --dump or --save",
            required=True,
        ),
        Option("B", "The same of the other run", required=True),
        Option(
            "--tolerance X",
            "Exit with 1 if a loss (bits per byte) or a number differs by more [no bound]",
            number,
        ),
        JSON_OPTION,
        Option(
            "--html FILE",
            "Write a page with the tables, and of --metrics both losses and step times",
        ),
    ],
    notes="""\
The two runs should train the same model on the same text with the same batch
and seed: then their losses differ only by rounding, and the times show what
another number of ranks, strategy, mesh or backend costs.

Of two folders each parameter has a line: the largest difference, the same
divided by the parameter's largest value, and where it is. Folders of --dump
have gradients too, and the steps that both have are compared. A checkpoint is a
folder with model.safetensors, of Ringside or of another program.

Examples:
  ringside train -n 2 --steps 20 --metrics two.jsonl
      each run writes a line for each step
  ringside train -n 4 --steps 20 --mesh dp=2,tp=2 --metrics mesh.jsonl
      the same run, divided in another way
  ringside compare two.jsonl mesh.jsonl --html compare.html
      both side by side: the same losses, other times
  ringside train --steps 3 --dump one/
      gradients and parameters after every step, with one process
  ringside train -n 2 --steps 3 --dump two/
      the same with two
  ringside compare one/ two/ --tolerance 1e-3
      each parameter: how far the two are apart, and where
""",
)
