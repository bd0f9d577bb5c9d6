"""What `ringside simulate` says of a step and of a collective: the same for the terminal, for the
page and for other programs."""

from typing import Any, Dict, List, Sequence

from ringside.command_line import counted
from ringside.lab.account_text import plan_json, plan_text
from ringside.lab.numbers import (
    bytes_to_text,
    count_text,
    fixed,
    scaled,
    seconds_text,
    table_number,
)
from ringside.lab.report import Figure, Report
from ringside.lab.tables import Column, Table, only_in_json, words
from ringside.planning.collective_time import CollectiveTime
from ringside.planning.formulas.pipeline import bubble_share
from ringside.planning.machine import Machine
from ringside.planning.simulation import Simulation


def ranks_text(s: Simulation) -> str:
    simulated = len(s.replicas)
    if simulated == s.replicas_in_all:
        return f"all {s.plan.mesh.ranks()} simulated"
    replicas = (
        "one data-parallel replica" if simulated == 1 else f"{simulated} data-parallel replicas"
    )
    return f"{s.plan.mesh.ranks()}; {replicas} simulated, the others do the same"


def ranks_table(s: Simulation) -> Table:
    """What the ranks of each pipeline rank do in a step; the mean over the replicas."""
    table = Table(
        [
            Column("stage", ""),
            Column("computing (ms)", "computing_seconds", scaled(1e3)),
            Column("idle (ms)", "idle_seconds", scaled(1e3)),
            Column("reducing (ms)", "reducing_seconds", scaled(1e3)),
        ]
    )
    count = sum(replica.count for replica in s.replicas)
    for rank, busy in enumerate(s.timeline.busy):
        computing = (
            sum(replica.count * seconds for replica, seconds in zip(s.replicas, busy)) / count
        )
        table.rows.append(
            [
                rank,
                computing,
                max(0.0, s.timeline.computed - computing),
                s.timeline.reduced - s.timeline.computed,
            ]
        )
    return table


def exposed_table(s: Simulation) -> Table:
    return Table(
        [
            words("axis", "axis"),
            Column("ms", "seconds", scaled(1e3)),
            Column("% of step", "", fixed(1, 100)),
        ],
        [[axis, seconds, seconds / s.step] for axis, seconds in s.exposed],
    )


def loads_table(s: Simulation) -> Table:
    return Table(
        [
            words("level", "level"),
            words("axis", "axis"),
            Column("GB", "sent_bytes", scaled(1e-9)),
            Column("busy (ms)", "busy_seconds", scaled(1e3)),
            Column("% of step", "busy_share", fixed(1, 100)),
        ],
        [
            [load.level, load.axis, load.sent_bytes, load.seconds, load.seconds / s.step]
            for load in s.loads
        ],
    )


def simulation_report(s: Simulation) -> Report:
    levels = "; ".join(f"{level.name} between {level.group}" for level in s.machine.levels)
    report = Report(
        f"A step of {s.model.name} on {s.plan.mesh.text()}",
        [
            ("model", s.model.name),
            ("plan", plan_text(s.plan, True)),
            ("machine", f"{s.machine.name}: {levels} devices"),
            ("ranks", ranks_text(s)),
        ],
    )
    if s.machine.estimates:
        report.facts.append(("estimate", s.machine.estimates))
    report.facts.append(
        (
            "step",
            f"{seconds_text(s.step)}, {count_text(s.tokens_per_second)} "
            f"tokens per second, MFU {100 * s.utilization:.1f} %",
        )
    )
    if s.undisturbed is not None:
        report.facts.append(
            (
                "slow",
                f"without slow ranks: {seconds_text(s.undisturbed)}; they "
                f"cost {100 * (s.step / s.undisturbed - 1):.1f} %",
            )
        )
    if s.lowered.ranks > 1:
        report.facts.append(
            (
                "bubble",
                f"a rank is idle {100 * s.bubble:.2f} % of the pipeline's "
                f"time ({100 * float(bubble_share(s.plan)):.2f} % by the formula, for "
                "equal stages and free messages)",
            )
        )
    report.facts.append(
        ("update", f"optimizer, and what ZeRO gathers after it: {seconds_text(s.optimizer)}")
    )
    report.figures = [
        Figure(
            "Ranks of each pipeline stage",
            None,
            "Computing, with the communication in its midst; idle until the last computation "
            "anywhere; then reducing gradients.",
            ranks_table(s),
        ),
        Figure(
            "Exposed communication",
            None,
            "How much shorter a step would be if the communication along an axis took no time.",
            exposed_table(s),
        ),
        Figure(
            "Load of the links",
            None,
            "What the rank that sends most sends in a step, how long "
            "its link is busy with these bytes at its rate, and the share of the step.",
            loads_table(s),
        ),
    ]
    report.figures = [figure for figure in report.figures if figure.table.rows]
    return report


