"""`ringside synthesize`: a solver finds an algorithm for a network, or proves that there is none.

A node holds chunks. In a step it sends chunks that it held before the step to its neighbours. A
step has one or more ROUNDS: in a round a link carries as many chunks as it is wide. With S steps
and R rounds in all, C chunks of a buffer of n bytes take S alpha + (R / C) n beta: few steps for a
short buffer, few rounds for each chunk for a long one.

The question is given to Z3 as sentences over booleans: a node holds a chunk after a step; a link
carries a chunk in a step. What is found is proved in lockstep (lab/lockstep.py); that there is none
is the word of Z3.

A collective that adds is another one run backwards: where an all-gather sends a chunk from a to b
in step s, a reduce-scatter sends it from b to a in step S+1-s, and adds. An all-reduce is a
reduce-scatter and an all-gather, each with half of the steps and rounds.

Source: Cai, Liu, Maleki, Musuvathi, Mytkowicz, Nelson and Saarikivi, "Synthesizing optimal
collective algorithms" (SCCL), PPoPP 2021, sections 3 and 4.
"""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Dict, FrozenSet, List, NamedTuple, Sequence, Tuple

from ringside.command_line import (
    Command,
    Exit,
    Option,
    UsageError,
    above_zero,
    at_least_one,
    counted,
    did_you_mean,
    in_range,
    text_beside,
    whole_number,
    write_text,
)
from ringside.lab.lockstep import COLLECTIVES, Json, Message, faults_of, pack_messages
from ringside.lab.network import Link, Network, network_named
from ringside.library import RingsideError

CHOICES = ("all_gather", "broadcast", "gather", "scatter", "reduce_scatter", "reduce", "all_reduce")
# A collective that adds, and the one that it is backwards.
BACKWARDS = {"reduce_scatter": "all_gather", "all_reduce": "all_gather", "reduce": "broadcast"}


@dataclass(frozen=True)
class Question:
    """`chunks`: of each rank's block, or of the buffer where ranks have no blocks."""

    collective: str
    root: int = 0
    chunks: int = 1
    steps: int = 1
    rounds: int = 1
    time_limit: float = 300  # seconds


class NoAlgorithm(Exception):
    """There is none; the text says who proved it."""


class OutOfTime(Exception):
    """The solver has no answer within the time limit."""


class Hop(NamedTuple):
    """A chunk over a link in a step from 1 on."""

    step: int
    chunk: int
    sender: int
    receiver: int

    @property
    def link(self) -> Link:
        return self.sender, self.receiver


Journey = Tuple[int, FrozenSet[int]]  # the node where a chunk begins, and those that it must reach


def journeys_of(question: Question, size: int) -> List[Journey]:
    """The chunks of a collective that moves data, or of the one that a sum is backwards."""
    nodes, root = range(size), question.root
    journeys: Dict[str, List[Journey]] = {
        "all_gather": [(node, frozenset(nodes)) for node in nodes],
        "broadcast": [(root, frozenset(nodes))],
        "gather": [(node, frozenset([root])) for node in nodes],
        "scatter": [(root, frozenset([node])) for node in nodes],
    }
    moves = BACKWARDS.get(question.collective, question.collective)
    return [each for each in journeys[moves] for _ in range(question.chunks)]


def import_z3() -> Any:
    try:
        import z3
    except ImportError:
        raise RingsideError(
            f"`ringside synthesize` needs the Python package z3, which {sys.executable} does not "
            "have: install it (pip install z3-solver, or apt-get install python3-z3)"
        ) from None
    return z3


def count_arrivals(network: Network, journeys: Sequence[Journey], rounds: int) -> None:
    """Finds a node whose links are too narrow for what it must receive. A solver would try every
    way to distribute the chunks."""
    for node in range(network.size):
        needed = sum(source != node and node in goals for source, goals in journeys)
        width = sum(width for link, width in network.links.items() if link[1] == node)
        if needed > width * rounds:
            raise NoAlgorithm(
                f"Counting proves it: rank {node} must receive {needed} chunks, and "
                f"its links carry {width * rounds}"
            )


