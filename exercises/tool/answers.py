#!/usr/bin/env python3
"""Right answers in Python to all exercises that take a program: for `selftest.py KIT programs` only.

A course does not export this file."""
import json
import math
import sys


def send(to, first, **more):
    return {"to": to, "first": first, "count": 1, **more}


def receive(source, first, action):
    return {"from": source, "first": first, "count": 1, "action": action}


def ring(p, rank, shift, action):
    right, left = (rank + 1) % p, (rank - 1) % p
    return [{"send": send(right, (rank - shift - s) % p), "receive": receive(left, (rank - shift - 1 - s) % p, action)}
            for s in range(p - 1)]


def ring_reduce_scatter(p, rank):
    return {"chunks": p, "steps": ring(p, rank, 1, "add")}


def ring_all_gather(p, rank):
    return {"chunks": p, "steps": ring(p, rank, 0, "overwrite")}


def ring_all_reduce(p, rank):
    return {"chunks": p, "steps": ring(p, rank, 1, "add") + ring(p, rank, 0, "overwrite")}


def tree(p, rank, root, distances, down):
    index, steps = (rank - root) % p, []
    for distance in distances:
        step, part = {}, index % (2 * distance)
        if part == 0 and index + distance < p:  # parent
            child = (rank + distance) % p
            step = {"send": send(child, 0)} if down else {"receive": receive(child, 0, "add")}
        elif part == distance:
            parent = (rank - distance) % p
            step = {"receive": receive(parent, 0, "overwrite")} if down else {"send": send(parent, 0)}
        steps.append(step)
    return {"chunks": 1, "steps": steps}


def powers(p):
    return [2**k for k in range(max(0, (p - 1).bit_length()))]


def binomial_broadcast(p, rank, root):
    return tree(p, rank, root, powers(p)[::-1], True)


def binomial_reduce(p, rank, root):
    return tree(p, rank, root, powers(p), False)


def dissemination_barrier(p, rank):
    nothing = {"first": 0, "count": 0}
    return {"chunks": 1, "steps": [{"send": {"to": (rank + d) % p, **nothing},
                                    "receive": {"from": (rank - d) % p, "action": "overwrite", **nothing}} for d in powers(p)]}


def pairwise_all_to_all(p, rank):
    peers = [(s - rank) % p for s in range(p)] if p > 1 else []
    return {"chunks": p, "steps": [{} if peer == rank else {"send": send(peer, rank, input=peer),
                                                            "receive": receive(peer, peer, "overwrite")} for peer in peers]}


def plan_buckets(parameters, limit, first_limit, alone):
    size, buckets, closed = {"fp32": 4, "fp64": 8}, [], False
    for each in reversed(parameters):
        most, single = first_limit if len(buckets) <= 1 else limit, each["name"] in alone
        if not (buckets and not closed and not single and buckets[-1]["type"] == each["type"]
                and (buckets[-1]["elements"] + each["elements"]) * size[each["type"]] <= most):
            buckets.append({"type": each["type"], "elements": 0, "plan": []})
        buckets[-1]["plan"].append([each["name"], buckets[-1]["elements"]])
        buckets[-1]["elements"] += each["elements"]
        closed = single
    return [bucket["plan"] for bucket in buckets]


def exposed_seconds(o, w, total, buckets):
    return total / (w * buckets) + buckets * o


def best_bucket_bytes(o, w, total):
    return min(total, math.sqrt(total * w * o))


def fit_bucket_model(calls):
    """Least squares of (o + b/w - t) / t, with o >= 0."""
    if len({bytes for bytes, _ in calls}) < 2:
        return {"error": "expected calls of two sizes"}
    ones, b, bb = (sum(each**k / t**2 for each, t in calls) for k in range(3))
    y, by = (sum(each**k / t for each, t in calls) for k in range(2))
    o, slope = (bb * y - b * by) / (ones * bb - b * b), (ones * by - b * y) / (ones * bb - b * b)
    return [o, 1 / slope] if o >= 0 else [0, bb / by]


def bus_bandwidth(collective, bytes, p, seconds):
    part = {"all_reduce": 2 * (p - 1) / p, "broadcast": 1, "reduce": 1, "barrier": 0}.get(collective, (p - 1) / p)
    return part * bytes / seconds


def coordinates(sizes, rank):
    at = []
    for size in reversed(sizes):
        at.insert(0, rank % size)
        rank //= size
    return at


def rank_at(sizes, at):
    rank = 0
    for size, each in zip(sizes, at):
        rank = rank * size + each
    return rank


def members(sizes, rank, axis):
    at = coordinates(sizes, rank)
    return [rank_at(sizes, [*at[:axis], each, *at[axis + 1:]]) for each in range(sizes[axis])]


def group_along(sizes, axis, rank):
    ranks = members(sizes, rank, axis)
    return [ranks[0], ranks.index(rank)]


def step(block, machine, batch, devices, forward, backward):
    compute = 6 * batch * block["D"] * block["F"] / (devices * machine["C"])
    return {"forward": {"compute": compute, "communicate": forward / machine["W"]},
            "backward": {"compute": 2 * compute, "communicate": backward / machine["W"]}}


