"""`./exercise report`: the report on a measured training step, measure/report.md, beside the files that the program wrote.

Each row of a table is computed again from the files, and each question must have an answer. What the answers are worth, a reader
decides: exercises/measure/handout.en.md has the task, rubric.md what to look for.
"""
import json
import re
import statistics
from pathlib import Path
from typing import Callable, NamedTuple

import cut

COMMANDS = ("train --model tiny --threads 1 --steps 24 --metrics measure/steps.jsonl --trace measure/trace.json",
            "bench train --model tiny --threads 1 --json measure/step.json")
FEWEST = 10  # steps after the warm-up
WORDS = 12  # of an answer; a Chinese character counts as half a word


class Measured:
    """What the files in `folder` say. Throws ValueError with a sentence where one is missing or is not what the command writes."""

    def __init__(self, folder):
        def read(name, parse):
            try:
                return parse((folder / name).read_text())
            except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
                raise ValueError(f"measure/{name} is missing, or is not what the program writes ({type(error).__name__})") from None

        self.steps = read("steps.jsonl", lambda text: [1000 * json.loads(line)["step_seconds"] for line in text.splitlines() if "step_seconds" in line])  # ms
        self.step = read("step.json", lambda text: json.loads(text)[0])
        events = read("trace.json", lambda text: json.loads(text)["traceEvents"])
        one_step = next((each for each in events if each.get("cat") == "phase" and each["name"].startswith("step ")), None)
        memory = [each for each in events if each["ph"] == "C" and one_step and one_step["ts"] <= each["ts"] <= one_step["ts"] + one_step["dur"]]
        if len(memory) < 2:
            raise ValueError("measure/trace.json has no step with its memory")
        within = lambda each, name: any(phase["name"] == name and phase["ts"] <= each["ts"] <= phase["ts"] + phase["dur"]
                                        for phase in events if phase.get("cat") == "phase")
        ends = {round(each["ts"] + each["dur"], 2): each["name"] for each in events if each.get("cat") == "op"}
        after = lambda each: ends.get(round(each["ts"], 2), "nothing")
        total = lambda each: sum(each["args"].values())  # MB
        top = max(memory, key=total)
        self.peak, self.at_peak, self.activations = total(top), after(top), 100 * top["args"]["activations"] / total(top)
        rises = [(total(b) - total(a), after(b)) for a, b in zip(memory, memory[1:]) if within(b, "forward")]
        self.rise = max(rises)[0]
        self.risen = {name for rise, name in rises if rise > 0.99 * self.rise}

    def rest(self, warm_up):
        return self.steps[warm_up:]

    def time_of(self, op):
        return op["forward_ms"] + op["backward_ms"]

    def slowest(self):
        return max(self.step["ops"], key=self.time_of)


class Row(NamedTuple):
    id: str
    label: dict
    kind: str  # number, name or shape
    expected: Callable  # (measured, warm-up steps) -> a number, or the names that are right
    unit: str = ""
    near: float = 0.02


def spread(rest):
    return 100 * (max(rest) - min(rest)) / statistics.median(rest)


SECTIONS = [
    ({"en": "The time of a step", "zh": "一步的时间"}, [
        Row("warm-up", {"en": "steps left out as warm-up", "zh": "作为预热略去的步数"}, "number", lambda m, w: w),
        Row("median", {"en": "median of the other steps, ms", "zh": "其余各步的中位数，毫秒"}, "number", lambda m, w: statistics.median(m.rest(w)), "ms"),
        Row("first-step", {"en": "first step, over the median", "zh": "第一步与中位数之比"}, "number", lambda m, w: m.steps[0] / statistics.median(m.rest(w)), "times"),
        Row("spread", {"en": "slowest less fastest of the others, % of the median", "zh": "其余各步最慢与最快之差，占中位数的 %"}, "number",
            lambda m, w: spread(m.rest(w)), "%", 0.05)],
     {"en": "What does the first step do that the others do not, and how would the mean of all steps differ from the median?",
      "zh": "第一步做了哪些其余各步不做的事？所有步的平均值与中位数会差多少？"}),
    ({"en": "Where the time goes", "zh": "时间花在哪里"}, [
        Row("slowest-op", {"en": "operation with the most time", "zh": "用时最多的运算"}, "name", lambda m, w: {m.slowest()["op"]}),
        Row("its-share", {"en": "its share of the step, %", "zh": "它占一步的 %"}, "number", lambda m, w: 100 * m.time_of(m.slowest()) / m.step["step_ms"], "%"),
        Row("backward", {"en": "its backward, over its forward", "zh": "它的反向与前向之比"}, "number",
            lambda m, w: m.slowest()["backward_ms"] / m.slowest()["forward_ms"], "times"),
        Row("products", {"en": "matrix products alone, % of the step", "zh": "单独做矩阵乘法，占一步的 %"}, "number",
            lambda m, w: 100 * m.step["gemm_alone_ms"] / m.step["step_ms"], "%")],
     {"en": "Why does backward of this operation take as many times as long as its forward, and what is the rest of the step?",
      "zh": "这个运算的反向为什么是前向的这么多倍？一步中其余的时间是什么？"}),
    ({"en": "The hill of memory", "zh": "内存的“山”"}, [
        Row("peak", {"en": "peak, MB", "zh": "峰值，MB"}, "number", lambda m, w: m.peak, "MB"),
        Row("at-the-peak", {"en": "operation that has just ended at the peak", "zh": "到达峰值时刚结束的运算"}, "name", lambda m, w: {m.at_peak}),
        Row("activations", {"en": "activations at the peak, %", "zh": "峰值时激活占的 %"}, "number", lambda m, w: m.activations, "%"),
        Row("rise", {"en": "largest rise by one operation in forward, MB", "zh": "前向中一个运算带来的最大增量，MB"}, "number", lambda m, w: m.rise, "MB"),
        Row("risen", {"en": "an operation that makes it", "zh": "带来它的一个运算"}, "name", lambda m, w: m.risen),
        Row("tensor", {"en": "shape of the tensor that it leaves", "zh": "它留下的张量的形状"}, "shape", lambda m, w: m.rise)],
     {"en": "Which tensors does forward leave for backward, in which operation does memory begin to fall, and why there?",
      "zh": "前向为反向留下了哪些张量？内存从哪个运算开始下降，为什么在那里？"}),
]