def solve(network: Network, journeys: Sequence[Journey], question: Question) -> List[Hop]:
    """Hops that bring every chunk where it must be, in the order of their steps."""
    count_arrivals(network, journeys, question.rounds)
    z3 = import_z3()
    # For booleans and sums of them with a bound. With a context of its own the answer does not
    # depend on questions before.
    context = z3.Context()
    solver = z3.SolverFor("QF_FD", ctx=context)
    solver.set("timeout", int(min(max(question.time_limit * 1e3, 1), 2**32 - 1)))
    hops: Dict[Hop, Any] = {}  # all that may be, each with its boolean
    for chunk, (source, goals) in enumerate(journeys):
        # [node] whether it holds the chunk: True, False, or a sentence. A chunk comes to a node
        # once at most, from one that held it before the step.
        holds: List[Any] = [node == source for node in range(network.size)]
        arrivals: List[List[Any]] = [[] for _ in holds]
        for step in range(1, question.steps + 1):
            before = list(holds)
            for sender, receiver in network.links:
                if receiver == source or before[sender] is False:
                    continue
                hop = hops[Hop(step, chunk, sender, receiver)] = z3.Bool(f"x{len(hops)}", context)
                solver.add(z3.Implies(hop, before[sender]))
                holds[receiver] = z3.Or(holds[receiver], hop)
                arrivals[receiver].append(hop)
        solver.add([z3.AtMost(*each, 1) for each in arrivals if each])
        solver.add([holds[node] for node in goals])
    limit_width(z3, solver, network, hops, question)
    answer = solver.check()
    if answer == z3.unsat:
        raise NoAlgorithm("Z3 proved it")
    if answer == z3.unknown:
        if "interrupted" in solver.reason_unknown():
            raise KeyboardInterrupt
        raise OutOfTime
    model = solver.model()
    taken = [hop for hop, sentence in hops.items() if z3.is_true(model[sentence])]
    return sorted(taken, key=lambda hop: (hop.step, hop.chunk, hop.receiver))


def limit_width(
    z3: Any, solver: Any, network: Network, hops: Dict[Hop, Any], question: Question
) -> None:
    """In each step a link carries at most its width times the rounds of the step."""
    steps, extra = range(question.steps), question.rounds - question.steps
    # [step - 1][k] whether the step has at least k + 2 rounds.
    more = [[z3.Bool(f"r{step}_{k}", solver.ctx) for k in range(extra)] for step in steps]
    for rounds in more:
        solver.add([z3.Implies(b, a) for a, b in zip(rounds, rounds[1:])])
    if extra:
        solver.add(z3.AtMost(*sum(more, []), extra))
    carried: Dict[Tuple[int, Link], List[Any]] = {}
    for hop, sentence in hops.items():
        carried.setdefault((hop.step, hop.link), []).append(sentence)
    for (step, link), sentences in carried.items():
        width = network.links[link]
        # A round that the step does not have counts as a load.
        load = [(each, 1) for each in sentences]
        load += [(z3.Not(each), width) for each in more[step - 1]]
        solver.add(z3.PbLe(load, width * (1 + extra)))


def backwards(hops: Sequence[Hop], steps: int) -> List[Hop]:
    """The same journeys from their ends to their beginnings, in the order of the new steps."""
    turned = [Hop(steps + 1 - step, chunk, to, start) for step, chunk, start, to in hops]
    return sorted(turned, key=lambda hop: hop.step)