def simulation_json(s: Simulation) -> Dict[str, Any]:
    """Keys carry their unit."""
    return {
        **plan_json(s.model, s.machine, s.plan),
        "replicas": s.replicas_in_all,
        "replicas_simulated": len(s.replicas),
        "step_seconds": s.step,
        "undisturbed_step_seconds": s.step if s.undisturbed is None else s.undisturbed,
        "tokens_per_second": s.tokens_per_second,
        "mfu": s.utilization,
        "bubble_share": s.bubble,
        "optimizer_seconds": s.optimizer,
        "pipeline_ranks": ranks_table(s).json(),
        "exposed": exposed_table(s).json(),
        "links": loads_table(s).json(),
    }


# Predicted beside measured.

PARTS = {
    "step": "step",
    "forward": "forward",
    "backward": "backward",
    "update": "clip and optimizer",
    "waits": "waits for communication",
}


def comparison(predicted: Dict[str, float], measured: Dict[str, float]) -> Table:
    """A row for each part of a step: step_parts()."""
    table = Table(
        [
            only_in_json("part"),
            words(""),
            Column("predicted", "predicted_seconds", scaled(1e3)),
            Column("measured", "measured_seconds", scaled(1e3)),
            Column("ratio", "", fixed(2)),
        ]
    )
    for part, name in PARTS.items():
        a, b = predicted[part], measured[part]
        table.rows.append([part, name, a, b, a / b if b > 0 else None])
    return table


def comparison_json(table: Table) -> Dict[str, Dict[str, float]]:
    return {row.pop("part"): row for row in table.json()}


# Collectives: [size][algorithm], for one number of ranks.


def collective_table(times: Sequence[Sequence[CollectiveTime]], machine: Machine) -> str:
    """A * marks the fastest, whose bus bandwidth is in the last column."""
    first = times[0][0]
    table = Table(
        [Column("bytes", width=7), *(Column(each.algorithm) for each in times[0]), Column("busbw")],
        indent=0,
    )
    for row in times:
        least = min(time.seconds for time in row)  # of some that differ by rounding, the first
        best = next(time for time in row if time.seconds <= least * (1 + 1e-12))
        table.rows.append(
            [
                bytes_to_text(row[0].size),
                *(seconds_text(time.seconds) + ("*" if time is best else " ") for time in row),
                table_number(best.busbw() / 1e9),
            ]
        )
    source = "walked schedules" if any(time.walked for time in times[0]) else "closed forms"
    return (
        f"{first.collective} on {counted(first.ranks, 'rank')} of {machine.name}, over "
        f"{machine.level_for(first.ranks).name}; times from the {source}\n{table.text()}"
    )


def collective_json(
    times: Sequence[Sequence[CollectiveTime]], machine: Machine
) -> List[Dict[str, Any]]:
    return [
        {
            "collective": time.collective,
            "machine": machine.name,
            "algorithm": time.algorithm,
            "ranks": time.ranks,
            "bytes": time.size,
            "time_us": time.seconds * 1e6,
            "algbw_gbps": time.algbw() / 1e9,
            "busbw_gbps": time.busbw() / 1e9,
            "walked": time.walked,
        }
        for row in times
        for time in row
    ]


def collective_figure(times: Sequence[Sequence[CollectiveTime]], machine: Machine) -> Figure:
    """The time over the size, a curve for each algorithm. Of many sizes about 24 have a row."""
    ranks = times[0][0].ranks
    title = f"Time, {counted(ranks, 'rank')} over {machine.level_for(ranks).name}"
    curves = {
        column[0].algorithm: [(float(time.size), time.seconds * 1e6) for time in column]
        for column in zip(*times)
    }
    table = Table([Column("bytes"), *(Column(name, "", lambda us: f"{us:.4g}") for name in curves)])
    sizes = {row[0].size: [time.seconds * 1e6 for time in row] for row in times}
    every = max(1, len(sizes) // 24)
    for i, size in enumerate(sorted(sizes), 1):
        if i % every == 1 or every == 1 or i == len(sizes):
            table.rows.append([bytes_to_text(size), *sizes[size]])
    drawing = {
        "kind": "chart",
        "x": {"label": "bytes", "log": True, "unit": "bytes"},
        "y": {"label": "time", "log": True, "unit": "us"},
        "series": [
            {"name": name, "style": "line", "points": points} for name, points in curves.items()
        ],
    }
    return Figure(title, drawing, "", table)
