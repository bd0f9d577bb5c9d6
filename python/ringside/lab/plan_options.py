"""The options that describe a plan: those of `ringside account` and `ringside simulate`."""

import argparse
from dataclasses import replace
from typing import Any, Callable, List, Optional

from ringside.command_line import Flag, Option, in_range, number, one_of
from ringside.library import RingsideError
from ringside.planning.json_fields import require
from ringside.planning.machine import Machine, find_machine
from ringside.planning.mesh import parse_mesh
from ringside.planning.model import Model, size_names
from ringside.planning.plan import (
    EXCHANGES,
    TOKEN_ORDERS,
    Plan,
    Types,
    recomputation_from,
    schedule_names,
)

POSITIVE = in_range(1, 1e9)


def parsed_by(parse: Callable[[str], Any]) -> Callable[[str], str]:
    """A check for a text that `parse` reads; the value stays the text."""

    def check(text: str) -> str:
        try:
            parse(text)
        except RingsideError as error:
            raise ValueError(str(error)) from None
        return text

    return check


def _type_option(what: str) -> Option:
    text = f"Type of {what}: bf16 or fp32 [bf16; fp32 for Ringside's sizes]"
    return Option(f"--{what} TYPE", text, one_of(["bf16", "fp16", "fp32"]))


PLAN_OPTIONS: List[Option] = [
    Option("--model MODEL", "A name, or the path of a config.json", default=""),
    Option("--mesh AXES", "The devices, as in pp=2,dp=4,tp=8 [one device]", default=""),
    Option(
        "--schedule NAME",
        f"{', '.join(schedule_names())}; or csv:FILE, see ringside step pipeline [1f1b]",
        default="1f1b",
    ),
    Option(
        "--chunks V",
        "Chunks of a stage, for interleaved, looped_bfs and interleaved_zb [1]",
        POSITIVE,
        default=1,
    ),
    Option("--micro-batch N", "Sequences of a micro-batch [1]", POSITIVE, default=1),
    Option(
        "--micro-batches N",
        "Micro-batches of a data-parallel rank in one step [1]",
        POSITIVE,
        default=1,
    ),
    Option("--batch N", "Sequences of a step over all ranks; instead of --micro-batches", POSITIVE),
    Option("--sequence N", "Tokens of a sequence [the model's longest]", POSITIVE),
    Option(
        "--zero STAGE",
        "Stage of ZeRO over fsdp, or dp in a mesh without it, 0 to 3 [0; with fsdp 3]",
        in_range(0, 3),
        default=0,
    ),
    Option(
        "--recompute NAME",
        "Activations to compute again: none, selective, full, every=K for "
        "groups of K blocks, or nested=K1,K2 for groups within groups [none]",
        parsed_by(recomputation_from),
        default="none",
    ),
    Flag("--sequence-parallel", "Divide what tensor parallel leaves whole along the sequence"),
    Flag(
        "--fused-gradients",
        "Products add to the gradients of earlier micro-batches, without another kernel",
    ),
    Option(
        "--imbalance FACTOR",
        "With experts: tokens of the busiest ep rank, relative to the mean [1]",
        in_range(1.0, 1e3, number),
        default=1.0,
    ),
    Option(
        "--overlap SHARE",
        "Share of the communication along dp, fsdp and cp that can run while "
        "a device computes [the machine's, mostly 1]",
        in_range(0.0, 1.0, number),
    ),
    Option(
        "--context NAME",
        "How cp ranks attend to each other's tokens: all_gather of keys and "
        "values, ring of exchanges while they compute, or ulysses, all-to-all from tokens to "
        "heads [ring; on a GPU all_gather]",
        one_of(EXCHANGES),
        default="ring",
    ),
    Option(
        "--token-order NAME",
        "Which tokens a cp rank has: contiguous, or zigzag, an early and "
        "a late piece, so that all do the same work; `ringside step context` shows it "
        "[zigzag]",
        one_of(TOKEN_ORDERS),
        default="zigzag",
    ),
    _type_option("parameters"),
    _type_option("gradients"),
    _type_option("activations"),
]


def types_from(args: argparse.Namespace) -> Types:
    """Ringside's own sizes train in fp32; published models in 16 bits with fp32 masters."""

    def bytes_of(name: Optional[str]) -> float:
        return 4.0 if name == "fp32" or not name and args.model in size_names() else 2.0

    return Types(bytes_of(args.parameters), bytes_of(args.gradients), bytes_of(args.activations))


# Options that are fields of a Plan, with the same name.
PLAIN_OPTIONS = (
    *("schedule", "chunks", "micro_batch", "micro_batches", "token_order", "zero"),
    *("sequence_parallel", "imbalance", "fused_gradients"),
)


def plan_from(args: argparse.Namespace, model: Model) -> Plan:
    """The plan of the options. Raises RingsideError for a wrong mesh or batch."""
    mesh = parse_mesh(args.mesh)
    plan = Plan(
        mesh,
        sequence=args.sequence or max(model.sequence, 1),
        exchange=args.context,
        recompute=recomputation_from(args.recompute),
        types=types_from(args),
        **{name: getattr(args, name) for name in PLAIN_OPTIONS},
    )
    if not args.batch:
        return plan
    at_once = mesh.data_ranks() * plan.micro_batch
    require(
        args.batch % at_once == 0,
        f"a batch of {args.batch} sequences does not divide into micro-batches of "
        f"{plan.micro_batch} on {mesh.data_ranks()} data-parallel ranks",
    )
    return replace(plan, micro_batches=args.batch // at_once)


def machine_from(args: argparse.Namespace, name: str) -> Machine:
    """A name or a file; with --overlap, if it was given."""
    machine = find_machine(name)
    return machine if args.overlap is None else replace(machine, overlap=args.overlap)