def rounds_of(hops: Sequence[Hop], network: Network, steps: int) -> List[int]:
    """How many rounds each step takes."""
    rounds = [1] * steps
    for (step, link), chunks in Counter((hop.step, hop.link) for hop in hops).items():
        rounds[step - 1] = max(rounds[step - 1], -(-chunks // network.links[link]))
    return rounds


def messages_of(hops: Sequence[Hop], action: str) -> List[Message]:
    """Chunks that lie side by side and travel together are one message."""
    messages: List[Message] = []
    last: Dict[Tuple[int, Link], Message] = {}  # of a step, over a link
    for hop in hops:
        message = last.get((hop.step, hop.link))
        if message and message.first + message.count == hop.chunk:
            message.count += 1
            continue
        messages.append(Message(*hop.link, hop.chunk, 1, action))
        last[hop.step, hop.link] = messages[-1]
    return messages


def check_question(question: Question, network: Network) -> None:
    """Raises RingsideError for a question that has no sense."""
    if not question.rounds >= question.steps:
        raise RingsideError(
            "expected at least 1 chunk and 1 step, and as many rounds as steps: "
            f"{question.chunks} chunks, {question.steps} steps, {question.rounds} rounds"
        )
    if not 0 <= question.root < network.size:
        raise RingsideError(f"the root must be one of 0 to {network.size - 1}")
    if question.collective == "all_reduce" and (question.steps % 2 or question.rounds % 2):
        raise RingsideError(
            "an all_reduce is a reduce_scatter and an all_gather: expected an even number of steps "
            f"and of rounds, not {question.steps} and {question.rounds}"
        )


def synthesize(question: Question, network: Network) -> Tuple[Json, List[int]]:
    """An algorithm as data, and the rounds of each step. Raises NoAlgorithm, OutOfTime, and
    RingsideError for a question that has no sense, and where z3 is missing."""
    check_question(question, network)
    about, part = COLLECTIVES[question.collective], question
    actions = ["add" if about.reduces else "overwrite"]
    if question.collective == "all_reduce":
        actions = ["add", "overwrite"]
        part = replace(question, steps=question.steps // 2, rounds=question.rounds // 2)
    journeys = journeys_of(question, network.size)
    messages: List[Message] = []
    rounds: List[int] = []
    for action in actions:
        if action == "add":
            hops = backwards(solve(network.backwards(), journeys, part), part.steps)
        else:
            hops = solve(network, journeys, part)
        rounds += rounds_of(hops, network, part.steps)
        messages += messages_of(hops, action)
    algorithm = {
        "collective": question.collective,
        "root": question.root if about.has_root else None,
        "network": network.name,
        "chunks_per_block": question.chunks,
        "steps": question.steps,
        "rounds": question.rounds,
        "schedules": pack_messages(network.size, len(journeys), messages),
    }
    for fault in faults_of(algorithm):
        raise RingsideError(f"what Z3 found is wrong: {fault}")
    return algorithm, rounds


def in_words(question: Question, network: Network) -> str:
    """ "all_gather with 1 chunk for each rank, 2 steps and 2 rounds on dgx1 (8 ranks)" """
    of = "of the buffer" if question.collective in ("broadcast", "reduce") else "for each rank"
    return (
        f"{question.collective} with {counted(question.chunks, 'chunk')} {of}, "
        f"{counted(question.steps, 'step')} and {counted(question.rounds, 'round')} on "
        f"{network.name} ({counted(network.size, 'rank')})"
    )


def run(args: argparse.Namespace) -> None:
    if args.collective not in CHOICES:
        raise RingsideError(
            f"there is no synthesis of {args.collective}"
            f"{did_you_mean(args.collective, CHOICES)}: choose "
            f"{', '.join(CHOICES[:-1])} or {CHOICES[-1]}"
        )
    about = COLLECTIVES[args.collective]
    if args.root != 0 and not about.has_root:
        raise UsageError(f"{args.collective} has no root: leave out --root")
    rounds = args.rounds or args.steps
    question = Question(
        args.collective, args.root, args.chunks, args.steps, rounds, args.time_limit
    )
    network = network_named(args.topology, args.ranks)
    asked, out, start = in_words(question, network), text_beside(args.json), time.monotonic()
    try:
        algorithm, rounds = synthesize(question, network)
    except OutOfTime:
        raise RingsideError(
            f"Z3 has no answer after {args.time_limit:g} s, so nobody knows whether there is this "
            f"algorithm: {asked}; give it more --time-limit"
        ) from None
    except NoAlgorithm as why:
        print(f"There is no {asked}.\n{why} ({time.monotonic() - start:.1f} s).", file=out)
        raise Exit(1) from None
    schedule = algorithm["schedules"][0]
    print(
        f"Found: {asked}.\nZ3 took {time.monotonic() - start:.1f} s. Rounds of each step: "
        f"{', '.join(map(str, rounds))}.\nAs a schedule, where a rank sends and receives one "
        f"message at a time: {counted(schedule['chunks'], 'chunk')} in "
        f"{counted(len(schedule['steps']), 'step')}.\nProved: {about.promise}.",
        file=out,
    )
    if args.json:
        write_text(args.json, json.dumps(algorithm, indent=2) + "\n")


NOTES = """
A link carries as many chunks in a round as it is wide. With S steps and R
rounds, C chunks for each rank's block of n bytes take S alpha + (R / C) n beta.
An all_to_all cannot be synthesized. An all_reduce is a reduce_scatter followed
by an all_gather, each with half of the steps and rounds. "There is none" then
means that there is none of this form.
A network of your own: {"ranks": 3, "links": [[0, 1], [1, 2, 2], [2, 0]]}. A
link has the sending rank, the receiving rank and its width [1]. The exit status
is 1 if there is no algorithm.
It needs the Python package z3: pip install z3-solver.

Examples:
  ringside synthesize all_gather --topology dgx1 --steps 2 --json latency.json
      the fewest steps on the 8 GPUs of a DGX-1; with --steps 1 there is none
  ringside synthesize all_gather --topology dgx1 --chunks 6 --steps 3 --rounds 7
      the fewest bytes: each link carries 7/6 of a block, and no algorithm less
  ringside step --algorithm latency.json -n 8
      what it found, step by step
"""

OPTIONS = [
    Option(
        "collective NAME",
        "all_gather, broadcast, gather, scatter, reduce_scatter, reduce or all_reduce",
        required=True,
    ),
    Option(
        "-n,--ranks N", "Number of ranks, 2 to 64 [4, or those of the network]", in_range(2, 64)
    ),
    Option(
        "--topology NETWORK",
        "ring (both ways), line, star (around rank 0), full, dgx1, or a file FILE.json [ring]",
        default="ring",
    ),
    Option("--steps S", "Steps, one after the other", at_least_one("step"), required=True),
    Option(
        "--rounds R",
        "Rounds in all steps together: in each, a link carries as many chunks as it is wide [S]",
        at_least_one("round"),
    ),
    Option(
        "--chunks C",
        "Chunks of each rank's block; of a broadcast and a reduce, of the buffer [1]",
        at_least_one("chunk"),
        default=1,
    ),
    Option(
        "--root RANK", "The root of a broadcast, reduce, gather or scatter [0]", whole_number, 0
    ),
    Option("--time-limit SECONDS", "Give up after this many seconds [300]", above_zero, 300.0),
    Option(
        "--json FILE",
        "Write the algorithm to this file, which --algorithm of step, prove and bench reads; - "
        "writes it to standard output",
    ),
]

COMMAND = Command(
    "synthesize",
    "Let a solver find an algorithm for a network, or prove that there is none",
    run,
    OPTIONS,
    NOTES,
)
