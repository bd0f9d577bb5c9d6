"""What `ringside account` says of a plan: its facts, the memory of a rank by kind and stage, what
it sends, and the parts of a step. The same for the terminal, for the page and for other
programs."""

import math
from typing import Any, Dict, List

from ringside.command_line import counted
from ringside.lab.account_text import plan_json, plan_text
from ringside.lab.numbers import count_text, fixed, scaled, seconds_text, table_number
from ringside.lab.report import Figure, Report
from ringside.lab.tables import Column, Table, only_in_json, words
from ringside.planning.accounting import Account
from ringside.planning.quantity import number_text


def _bars(names: List[str], table: Table, times: float, unit: str, scale: float) -> Dict[str, Any]:
    """A bar for each column behind the first, in so many times its unit: the parts are the rows."""
    bars = [
        {"name": name, "values": [row[column] * times for row in table.rows]}
        for column, name in enumerate(names, 1)
    ]
    return {"kind": "bars", "unit": unit, "scale": scale, "bars": bars}


def _memory_table(account: Account) -> Table:
    """A row for each kind of memory, in the order in which they appear, and a column for each
    stage."""
    table, kinds = Table([words("")]), {}  # type: Table, Dict[str, List[Any]]
    for column, stage in enumerate(account.stages, 1):
        title = "GB" if stage.name == "only" else f"{stage.name}, GB"
        table.head.append(Column(title, "", scaled(1e-9)))
        for part in stage.rows:
            row = kinds.setdefault(part.kind, [part.kind, *(0.0 for _ in account.stages)])
            row[column] += part.bytes
    table.rows = list(kinds.values())
    return table


def _memory_figure(account: Account) -> Figure:
    limit, most, stages = account.machine.memory, account.most_memory(), account.stages
    table = _memory_table(account)
    names = ["rank" if stage.name == "only" else f"{stage.name} stage" for stage in stages]
    drawing = _bars(names, table, 1e-9, "GB", max(limit, most) / 1e9)
    if any(stage.never_together > 0 for stage in stages):
        table.rows.append(["less: never together", *(-stage.never_together for stage in stages)])
    table.rows.append(["total", *(stage.total() for stage in stages)])
    share = f"{100 * most / limit:.{2 if most < 0.1 * limit else 0}f} %"
    fits = "it fits" if account.fits() else "IT DOES NOT FIT"
    caption = f"{fits}: {share} of {number_text(limit / 1e9)} GB"
    return Figure("Memory of a rank", drawing, caption, table)


def _traffic_table(account: Account) -> Table:
    columns = [
        words("axis", "axis"),
        words("what", "what"),
        only_in_json("level"),
        Column("calls", "calls", count_text),
        Column("GB", "sent_bytes", scaled(1e-9)),
        Column("ms", "seconds", scaled(1e3)),
        Column("hidden", "hidden_seconds", scaled(1e3)),
        Column("exposed", "", scaled(1e3)),
    ]
    return Table(columns, [[*each, each.exposed] for each in account.traffic])


def _traffic_figure(account: Account) -> Figure:
    title = "Communication of a rank of the busiest stage, in one step"
    levels = dict.fromkeys(f"{each.axis} over {each.level}" for each in account.traffic)
    return Figure(title, None, "; ".join(levels), _traffic_table(account))


def _time_table(account: Account) -> Table:
    columns = [
        words("part", "part"),
        Column("ms", "seconds", scaled(1e3)),
        Column("% of step", "", fixed(1, 100)),
    ]
    rows = [[part, seconds, seconds / account.step_seconds] for part, seconds in account.time]
    return Table(columns, rows)


def _time_figure(account: Account) -> Figure:
    step, (part, seconds) = account.step_seconds, account.binds()
    caption = f"step: {seconds_text(step)}\n"
    if account.plan.mesh.size("pp") > 1:
        share = f"{100 * account.bubble_share:.2f} % of the step"
        caption += f"the pipeline's bubble in closed form: {share}\n"
    tokens, per_second = count_text(account.tokens), count_text(account.tokens / step)
    caption += (
        f"{tokens} tokens per step, {per_second} tokens per second\n"
        f"model FLOPs {account.model_flops:.4g}, with recomputation "
        f"{account.hardware_flops:.4g}; MFU {100 * account.utilization:.1f} %\n"
        f"What binds: {part}, {100 * seconds / step:.0f} % of the step."
    )
    table = _time_table(account)
    bars = _bars(["step"], table, 1e3, "ms", 1e3 * step)
    return Figure("Time of a step, on the busiest stage", bars, caption, table)


def account_report(account: Account) -> Report:
    model, machine = account.model, account.machine
    memory, peak = number_text(machine.memory / 1e9), number_text(machine.peak / 1e12)
    parameters, state = count_text(account.parameters), account.state_bytes
    if account.active_parameters:
        active = f", {count_text(account.active_parameters)} for each token"
    else:
        active = ""
    each = number_text(state / account.parameters)
    devices = counted(math.ceil(state / machine.memory), "device")
    report = Report(
        f"What {model.name} takes on {account.plan.mesh.text()}",
        [
            ("model", f"{model.name}: {parameters} parameters{active}"),
            ("source", model.source),
            ("plan", plan_text(account.plan, model.has_blocks)),
            ("machine", f"{machine.name}: {memory} GB and {peak} TFLOP/s per device"),
            (
                "state",
                f"{table_number(state / 1e9)} GB in all: {each} bytes per parameter, on at least "
                f"{devices} of {memory} GB",
            ),
        ],
    )
    report.figures.append(_memory_figure(account))
    if account.traffic:
        report.figures.append(_traffic_figure(account))
    if account.time:
        report.figures.append(_time_figure(account))
    return report


def account_json(account: Account) -> Dict[str, Any]:
    """Keys carry their unit: _bytes, _seconds, _flops."""
    plan = account.plan
    json = plan_json(account.model, account.machine, plan)
    if plan.mesh.size("cp") > 1:
        json.update(context=plan.exchange, token_order=plan.token_order)
    json.update(
        zero=plan.zero,
        recompute=plan.recompute.text(),
        sequence_parallel=plan.sequence_parallel,
        parameters=account.parameters,
        active_parameters=account.active_parameters or account.parameters,
        state_bytes=account.state_bytes,
        fits=account.fits(),
        stages=[
            {
                "stage": stage.index,
                "name": stage.name,
                "memory_bytes": {row.kind: row.bytes for row in stage.rows},
                "never_together_bytes": stage.never_together,
                "total_bytes": stage.total(),
            }
            for stage in account.stages
        ],
        traffic=_traffic_table(account).json(),
    )
    if account.time:
        json.update(
            time=_time_table(account).json(),
            tokens=account.tokens,
            model_flops=account.model_flops,
            hardware_flops=account.hardware_flops,
            bubble_share=account.bubble_share,
            step_seconds=account.step_seconds,
            mfu=account.utilization,
            binds=account.binds()[0],
        )
    return json
