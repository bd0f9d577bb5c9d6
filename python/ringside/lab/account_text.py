"""What the answers of planning have in common: a plan in words, the derivation with every formula,
the plans that fit, and the keys that JSON begins with. Lines fit 80 columns."""

import math
from typing import Any, Dict, List, Optional

from ringside.command_line import counted
from ringside.lab.numbers import count_text, seconds_text, table_number
from ringside.lab.report import wrap
from ringside.lab.tables import Column, Table, words
from ringside.planning.accounting import Account, Section
from ringside.planning.fit import Fit
from ringside.planning.machine import Machine
from ringside.planning.model import Model
from ringside.planning.plan import Plan
from ringside.planning.quantity import Term, number_text, numbers, symbols, text_with_unit


def plan_text(plan: Plan, has_blocks: bool) -> str:
    """ "pp=4,tp=8 (32 devices), 8 micro-batches of 1 sequence of 2048 tokens, schedule 1f1b".
    Without has_blocks only the mesh and ZeRO."""
    mesh = plan.mesh
    parts = [mesh.text() + (f" ({mesh.ranks()} devices)" if mesh.ranks() > 1 else "")]
    if plan.zero > 0:
        parts.append(f"ZeRO stage {plan.zero}")
    if mesh.size("cp") > 1:
        parts += [plan.exchange, f"{plan.token_order} order"]
    if not has_blocks:
        return ", ".join(parts)
    parts.append(
        f"{counted(plan.micro_batches, 'micro-batch')} of "
        f"{counted(plan.micro_batch, 'sequence')} of {plan.sequence} tokens"
    )
    if mesh.size("pp") > 1:
        parts.append(f"schedule {plan.schedule}")
    if plan.chunks > 1:
        parts[-1] += f" with {plan.chunks} chunks"
    if plan.recompute.kind != "none":
        parts.append(f"recomputation {plan.recompute.text()}")
    if plan.sequence_parallel:
        parts.append("sequence parallel")
    return ", ".join(parts)


def plan_json(model: Model, machine: Machine, plan: Plan) -> Dict[str, Any]:
    """The keys that the JSON of an account and of a simulation begin with."""
    return {
        "model": model.name,
        "machine": machine.name,
        "mesh": plan.mesh.text(),
        "devices": plan.mesh.ranks(),
        "schedule": plan.schedule,
        "chunks": plan.chunks,
        "micro_batches": plan.micro_batches,
        "micro_batch": plan.micro_batch,
        "sequence": plan.sequence,
    }


def sources_text(machine: Machine) -> str:
    """Where the figures of a machine come from, and which of them are estimates."""
    return machine.source + (f". Estimates: {machine.estimates}" if machine.estimates else "")


def _term_text(line: Term) -> str:
    formula, values = symbols(line.formula), numbers(line.formula)
    result, left = text_with_unit(float(line), line.unit), 4 + len(line.symbol)
    text = f"  {wrap(line.what, 80, 2)}\n    {line.symbol}"
    if formula != result:
        text += f" = {wrap(formula, 80, left + 3)}\n{'':{left}}"
    # A bare input is its own result.
    if values != formula and not result.startswith(values):
        text += f" = {wrap(values, 80, left + 3)}\n{'':{left}}"
    text += f" = {result}\n"
    return text + (f"    [{wrap(line.source, 79, 5)}]\n" if line.source else "")


def derivation_text(sections: List[Section]) -> str:
    """Every formula: with symbols, with numbers, its result and its source."""
    return "".join(
        f"\n{section.title}\n{'-' * len(section.title)}\n" + "".join(map(_term_text, section.terms))
        for section in sections
    )


def derivation_json(sections: List[Section]) -> List[Dict[str, Any]]:
    return [
        {
            "section": section.title,
            "symbol": line.symbol,
            "what": line.what,
            "formula": symbols(line.formula),
            "numbers": numbers(line.formula),
            "value": float(line),
            "source": line.source,
        }
        for section in sections
        for line in section.terms
    ]


def _schedule_text(plan: Plan) -> str:
    """ "1f1b"; "v=2" for interleaved, "zb v=2" for interleaved_zb; "-" without a pipeline."""
    if plan.mesh.size("pp") == 1:
        return "-"
    if plan.chunks == 1:
        return plan.schedule
    name = {"interleaved": "", "interleaved_zb": "zb "}.get(plan.schedule, plan.schedule + " ")
    return f"{name}v={plan.chunks}"


def _fit_row(each: Account, tokens: Optional[float]) -> List[str]:
    plan, steps = each.plan, math.ceil((tokens or 0) / each.tokens)
    days = table_number(steps * each.step_seconds / 86400)
    return [
        plan.mesh.text(),
        _schedule_text(plan),
        str(plan.zero or "-"),
        f"{plan.micro_batches} x {plan.micro_batch}",
        plan.recompute.text(),
        "yes" if plan.sequence_parallel else "-",
        table_number(each.most_memory() / 1e9),
        seconds_text(each.step_seconds),
        days if tokens else f"{100 * each.utilization:.1f}",
    ]


def fit_text(found: Fit, machine: Machine, rows: int, tokens: Optional[float] = None) -> str:
    """The fastest `rows` plans that fit. With `tokens`, how many days each trains on so many."""
    text = (
        f"\n{count_text(found.tried)} plans tried; {len(found.accounts)} of their meshes fit "
        f"into {number_text(machine.memory / 1e9)} GB per device\n"
    )
    if not found.accounts:
        least = table_number(found.least_memory / 1e9)
        return f"{text}  the least that any plan needs is {least} GB per device\n"
    titles = ("ZeRO", "m x b", "again", "sp", "GB", "step", "days" if tokens else "MFU %")
    columns = [words(title) if title == "sp" else Column(title) for title in titles]
    lines = [_fit_row(each, tokens) for each in found.accounts[:rows]]
    return (
        f"{text}{Table([words('mesh'), words('pipe'), *columns], lines).text()}"
        "  pipe: schedule of the pipeline, v=2 is interleaved with 2 chunks; m x b:\n"
        "  micro-batches x sequences; again: recomputation; sp: sequence parallel;\n"
        "  GB: of the rank that needs most\n"
    )
