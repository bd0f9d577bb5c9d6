"""`ringside account`: the memory, communication and time of a plan, computed by formulas before
anything runs."""

import argparse
import math
from dataclasses import replace
from typing import Any, Dict, List, Optional

from ringside.command_line import (
    JSON_OPTION,
    Command,
    Flag,
    Option,
    UsageError,
    in_range,
    text_beside,
    with_progress,
)
from ringside.lab.account_report import account_json, account_report
from ringside.lab.account_text import derivation_json, derivation_text, fit_text, sources_text
from ringside.lab.numbers import count_text, parse_bytes, parse_count, table_number
from ringside.lab.plan_options import PLAN_OPTIONS, machine_from, parsed_by, plan_from, types_from
from ringside.lab.report import text_of, wrap, write_json_file, write_report
from ringside.planning.accounting import Account, Section, account
from ringside.planning.fit import FitOptions, fit
from ringside.planning.formulas.parameters import parameter_count
from ringside.planning.json_fields import require
from ringside.planning.machine import Machine, find_machine, machine_names
from ringside.planning.mesh import parse_mesh
from ringside.planning.model import Model, find_model, model_names, size_names
from ringside.planning.plan import Plan
from ringside.planning.quantity import Unit, text_with_unit


def training_of(args: argparse.Namespace, result: Account) -> Dict[str, float]:
    """How long a plan takes to train on --tokens; nothing without them."""
    if not args.tokens or not result.time:
        return {}
    tokens = parse_count(args.tokens)
    steps = float(math.ceil(tokens / result.tokens))
    days = steps * result.step_seconds / 86400
    return {
        "training_tokens": tokens,
        "training_steps": steps,
        "training_days": days,
        "device_hours": 24 * days * result.plan.mesh.ranks(),
    }


def with_torus(text: str, plan: Plan) -> Plan:
    """Refuses torus axes other than those of the least batch."""
    torus = parse_mesh(text, "--torus")
    if not set(torus.axes()) <= {"fsdp", "tp"}:
        raise UsageError(
            "--torus says how many axes of a torus carry fsdp and tp, as in fsdp=2,tp=1"
        )
    return replace(plan, torus_fsdp=float(torus.size("fsdp")), torus_tp=float(torus.size("tp")))


def list_names() -> None:
    print("models (a size of Ringside, or a published model):")
    for name in size_names():
        print(f"  {name}")
    for name in model_names():
        parameters = text_with_unit(float(parameter_count(find_model(name))[-1]), Unit.NUMBER)
        print(f"  {name:18}{parameters:>20} parameters")
    print("machines (device and network):")
    for name in machine_names():
        print(f"  {name:10}{wrap(sources_text(find_machine(name)), 80, 12)}")


def show(args: argparse.Namespace, text: str, derivation: List[Section], machine: Machine) -> None:
    """Prints `text`, and where the user asked for them, the formulas and the sources of figures."""
    if args.explain:
        sources = wrap(sources_text(machine), 80, 2)
        text += f"{derivation_text(derivation)}\nWhere the figures of {machine.name} come from\n"
        text += f"  {sources}\n"
    print(text, end="", file=text_beside(args.json))


def list_plans(args: argparse.Namespace, model: Model, machine: Machine) -> None:
    if args.mesh or args.torus or args.html:
        raise UsageError("--fit tries every mesh: leave out --mesh, --torus and --html")
    batch, sequence = args.batch or args.devices, args.sequence or model.sequence
    options = FitOptions(args.devices, batch, sequence, types_from(args))
    found = fit(model, machine, options, lambda each: with_progress(each, "tried {} of {} meshes"))
    tokens: Optional[float] = parse_count(args.tokens) if args.tokens else None
    text = (
        f"{model.name} on {args.devices} x {machine.name}, {batch} sequences of "
        f"{sequence} tokens a step\n{fit_text(found, machine, 12, tokens)}"
    )
    show(args, text, found.accounts[0].derivation if found.accounts else [], machine)
    if args.json:
        plans = [{**account_json(each), **training_of(args, each)} for each in found.accounts]
        least = found.least_memory
        figures = {"tried": found.tried, "least_memory_bytes": least, "plans": plans}
        write_json_file(args.json, figures)