def template(lang):
    said = lambda text: cut.said(text, lang)
    lines = []
    for title, rows, question in SECTIONS:
        lines += [f"## {said(title)}", "", "| | |", "|---|---|", *(f"| {said(row.label)} | |" for row in rows), "", f"> {said(question)}", "", ""]
    return "\n".join(lines)


def cell_of(text, row):
    """What the student wrote in this row; None if there is no such row."""
    for label in row.label.values():
        if found := re.search(rf"^\| *{re.escape(label)} *\|([^|\n]*)\|", text, re.M):
            return found[1].strip()
    return None


def answer_to(text, question):
    for said in question.values():
        if (at := text.find(f"> {said}")) >= 0:
            return re.split(r"^(?:#|>)", text[at + len(said) + 2:], maxsplit=1, flags=re.M)[0].strip()
    return ""


def words(text):
    return len(re.findall(r"[A-Za-z0-9][\w.,%-]*", text)) + len(re.findall(r"[\u4e00-\u9fff]", text)) / 2


def fault_of(row, cell, measured, warm_up):
    """A sentence, or None."""
    if cell is None:
        return "the table has no such row: `./exercise report` writes an empty report where there is none"
    expected = row.expected(measured, warm_up)
    if row.kind == "name":
        return None if cell.strip("`") in expected else f"you write {cell or 'nothing'}; the files say {' or '.join(sorted(expected))}"
    if row.kind == "shape":
        elements = 1
        for size in re.findall(r"\d+", cell):
            elements *= int(size)
        megabytes = elements * 4 / 1e6 if cell else 0
        return None if abs(megabytes - expected) < 0.005 * expected else f"{cell or 'nothing'} has {megabytes:.3f} MB in fp32, and the rise is {expected:.3f} MB"
    number = re.match(r"\d+(?:\.\d*)?", cell.replace(",", ""))
    if not number:
        return "has no number"
    if abs(float(number[0]) - expected) <= max(row.near * abs(expected), 0.051):
        return None
    says = f"you write {number[0]}; the files say {expected:.4g} {row.unit}".rstrip()
    others = {"median": {"the mean of these steps": statistics.mean(measured.rest(warm_up)), "the median with the warm-up": statistics.median(measured.steps),
                         "the mean of all steps": statistics.mean(measured.steps)}}.get(row.id, {})
    named = next((name for name, value in others.items() if abs(float(number[0]) - value) <= 0.002 * value), None)
    return f"{says}: you give {named}" if named else says


def checked(folder):
    """[(id, fault or None)] of all parts. Throws ValueError where the files are missing."""
    measured, text = Measured(folder), (folder / "report.md").read_text(errors="replace")
    given = re.match(r"\d+", cell_of(text, SECTIONS[0][1][0]) or "")
    warm_up = int(given[0]) if given else 0
    parts = []
    if not given or warm_up < 1:
        parts.append(("warm-up", "leave out one step or more: the first one is not like the others"))
    elif len(measured.rest(warm_up)) < FEWEST:
        parts.append(("warm-up", f"{len(measured.rest(warm_up))} steps are left after it, expected {FEWEST} or more"))
    else:
        parts.append(("warm-up", None))
    usable = warm_up if measured.rest(warm_up) else 0
    for number, (_, rows, question) in enumerate(SECTIONS, 1):
        parts += [(row.id, fault_of(row, cell_of(text, row), measured, usable)) for row in rows if row.id != "warm-up"]
        seen = words(answer_to(text, question))
        parts.append((f"question {number}", None if seen >= WORDS else f"{seen:.0f} words, expected {WORDS} or more"))
    return parts


def report(course, lang, ringside):
    """Prints what is there and what is not. Returns whether the report has all of its parts."""
    folder = Path(course) / "measure"
    folder.mkdir(exist_ok=True)
    if not (folder / "report.md").exists():
        (folder / "report.md").write_text(template(lang))
        print("wrote measure/report.md, an empty report. Measure:\n\n" + "\n".join(f"    {ringside} {each}" for each in COMMANDS) +
              "\n\nThen fill in the report, and type ./exercise report again.")
        return False
    try:
        parts = checked(folder)
    except ValueError as error:
        print(f"{error}. Measure:\n\n" + "\n".join(f"    {ringside} {each}" for each in COMMANDS))
        return False
    print(f"measure/report.md: {sum(fault is None for _, fault in parts)} of {len(parts)} parts")
    for name, fault in parts:
        print(f"  {'✗' if fault else '✓'} {name:<12}{' ' + fault if fault else ''}".rstrip())
    return all(fault is None for _, fault in parts)
