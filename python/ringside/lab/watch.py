"""`ringside watch -- PROGRAM ARGS`: what a torch program does over Ringside, rank by rank. Each rank
leaves a report (ringside/witness.py); here they are joined, shown and judged."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from ringside.command_line import Command, Exit, Option, UsageError
from ringside.lab.numbers import fixed
from ringside.lab.report import write_json_file
from ringside.lab.tables import Column, Table, words
from ringside.library import RingsideError

NEARLY_ALL, UNBALANCED = 0.95, 0.9

Model = Dict[str, Any]
Report = Dict[str, Any]  # of one rank, as witness.py writes it
Run = List[Report]  # from the start of a process group to its end, in the order of ranks
Share = Callable[[Model], float]

NUMBER = (int, float)
KEYS_OF_REPORT: Dict[str, Any] = {  # and the types of their values
    **{"test": str, "transport": str, "rank": int, "size": int, "calls": list, "models": list},
    **dict.fromkeys("began_ns bytes_sent waited_seconds reductions reduced_bytes".split(), NUMBER),
    **dict.fromkeys("early_reductions early_bytes waits_in_backward".split(), NUMBER),
    "waited_in_backward_seconds": NUMBER,
}
KEYS_OF_CALL = {"collective": str, "label": str, "calls": NUMBER, "bytes": NUMBER}
KEYS_OF_MODEL = {
    "model": str,
    **dict.fromkeys("computing gathered resting kept".split(), NUMBER),  # elements
    **dict.fromkeys("trained with_state state_bytes".split(), NUMBER),
}


def whole(model: Model) -> float:
    """Elements of the model's parameters, together."""
    return max(model["computing"], model["gathered"], 1)


def kept(model: Model) -> float:
    """The share of them that lies on this rank between two steps."""
    return max(model["resting"], model["kept"]) / whole(model)


def with_state(model: Model) -> float:
    """The share of the trained elements for which this rank has an optimizer's state."""
    return model["with_state"] / max(1, model["trained"])


def models(run: Run) -> int:
    """The number of models that every rank has."""
    return min(len(rank["models"]) for rank in run)


def total(run: Run, key: str) -> float:
    """Over all ranks."""
    return sum(rank[key] for rank in run)


def on_every_rank(run: Run, model: int, share: Share) -> bool:
    """Whether every rank has nearly all of a model, by this share."""
    return all(share(rank["models"][model]) >= NEARLY_ALL for rank in run)


def shares_of(run: Run, model: int, share: Share) -> str:
    """ "51 % on rank 0, 49 % on rank 1"."""
    if on_every_rank(run, model, share):
        return "all on each rank"
    return ", ".join(
        f"{100 * share(rank['models'][model]):.0f} % on rank {rank['rank']}" for rank in run
    )


# ---- What is expected of a run: None if it holds, or a sentence


def misses_overlap(run: Run) -> Optional[str]:
    """Calls that reduce gradients start within backward, and nothing waits in it."""
    calls, waits = total(run, "reductions"), total(run, "waits_in_backward")
    if calls == 0:
        return "no-calls: no call between backward and the optimizer's step reduces gradients"
    if total(run, "early_reductions") == 0:
        return (
            f"sync-at-end: all {calls:.0f} calls that reduce gradients started after the last "
            "gradient of their backward was ready, so nothing overlaps with it"
        )
    if waits > 0:
        return (
            f"waits-in-hook: backward stood still {waits:.0f} times, "
            f"{1e3 * total(run, 'waited_in_backward_seconds'):.1f} ms in all, while it waited "
            "for a call"
        )
    return None


def misses_balance(run: Run, model: int) -> Optional[str]:
    """No rank has nearly all of a sharded optimizer's state."""
    for rank in run:
        share = with_state(rank["models"][model])
        if share >= UNBALANCED:
            return (
                f"by-count: rank {rank['rank']} keeps the optimizer's state of "
                f"{100 * share:.0f} % of the parameters: give each parameter to the rank that "
                "has fewest elements so far"
            )
    return None


