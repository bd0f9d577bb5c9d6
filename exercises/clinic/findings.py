"""What Ringside says about a run with a bug, beside a run without it: errors, post-mortem, replicas, gradients, data, norms, the
order of calls, memory. A fact that both runs share is no finding."""
import json
import re
from pathlib import Path


def of(sick, well, commands):
    """Sentences, from the folders of two runs."""
    says = errors(sick) + outputs(sick, well, commands) + losses(sick, well) + notes(sick, well)
    if text(sick / "trace.json") and text(well / "trace.json"):  # a run that failed leaves it empty
        says += traces(Trace(sick / "trace.json"), Trace(well / "trace.json"))
    return list(dict.fromkeys(says))


def text(file):
    return file.read_text(errors="replace") if file.exists() else ""


# ---- Errors, and the output of further commands

def errors(folder):
    """Sentences of the program itself, of the post-mortem and of ThreadSanitizer."""
    lines = text(folder / "output").split("\n")
    told = [re.sub(r"^\[\d+\] ", "", line) for line in lines if re.search(r"(^|\] )ringside: |WARNING: ThreadSanitizer|^ +(Read|Write|Previous \w+) of size|#0 .*publish", line)]
    told = [each for each in told if not re.search(r"what each rank was doing|ended with exit code|went on after", each)]
    return told[:6] + [f"post-mortem: {line}" for line in text(folder / "postmortem").strip().split("\n")[:6] if line]


def outputs(sick, well, commands):
    """What a further command prints here and not with the reference; times and speeds are left out."""
    says = []
    plain = lambda line: re.sub(r"\d+(\.\d+)? (ms|us|s)\b|\d:\d\d|[\d.]+k? tokens/s|\d+ % comm\w+|[\d.]+ %", "", line).strip()
    for number, command in enumerate(commands[1:], 1):
        known = {plain(line) for line in text(well / f"output{number}").split("\n")}
        new = [line.strip() for line in text(sick / f"output{number}").split("\n") if plain(line) not in known]
        says += [f"ringside {command}: {line}" for line in new[:4]]
    return says


def losses(sick, well):
    """The first step whose loss differs."""
    mine, other = (re.findall(r"^step (\d+)/\d+  loss ([\d.]+)", text(folder / "output"), flags=re.M) for folder in (sick, well))
    return [f"step {step}: the loss is {loss}, the reference's {expected}" for (step, loss), (_, expected) in zip(mine, other) if loss != expected][:1]


# ---- The notes of observe.hpp

def notes_of(folder):
    """[rank][step - 1]"""
    files = sorted(folder.glob("[0-9]*.jsonl"), key=lambda file: int(file.stem))
    return [[json.loads(line) for line in text(file).strip().split("\n") if line.endswith("}")] for file in files]


def notes(sick, well):
    mine, other = notes_of(sick), notes_of(well)
    says = []
    for step, steps in enumerate(zip(*mine)):
        expected = [rank[step] for rank in other if step < len(rank)]
        if len(expected) == len(steps):
            says += one_step(step + 1, steps, expected)
        if says:  # what follows from it shows in later steps
            break
    return says


def one_step(step, ranks, expected):
    says = []
    for rank in range(1, len(ranks)):
        if ranks[rank]["drawn"] == ranks[0]["drawn"] and expected[rank]["drawn"] != expected[0]["drawn"]:
            says.append(f"step {step}: rank {rank} has drawn the same text as rank 0")
        a, b = ranks[0]["gradient_norm"], ranks[rank]["gradient_norm"]
        if abs(a - b) > 1e-6 * abs(a) and expected[0]["gradient_norm"] == expected[rank]["gradient_norm"]:
            says.append(f"step {step}: the norm of the gradients is {a:.4f} on rank 0, {b:.4f} on rank {rank}")
        for kind, what in (("gradients", "the gradient of"), ("parameters", "parameter")):
            differ = [name for name in ranks[0][kind] if name in ranks[rank][kind] and ranks[0][kind][name] != ranks[rank][kind][name]
                      and expected[0][kind].get(name) == expected[rank][kind].get(name)]
            if differ:
                more = f", and {len(differ) - 1} more" if len(differ) > 1 else ""
                says.append(f"step {step}: {what} {differ[0]} differs between rank 0 and rank {rank}{more}")
    ratios = [ranks[0]["gradients"][name] / norm for name, norm in expected[0]["gradients"].items() if norm and name in ranks[0]["gradients"]]
    if ratios and max(ratios) - min(ratios) < 1e-3 * (1 + max(ratios)) and abs(ratios[0] - 1) > 1e-6:
        says.append(f"step {step}: the gradients are {ratios[0]:.2f} times those of the reference")
    elif off := [name for name, norm in expected[0]["gradients"].items() if abs(ranks[0]["gradients"].get(name, 0) - norm) > 1e-6 * (norm + 1e-9)]:
        says.append(f"step {step}: the gradient of {off[0]} is not that of the reference on rank 0, nor {len(off) - 1} more")
    return says


# ---- The trace: order of calls, and memory

class Trace:
    def __init__(self, file):
        self.events = json.loads(file.read_text())["traceEvents"]
        self.ranks = sorted({each["pid"] for each in self.events})

    def spans(self, rank, category):
        return [each for each in self.events if each["pid"] == rank and each.get("cat") == category]

    def steps(self, rank):
        return sorted((each for each in self.spans(rank, "phase") if re.fullmatch(r"step \d+", each["name"])), key=lambda each: each["ts"])

    def within(self, rank, category, begin, end, time="ts"):
        at = lambda each: each["args"]["queued_us"] if time == "queued" else each["ts"]
        return [each for each in self.spans(rank, category) if begin <= at(each) <= end]

    def calls(self, rank, step):
        """Calls made in this step; of these, made while backward ran; waits while backward ran."""
        begin, end = step["ts"], step["ts"] + step["dur"]
        backward = [each for each in self.spans(rank, "phase") if each["name"] == "backward" and begin <= each["ts"] <= end]
        during = [(each["ts"], each["ts"] + each["dur"]) for each in backward]
        return (len(self.within(rank, "call", begin, end, "queued")), sum(len(self.within(rank, "call", *each, "queued")) for each in during),
                sum(len(self.within(rank, "wait", *each)) for each in during))

    def peaks(self, rank):
        """MB at the peak, by kind."""
        seen = [each["args"] for each in self.events if each["pid"] == rank and each["ph"] == "C"]
        return {kind: max(each[kind] for each in seen) for kind in seen[0]} if seen else {}


def traces(mine, other):
    says = []
    for number, (step, expected) in enumerate(zip(mine.steps(0), other.steps(0)), 1):
        made, early, waits = mine.calls(0, step)
        known, known_early, known_waits = other.calls(0, expected)
        if made != known:
            says.append(f"step {number}, rank 0: {made} calls, the reference makes {known}")
        if early < known_early and made == known:
            says.append(f"step {number}, rank 0: {early} of {made} calls had started when backward ended, the reference's {known_early}")
        if waits > known_waits:
            says.append(f"step {number}, rank 0: backward stood still in {waits} waits, the reference in {known_waits}")
        if says:
            break
    for kind, expected in other.peaks(0).items():
        for rank in mine.ranks:
            here, there = mine.peaks(rank).get(kind, 0), other.peaks(rank).get(kind, 0)
            if here > 1.2 * there and here - there > 0.1:
                says.append(f"rank {rank}: {here:.1f} MB of {kind} at the peak, the reference {there:.1f} MB")
                break
    return says