def data_parallel(block, machine, batch, devices):
    return step(block, machine, batch, devices, 0, 12 * block["D"] * block["F"])


def fully_sharded(block, machine, batch, devices):
    return step(block, machine, batch, devices, 6 * block["D"] * block["F"], 12 * block["D"] * block["F"])


def tensor_parallel(block, machine, batch, devices):
    return step(block, machine, batch, devices, 4 * batch * block["D"], 4 * batch * block["D"])


def least_tokens(machine):
    return machine["C"] / machine["W"]


def most_devices(block, machine):
    return 1.5 * block["F"] * machine["W"] / machine["C"]


def best_split(block, machine, overlapped):
    times = 1 if overlapped else 2
    tensor = most_devices(block, machine) / times
    return {"Y": tensor, "B/N": times * least_tokens(machine) / tensor}


def shards_of(plan):
    return {kind: plan["dp"] if plan["zero"] >= stage else 1 for stage, kind in ((1, "optimizer"), (2, "gradients"), (3, "parameters"))}


def masters(types):
    return 4 if types["parameters"] < 4 else 0


FORMULAS = {
    "parameter_bytes": lambda p, types, n: types["parameters"] * p / n,
    "gradient_bytes": lambda p, types, n: types["gradients"] * p / n,
    "master_bytes": lambda p, types, n: masters(types) * p / n,
    "moment_bytes": lambda p, types, n: 8 * p / n,
    "state_of_model": lambda p, types: p * (types["parameters"] + types["gradients"] + masters(types) + 8),
    "feed_forward_activations": lambda tokens, d, f, e, t: tokens * e * (d + f / t),
    "devices_for_state": lambda state, memory: math.ceil(state / memory),
    "fsdp_bytes": lambda state, kept, n: (state + kept / 2) / n + kept / 2,
    "fsdp_devices": lambda state, kept, memory: math.ceil((state + kept / 2) / (memory - kept / 2)),
    "split_compute_seconds": lambda s, b: 4 * b * s["D"] * s["F"] / (s["X"] * s["Y"] * s["C"]),
    "split_fsdp_seconds": lambda s: 4 * s["D"] * s["F"] / (s["Y"] * s["W"] * s["M_X"]),
    "split_tensor_seconds": lambda s, b: 4 * b * s["D"] / (s["X"] * s["W"] * s["M_Y"]),
    "tokens_if_overlapped": lambda s: "inf" if hidden(s) <= 0 else s["C"] / (s["W"] * s["Y"] * s["M_X"]),
    "tokens_if_added": lambda s: "inf" if hidden(s) <= 0 else s["C"] / (s["W"] * s["Y"] * s["M_X"]) / hidden(s),
    "tokens_at_best_split": lambda s: s["C"]**2 / (s["W"]**2 * s["M_X"] * s["M_Y"] * s["F"]),
    "best_fsdp": lambda s: math.sqrt(FORMULAS["tokens_at_best_split"](s) * (s["X"] * s["Y"])**2 * s["M_X"] / (s["F"] * s["M_Y"])),
    "largest_tensor": lambda s: s["F"] * s["M_Y"] * s["W"] / s["C"]}


def hidden(s):
    """The part of computing that tensor parallel leaves: 0 or less if it takes longer."""
    return 1 - s["C"] * s["Y"] / (s["W"] * s["F"] * s["M_Y"])


def gpipe(p, m, rank):
    return [[kind, rank, i] for kind in ("forward", "backward") for i in range(m)]


def one_f_one_b(p, m, rank):
    warm_up = min(p - 1 - rank, m)
    actions = [["forward", rank, i] for i in range(warm_up)]
    for i in range(m - warm_up):
        actions += [["forward", rank, warm_up + i], ["backward", rank, i]]
    return actions + [["backward", rank, i] for i in range(m - warm_up, m)]


def collectives_of(flight):
    return [each for each in flight["entries"] if not each["is message"]]


def divergence(flights):
    calls = {}
    for flight in flights:
        for each in collectives_of(flight):
            calls.setdefault(each["number"], {}).setdefault(each["call"], []).append(flight["rank"])
    number = min((number for number, made in calls.items() if len(made) > 1), default=None)
    return None if number is None else {"number": number, "made": calls[number]}


def laggards(flights):
    last = {flight["rank"]: ([0] + [each["number"] for each in collectives_of(flight)])[-1] for flight in flights}
    number = max(last.values())
    late = [rank for rank in sorted(last) if last[rank] < number]
    return {"number": number, "ranks": late} if late else None


def without_record(flights):
    return sorted(set(range(flights[0]["size"])) - {flight["rank"] for flight in flights})


def circle(flights):
    waits = {flight["rank"]: flight["entries"][-1]["waiting for"] for flight in flights
             if flight["entries"] and flight["entries"][-1]["is message"] and not flight["entries"][-1]["is done"]}
    for first in sorted(waits):
        ranks = [first]
        while ranks[-1] in waits and len(ranks) <= len(waits):
            if waits[ranks[-1]] == first:
                return ranks
            ranks.append(waits[ranks[-1]])
    return []


for line in sys.stdin:
    question = json.loads(line)
    answer = globals().get(question["call"]) or FORMULAS[question["call"]]
    print(json.dumps(answer(*question["args"])), flush=True)