def misses_sharded_optimizer(run: Run) -> Optional[str]:
    """Each rank keeps a share of the optimizer's state."""
    state_bytes = elements = 0
    for m in range(models(run)):
        model = run[0]["models"][m]
        if not any(with_state(rank["models"][m]) > 0 for rank in run):
            continue
        if not on_every_rank(run, m, with_state):
            return misses_balance(run, m)
        state_bytes += model["state_bytes"]
        elements += model["with_state"]
    if elements == 0:
        return "no-state: no optimizer has made a step, or none keeps any state"
    shares = {"broadcast", "all_gather"} & {call["collective"] for call in run[0]["calls"]}
    return (
        f"{'state-for-all' if shares else 'plain-adamw'}: each of {len(run)} ranks keeps the "
        f"optimizer's state of all parameters, {state_bytes / elements:.0f} bytes for each; "
        f"sharded, it keeps about {state_bytes / elements / len(run):.0f}"
    )


def misses_fsdp(run: Run) -> Optional[str]:
    """Each rank keeps a share of the parameters between two steps."""
    if models(run) == 0:
        return "no-model: no module has run forward"
    if not all(on_every_rank(run, m, kept) for m in range(models(run))):
        return None
    gathers = any(run[0]["models"][m]["gathered"] > 0 for m in range(models(run)))
    return (
        f"{'never-frees' if gathers else 'replicated'}: each of {len(run)} ranks keeps all "
        "parameters between two steps"
        + (", though forward gathers some" if gathers else ", and forward gathers none")
    )


EXPECTATIONS: Dict[str, Callable[[Run], Optional[str]]] = {
    "overlap": misses_overlap,
    "sharded-optimizer": misses_sharded_optimizer,
    "fsdp": misses_fsdp,
}


def expectation(text: str) -> str:
    """A word of --expect."""
    if text not in EXPECTATIONS:
        raise ValueError(f"overlap, sharded-optimizer or fsdp is expected, not {text}")
    return text


# ---- Reports


def check(values: Any, keys: Dict[str, Any], what: str) -> None:
    """Raises ValueError unless `values` has all keys."""
    if not isinstance(values, dict):
        raise ValueError(f"{what} is no object {{...}}")
    for key, kind in keys.items():
        if not isinstance(values.get(key), kind):
            raise ValueError(f"{key} of {what} is missing or of another type")


def read_report(file: Path) -> Report:
    """Raises ValueError that says what is wrong."""
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read it: {error.strerror}") from None
    check(report, KEYS_OF_REPORT, "the report")
    for call in report["calls"]:
        check(call, KEYS_OF_CALL, "a call")
    for model in report["models"]:
        check(model, KEYS_OF_MODEL, "a model")
    return report


def runs_in(folder: Path) -> List[Run]:
    """Ranks of one test and one size belong together; a rank that comes again begins another run."""
    reports = []
    for file in folder.glob("*.json"):
        try:
            reports.append(read_report(file))
        except ValueError as error:
            raise RingsideError(f"{file} is not a rank's report of ringside watch: {error}")
    runs: List[Run] = []
    for report in sorted(reports, key=lambda each: each["began_ns"]):
        for run in runs:
            if all(run[0][key] == report[key] for key in ("test", "size")) and all(
                each["rank"] != report["rank"] for each in run
            ):
                run.append(report)
                break
        else:
            runs.append([report])
    return [sorted(run, key=lambda each: each["rank"]) for run in runs]


def table_of(head: List[Column], rows: List[Dict[str, Any]]) -> Table:
    """Each column shows a key of the rows."""
    return Table(head, [[row[column.key] for column in head] for row in rows])


def table_of_ranks(run: Run) -> Table:
    """What each rank sent, waited for and reduced."""
    head = [
        Column("rank", "rank"),
        Column("calls", "made"),
        Column("sent\n(MB)", "bytes_sent", fixed(3, 1e-6)),
        Column("waited\n(ms)", "waited_seconds", fixed(1, 1e3)),
        Column("gradients\n(calls)", "reductions"),
        Column("early\n(calls)", "early_reductions"),
        Column("early\n(% of bytes)", "early_percent", fixed(0)),
        Column("waits in\nbackward", "waits_in_backward"),
    ]
    rows = []
    for rank in run:
        reduced = rank["reduced_bytes"]
        percent = 100 * rank["early_bytes"] / reduced if reduced > 0 else None
        made = sum(call["calls"] for call in rank["calls"])
        rows.append({**rank, "made": made, "early_percent": percent})
    return table_of(head, rows)


def table_of_calls(run: Run) -> Table:
    """The calls of the first rank."""
    head = [
        words(f"call of rank {run[0]['rank']}", "collective"),
        words("data", "label"),
        Column("times", "calls"),
        Column("MB in all", "bytes", fixed(3, 1e-6)),
    ]
    return table_of(head, run[0]["calls"])