def account_for(args: argparse.Namespace, model: Model, machine: Machine) -> None:
    plan = plan_from(args, model)
    result = account(model, with_torus(args.torus, plan) if args.torus else plan, machine)
    report, training = account_report(result), training_of(args, result)
    if training:
        tokens, steps, days, hours = training.values()
        said = (
            f"{count_text(tokens)} tokens take {count_text(steps)} steps: {table_number(days)} "
            f"days, {count_text(hours)} device hours"
        )
        report.facts.append(("training", said))
    show(args, text_of(report), result.derivation, machine)
    if args.json:
        figures: Dict[str, Any] = {**account_json(result), **training}
        write_json_file(args.json, {**figures, "formulas": derivation_json(result.derivation)})
    report.facts.append(("figures", sources_text(machine)))
    write_report(args.html, report, text_beside(args.json))


def run(args: argparse.Namespace) -> None:
    if args.list:
        return list_names()
    if not args.model:
        raise UsageError("--model is required: a name, or the path of a config.json")
    model, machine = find_model(args.model), machine_from(args, args.machine)
    if args.memory:
        machine = replace(machine, memory=float(parse_bytes(args.memory)))
        require(machine.memory > 0, f"--memory {args.memory}: a device needs memory")
    (list_plans if args.fit else account_for)(args, model, machine)


COMMAND = Command(
    "account",
    "Compute what a plan needs: memory, communication and time, and its bottleneck",
    run,
    [
        Option(
            "--machine MACHINE", "Device and network: a name or a JSON file [h100]", default="h100"
        ),
        Option(
            "--memory SIZE",
            "Memory of a device, such as 80GB [the machine's]",
            parsed_by(parse_bytes),
        ),
        *PLAN_OPTIONS,
        Flag("--fit", "List the meshes of --devices that fit, with the fastest plan on each"),
        Option(
            "--tokens N",
            "Tokens to train on, such as 15T or 300B: also print days and device hours",
            parsed_by(parse_count),
        ),
        Option("--devices N", "Number of devices for --fit [8]", in_range(1, 100_000), default=8),
        Option(
            "--torus AXES",
            "Axes of a torus that carry fsdp and tp, for the smallest batch [1 each]",
        ),
        Flag("--list", "List the models and machines with their sources"),
        Flag("--explain", "Print every formula, its numbers and its source"),
        JSON_OPTION,
        Option("--html FILE", "Write a page with pictures to this file"),
    ],
    notes="""
GB is 10^9 bytes. --mesh names axes from the slowest to the fastest: pp=2,tp=8
puts the 8 ranks of a tensor-parallel group next to each other. Axes: pp
(pipeline), dp (data), fsdp (data, with shards of the state), cp (context),
tp (tensor), ep (experts).

Models: tiny lab small medium large xl, and published ones: `--list` names them,
and the machines. Or the path of a config.json of Hugging Face.
A machine of your own is a JSON file: see python/ringside/planning/machine.py.

--explain also prints how many devices can hold the state, and how many FSDP
needs with the activations; for fsdp and tp together, the smallest batch that
hides their communication.

Examples:
  ringside account --model xxl --mesh fsdp=16,tp=4
      memory, communication and time of one plan; --explain prints the formulas
  ringside account --model llama3-70b --fit --devices 64 --memory 80GB
      the meshes on which a model fits, the fastest first
  ringside account --model korthikanti-22b --mesh tp=8 --machine a100 \\
      --micro-batch 4 --recompute full --explain
      a published plan, with every formula
  ringside account --model xxl --memory 95GB --explain
      how many devices a model needs
  ringside account --model xxl --mesh fsdp=16,tp=4 --machine tpu-v5p \\
      --torus fsdp=2,tp=1 --explain
      which batch is large enough
""",
)