def show(run: Run) -> None:
    """Prints what the ranks of a run did."""
    first = run[0]
    test = f"{first['test']}: " if first["test"] else ""
    print(f"\n{test}{len(run)} of {first['size']} ranks over {first['transport']}\n")
    print(f"{table_of_ranks(run).text()}\n{table_of_calls(run).text()}")
    for m in range(models(run)):
        model = first["models"][m]
        line = f"  {model['model']}, {whole(model):.0f} parameters: {shares_of(run, m, kept)}"
        if model["with_state"] > 0 or model["state_bytes"] > 0:
            line += f"; optimizer's state: {shares_of(run, m, with_state)}"
        print(line)


def judge(run: Run, expected: List[str]) -> Dict[str, Optional[str]]:
    """What each expectation finds. Prints a line for each."""
    findings = {name: EXPECTATIONS[name](run) for name in expected}
    for name, missed in findings.items():
        print(f"  {name}: {missed or 'as expected'}")
    return findings


def run_program(words_of_program: List[str], folder: Path) -> int:
    """Runs the program in this terminal and returns its exit code."""
    environment = {"RINGSIDE_AS_GLOO": "1", **os.environ, "RINGSIDE_WATCH": str(folder.absolute())}
    try:
        child = subprocess.Popen(words_of_program, env=environment)
    except OSError as error:
        raise RingsideError(f"cannot run {words_of_program[0]}: {error.strerror}")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the program, and its
    code = child.wait()  # reports are shown
    signal.signal(signal.SIGINT, before)
    return 128 - code if code < 0 else code


def watch(args: argparse.Namespace) -> None:
    program = args.PROGRAM[1:] if args.PROGRAM[:1] == ["--"] else args.PROGRAM
    if not program and not args.folder:
        raise UsageError("name a program after --, or the folder of earlier reports with --folder")
    folder = Path(args.folder or f"{tempfile.gettempdir()}/ringside-watch-{os.getpid()}")
    code = 0
    if program:
        folder.mkdir(parents=True, exist_ok=True)
        code = run_program(program, folder)
    if not folder.is_dir():
        raise RingsideError(f"{folder} is not a folder: name the one that RINGSIDE_WATCH named")
    runs = runs_in(folder)
    if not args.folder:
        shutil.rmtree(folder, ignore_errors=True)
    if not runs and code == 0:
        raise RingsideError(
            "no rank left a report: the program makes no process group over ringside or gloo, or "
            "its Python lacks the package: pip install build/release/python"
        )
    figures = []
    for run in runs:
        show(run)
        findings = judge(run, args.expect or [])
        figures.append({"test": run[0]["test"], "findings": findings, "ranks": run})
    if args.json:
        write_json_file(args.json, figures)
    if code != 0:
        raise Exit(code)
    if any(missed for each in figures for missed in each["findings"].values()):
        raise Exit(1)


COMMAND = Command(
    "watch",
    "What each rank of a PyTorch program sends, keeps and waits for",
    watch,
    [
        Option(
            "--expect WORD,...",
            "Fail if a run lacks one of these: overlap, sharded-optimizer, fsdp",
            expectation,
        ),
        Option(
            "--folder DIR",
            "Folder of the ranks' reports; without PROGRAM, print those in it [removed at the end]",
        ),
        Option("--json FILE", "Write all figures to this file"),
        Option("PROGRAM ARGS...", "The program and its arguments, after --"),
    ],
    notes="""\
The program asks torch.distributed for "ringside", or for "gloo", which Ringside
replaces here. Its Python needs Ringside's package: pip install
build/release/python. To start the ranks in another way, or on several machines,
set RINGSIDE_WATCH=DIR and RINGSIDE_AS_GLOO=1, and read the reports later with
--folder DIR.

A call overlaps with backward if it starts before the last gradient is ready.
--expect names a fault as the exercises do:

  overlap            sync-at-end, waits-in-hook: exercise 15
  sharded-optimizer  plain-adamw, state-for-all, by-count: exercise 19
  fsdp               replicated, never-frees: exercise 21

Examples:
  ringside watch -- pytest tests/test_ddp.py
      what each test sent, and when
  ringside watch --expect overlap -- torchrun --nproc-per-node 4 train.py
      fails if no gradient is on its way before backward ends
""",
)
