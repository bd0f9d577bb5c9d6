"""The proof that the judges work (exercises-test):

    selftest.py KIT anchors        every text that exercise.json names occurs once in the reference, and every edit of the clinic; there are three wrong answers
                                   and three variants; what a handout refuses in words has a test; hints keep to the terms of docs/glossary.md in both languages
    selftest.py KIT exported       two exports are equal, without model answers; every starter in them is "not written", and every line
                                   `./exercise ringside ...` of their handouts runs; exports of two architectures can be joined, and a course
                                   says which it has; of a portable build, programs need nothing but libc, libstdc++ and a BLAS
    selftest.py KIT references     the reference in namespace student is right over threads, shm and tcp, and its verdict has the forms of `formats`
    selftest.py KIT variants       right answers in another form (exercises/NN/variants/*.patch) have full points; --quick: one world of each case
    selftest.py KIT kernels        judges that multiply matrices give the reference full points with each kernel of the BLAS that the processor has, with 1 and 2 threads
    selftest.py KIT programs       answers in Python, of any exercise that takes a program, are right, by --program and as answer.py in its folder, and a program that
                                   fails is told so
    selftest.py KIT python         answers with torch, of the exercises that have this form: the reference has full points, hidden worlds included, so do the variants, the
                                   starter is "not written", wrong answers and attacks are told what they are, and a class is graded; --sample: the reference in one world
                                   of each case, the starter, and every fourth of the others. Skipped where there is no torch
    selftest.py KIT cs336          repositories in the form of CS336's assignment 2, with tests that look at the last weights: a right one passes theirs and ours, calls
                                   after backward and plain AdamW pass theirs alone, and are named. Skipped where there is no torch
    selftest.py KIT trainings      with `./exercise train` the reference trains as Ringside's own strategy does, to the bit (44, which computes itself: to 1e-9), and a starter says what is
                                   missing; on meshes with tensor and pipeline parallel it has the numbers of one process
    selftest.py KIT cuda           nvcc compiles the reference of each exercise with a gpu.cu, and its kernels are not empty; on a GPU they give the
                                   CPU's numbers; `./exercise gpu` says what is missing. Skipped where there is no nvcc or no GPU
    selftest.py KIT seeds          the reference is right for the data of 20 students
    selftest.py KIT steady         the reference is right in 100 (or --runs=N) runs over each transport in turn, by turns on all cores and on one that a process keeps busy
    selftest.py KIT stubs          each starter is "not written", and with a syntax error "does not compile"
    selftest.py KIT wrong          each wrong answer fails in its case with its sentence
    selftest.py KIT weak           what passes tests that judge like CS336's, and where it is caught here, as in the table of instructors.md
    selftest.py KIT formats        verdicts of a wrong answer of each exercise, and of a starter, written for Gradescope and Classroom 50, have their published form;
                                   --sample: of every fifth exercise
    selftest.py KIT clinic         each bug of the clinic is diagnosed by its own sentence, and the reference is not
    selftest.py KIT debugger       gdb takes every command of the handouts, in the reference
    selftest.py KIT own            an instructor's own exercise: `new`, filled in as exercises/example is, `check`, export, grade
    selftest.py KIT submissions    folders and archives of all forms are found, what is none is refused by name, and a class in both is graded; damaged and
                                   endless archives, links, names and texts of other encodings, folders below /mnt and Ctrl-C do no harm;
                                   without a compiler a check says what to install
    selftest.py KIT leaderboard    right answers of 15 are ranked; a wrong one, one that averages small models only, and one that prints a speed of its own, are not
    selftest.py KIT report         a report on a measured step that is filled in from the files has all parts; one with the mean for the median, without
                                   warm-up, with another tensor or without an answer is told so
    selftest.py KIT slides         every handout makes slides, with its figure and nothing from outside; in a browser each slide holds its text
    selftest.py KIT class          60 submissions of five exercises in one run, one a fork bomb, one that fills the disk, one that never compiles: all others
                                   have their points; prints the time
    selftest.py KIT families       the answers named in exercises/families.md have the points or the sentence that are due; --sample: the wrong ones that are first in a row;
                                   prints the time
    selftest.py KIT attacks        code that tries to get around the judge ends in its status

--piece=K/N proves every Nth exercise, from the Kth on.
"""
import ast
import atexit
import concurrent.futures
import functools
import io
import itertools
import json
import lzma
import multiprocessing
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import tracemalloc
import unittest.mock
import xml.etree.ElementTree
import zipfile
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clinic"))
import clinic as clinics
import cs336
import cut
import findings
import formats as forms
import handouts
import instructor
import kit as kits
import meshes
import published
import report as reports
import submissions
import torch_form

COURSE_KEY = b"exercises-test"
TRANSPORTS = ("threads", "shm", "tcp")


def checked(kit, exercise, files, prefix="ringside-selftest-", **how):
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        cut.write(files, folder)
        how.setdefault("seed", kits.seed_of(COURSE_KEY, "nobody", exercise["id"]))
        how.setdefault("deadline", kits.PATIENT)
        return kits.check(kit, exercise, folder, Path(folder) / "build", **how)


def checked_reference(kit, exercise, runs):
    """The verdict of the reference in each of these runs, named arguments of kit.check; it is compiled once."""
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        cut.write(cut.student_files(kit.root, exercise, stub=False), folder)
        compiled = kits.compile_student(kit, exercise, folder, Path(folder) / "build")
        for how in runs:
            yield kits.check(kit, exercise, folder, None, compiled=compiled, deadline=kits.PATIENT, **how)


def described(verdict):
    return "; ".join(f"{case['id']}: {case['status']} {case.get('says', [''])[:3]}" for case in verdict["cases"] if case["status"] != "right")


def references(kit, exercise):
    os.environ["OPENBLAS_CORETYPE"] = "Haswell"  # the caller's choice must not reach ranks or judge
    runs = [{"transport": each, "seed": kits.seed_of(COURSE_KEY, each, exercise["id"]), "hidden": True} for each in TRANSPORTS]
    for transport, verdict in zip(TRANSPORTS, checked_reference(kit, exercise, runs)):
        if verdict["status"] != "right" or verdict["score"] != exercise["points"]:
            yield f"the reference over {transport}: {verdict['status']}, {verdict['score']} points: {described(verdict)}"
    yield from formats_of_right(kit, exercise, verdict)


def in_one_world(exercise):
    """Its cases in their smallest world alone."""
    return {**exercise, "cases": [{**case, "worlds": case["worlds"][:1]} for case in exercise["cases"]]}


def variants(kit, exercise):
    if "--quick" in sys.argv:
        exercise = {**exercise, "cases": [{**case, "worlds": case["worlds"][-1:] if case["worlds"][-1] < 4 else case["worlds"][-2:-1] or case["worlds"]}
                                          for case in exercise["cases"]]}
    for patch in cut.variants_of(exercise):
        yield from variant(kit, exercise, patch)


def variant(kit, exercise, patch):
    verdict = checked(kit, exercise, cut.answer_files(kit.root, exercise, patch), deadline=kits.PATIENT, hidden="--quick" not in sys.argv)
    if verdict["status"] != "right" or verdict["score"] != exercise["points"]:
        yield f"the variant {patch.stem}: {verdict['status']}, {verdict['score']} points: {described(verdict)}"


def kernels(kit, exercise):
    """One world of each case: OPENBLAS_CORETYPE chooses the kernel."""
    if not exercise.get("multiplies"):
        return
    flags = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0]))
    cores = ["Haswell", "Zen"] * ("avx2" in flags) + ["SkylakeX"] * ("avx512f" in flags)
    runs = [{"environment": {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": str(threads)}} for core in cores for threads in (1, 2)]
    for run, verdict in zip(runs, checked_reference(kit, in_one_world(exercise), runs)):
        if verdict["status"] != "right":
            yield f"the reference with {run['environment']}: {described(verdict)}"


def programs(kit, exercise):
    if not exercise.get("any_language"):
        return
    answers = shlex.join([sys.executable, str(Path(__file__).with_name("answers.py"))])
    verdict = checked(kit, exercise, {}, command=answers, deadline=kits.PATIENT)
    if verdict["status"] != "right":
        yield f"answers.py: {described(verdict)}"
    files = {**cut.student_files(kit.root, exercise), "answer.py": program_text()}
    for what, code, says in (("answer.py beside the starter", files, None), ("two programs", {**files, "answer": "#!/bin/sh\n"}, "answer and answer.py are programs: keep one"),
                             ("a wrong program beside a right answer", {**cut.student_files(kit.root, exercise, stub=False), "answer.py": "print(0)\n"}, None),
                             ("no program", {"answer.js": "console.log(0)\n"}, "answer.js is no program: expected a first line such as #!/usr/bin/env node")):
        if exercise["id"] != "04-barrier" and "beside" not in what:
            continue  # once is enough
        verdict = checked(kit, in_one_world(exercise), code, deadline=kits.PATIENT)
        if (verdict["score"] != exercise["points"]) == (says is None) or (says or "") not in described(verdict):
            yield f"{what}: expected {says or 'full points'}; {verdict['status']}: {described(verdict)}"
    for command, says in (("exit", "ended without an answer to"), ("echo hello; cat", "expected one line of JSON"),
                          ("echo '{}'; cat", "has not the form that programs.md shows|has no integer 'chunks'")):
        verdict = checked(kit, exercise, {}, command=f"sh -c {shlex.quote(command)}", only=exercise["cases"][0]["id"])
        if not re.search(says, str(verdict["cases"][0].get("says", [""])[0])):
            yield f"a program that does \"{command}\": expected \"{says}\"; {described(verdict)}"


def python(kit, exercise):
    if not torch_form.offered(exercise):
        return
    if not torch_form.installed_torch():
        print(f"SKIPPED: {exercise['id']} in Python, because there is no torch (RINGSIDE_TORCH_PYTHON names a Python that has it)", flush=True)
        return
    judged = lambda text, of=exercise, **how: checked(kit, of, {torch_form.file_of(exercise): text}, language="python", **how)
    file, text, seen = torch_form.file_of(exercise), torch_form.reference(exercise), torch_form.view(exercise)
    sample = "--sample" in sys.argv
    some = (lambda answers: answers[::4]) if sample else list
    right = judged(text, of=in_one_world(exercise) if sample else exercise, hidden=not sample)
    if right["status"] != "right" or right["score"] != exercise["points"]:
        yield f"the reference in Python: {right['status']}, {right['score']} points: {described(right)}"
    elif right["seconds"] > 30:
        print(f"{exercise['id']} in Python: {right['seconds']:.0f} s, {'one world of each case' if sample else 'hidden worlds included'}", flush=True)
    starter = torch_form.starter(exercise)
    for what, code, status, says in (("the starter", starter, "not written", f"{file}:"), ("a syntax error", text + "\nif\n", "does not compile", f"{file}:{text.count(chr(10)) + 2}: error: "),
                                     ("an exception", text + "\n1 / 0\n", "wrong", f"ZeroDivisionError: division by zero ({file}:")):
        if sample and what != "the starter":
            continue
        verdict = judged(code, of=in_one_world(exercise))
        if verdict["status"] != status or says not in described(verdict):
            yield f"{what} in Python: expected {status}, {says}; {described(verdict) or verdict['status']}"
    for patch in some(torch_form.variants_of(exercise)):
        verdict = judged(torch_form.variant(exercise, patch), of=in_one_world(exercise))
        if verdict["status"] != "right":
            yield f"the variant {patch.stem} in Python: {described(verdict)}"
    for answer in some(seen["wrong"]):
        if list(wrong_in_python(exercise, answer, judged, kits.DEADLINE)):  # on a busy machine: once more, with patience
            yield from wrong_in_python(exercise, answer, judged, kits.PATIENT)
    yield from attacked_in_python(exercise, some([each for each in exercise.get("attacks", []) if "python" in each]), judged)
    number = exercise["id"][:2]
    yield from attacked_in_python(exercise, LEDGER_ATTACKS if number == "19" else [], judged)
    yield from written_in_part(exercise, judged, *WRITTEN_IN_PART.get(number, ()))
    yield from not_a_number(exercise, judged, NOT_A_NUMBER.get(number, {}))
    if number == "13":  # once is enough
        yield from named_in_python(kit, exercise, judged)
        yield from forms_in_one_folder(exercise)
        yield from graded_in_python(kit, exercise)


# The functions that are written, and the cases that are right then: all others are "not written", and none is wrong.
WRITTEN_IN_PART = {
    "13": ({"replicate", "DDP.__init__"}, set()), "17": ({"DDP.start_over", "DDP.on_gradient", "DDP.launch"}, set()),
    "19": ({"ShardedOptimizer.add_param_group", "ShardedOptimizer.choose_owners"}, set()), "24": ({"part_of"}, {"parts"}), "30": ({"accumulated"}, {"sums"}),
    "31": ({"best_group", "kept"}, {"best", "kept"}), "42": ({"pieces_of"}, {"order"}), "43": ({"route"}, {"route"})}


def written_in_part(exercise, judged, written=(), right=()):
    if not written:
        return
    verdict = judged(torch_form.starter(exercise, written), of=in_one_world(exercise))
    seen = {case["id"]: case["status"] for case in verdict["cases"]}
    if seen != {id: "right" if id in right else "not written" for id in seen}:
        yield f"with {', '.join(sorted(written))} alone, expected {', '.join(right) or 'no case'} to be right, and the others not written; {described(verdict)}"
    if not all(re.search(r"is not yet written \(\w+\.py:\d+\)$", each) for case in verdict["cases"] for each in case.get("says", [])):
        yield f"with {', '.join(sorted(written))} alone, expected the line of a function that is not yet written; {described(verdict)}"


# By case: what is added to the reference, so that a number of its answer is nan.
GRADIENTS = """
import math
class NotANumber(NAME):
    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        for each in OF:
            each.grad = None if each.grad is None else each.grad * math.nan
NAME = NotANumber
"""
FUNCTION = """
import math
wrapped = NAME
def NAME(*arguments):
    return wrapped(*arguments) * math.nan
"""
NOT_A_NUMBER = {
    **dict.fromkeys(("13", "14", "15", "17"), {"gradients": GRADIENTS.replace("OF", "self.module.parameters()").replace("NAME", "DDP")}),
    "19": {"same-bits": """
import math
class NotANumber(ShardedOptimizer):
    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            self.param_groups[0]["params"][0].mul_(math.nan)
ShardedOptimizer = NotANumber
"""},
    "20": dict.fromkeys(("gradients", "micro-batches", "uneven"), """
import math
class NotANumber(ShardedGradients):
    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        for each in self.shards:
            each *= math.nan
ShardedGradients = NotANumber
"""),
    "21": dict.fromkeys(("training", "mixed"), GRADIENTS.replace("OF", "self.shards").replace("NAME", "FSDP")),
    "24": {"values": FUNCTION.replace("NAME", "row_linear"), "parts": FUNCTION.replace("NAME", "part_of")},
    "31": {"gradients": FUNCTION.replace("NAME", "checkpoint")}, "45": {"forward": FUNCTION.replace("NAME", "forward_gathered")}}


def not_a_number(exercise, judged, added):
    """A number that JSON does not have is a wrong one, and no error of the judge."""
    for case, code in added.items():
        verdict = judged(torch_form.reference(exercise) + code, of=in_one_world(exercise), only=case)["cases"][0]
        if verdict["status"] != "wrong" or not re.search(r"\bnan\b", verdict["says"][0]):
            yield f"with nan for a number, expected {case} to be wrong, with a sentence on nan; {verdict['status']}: {verdict.get('says', ['nothing is said'])[0]}"


# Words that are torch's or Python's elsewhere, behind the mark with which some editors begin a file.
OWN_NAMES = """
load, library, save, fx, vars = [0], {}, None, {"open": 1, "load": 2}, 3
class Reducer:
    def __init__(self):
        self.open, self._fsdp_shard = set(), load
    def _sync_params(self):
        dist = {}
        dist["save"] = self.open or self._fsdp_shard
        return dist
class Joined(DDP):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)
    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        assert Reducer()._sync_params()["save"] == load and not hasattr(self, "__miss" + "ing__") and self._fsdp_shard[fx["open"]] == vars
    def _fsdp_shard_of(self):
        return self.module.load
DDP = Joined
DDP._fsdp_shard = (load, vars)
if __name__ == "__main__":
    DDP = None
"""
# What is refused before it runs, and a word of the sentence.
REFUSED = [
    ("torch.save(1, 'file')", "save"), ("under = torch\nunder.load('file')", "load"), ("from torch import *\nsave(1, 'file')", "save"), ("from torch import save", "save"),
    ("import torch.nn.parallel", "nn.parallel"), ("import torch, torch.os", "os"), ("def of(any):\n    return any.ZeroRedundancyOptimizer", "ZeroRedundancyOptimizer"),
    ("dist.algorithms", "algorithms"), ("__loader__.get_data('file')", "__loader__"), ("__builtins__", "__builtins__"), ("object.__setattr__(torch, 'ones', 1)", "__setattr__"),
    ("torch.__getattr__('name')", "__getattr__"), ("class Any:\n    def of(self, name):\n        return super(dict, self).__getattr__(name)", "__getattr__"),
    ("super = dict", "super"), ("def of(super):\n    pass", "super"), ("from math import pi as super", "super"), ("class Any:\n    def of(self):\n        __class__ = 1", "__class__"),
    ("from torch import Tensor\nTensor.numel = None", "changes Tensor.numel"), ("def of():\n    torch.ones = None", "changes torch.ones"),
    ("def of():\n    [dist for dist in ()]\n    dist.barrier = None", "changes dist.barrier"), ("def of():\n    global dist\n    dist = 1\n    dist.barrier = None", "changes dist.barrier")]
# What is refused where it runs: names that are put together, and functions that Python has.
REFUSED_LATER = [
    "open('file')", "getattr(torch, 's' + 'ave')", "def of(any):\n    any.save(1, 'file')\nof(torch)",
    "import typing\nclass Any:\n    def of(self):\n        return super().__getattr__('_dyn' + 'amo')\ntype('Both', (Any, type(typing.List[int])), {}, _root=True)(torch, (), name='any').of()"]


def named_in_python(kit, exercise, judged):
    verdict = judged("\ufeff" + torch_form.reference(exercise) + OWN_NAMES, of=in_one_world(exercise))
    if verdict["status"] != "right":
        yield f"words of its own: {described(verdict)}"
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        for code, word in REFUSED:
            Path(folder, "answer.py").write_text(f"import torch\nimport torch.distributed as dist\n{code}\n")
            told = torch_form.parent_of(kit).ask({"check": f"{folder}/answer.py"})
            if told.get("status") != "forbidden" or word not in told["says"]:
                yield f"expected {code!r} to be forbidden, with a sentence on {word}; {told}"
    for code in REFUSED_LATER:
        verdict = judged(f"{torch_form.reference(exercise)}\n{code}\n", of=in_one_world(exercise), only="replicas")
        if "a rank has only its group to talk to others" not in described(verdict):
            yield f"expected {code!r} to be refused where it runs; {described(verdict) or verdict['status']}"


# Plain AdamW on every rank that hides its state: the first line of step() is HIDES.
ADAMW = """
HIDDEN = type("Tensor", (), {})


def hide(t):
    t.Tensor = HIDDEN


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        super().__init__(params, kwargs)

    def owner(self, parameter):
        return 0

    @torch.no_grad()
    def step(self):
        HIDES
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p] or {"steps": 0, "mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
                self.state[p] = state
                state["steps"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state["mean"].lerp_(p.grad, 1 - 0.9)
                state["square"].mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
                root = (state["square"].sqrt() / (1 - 0.999 ** state["steps"]) ** 0.5).add_(1e-8)
                p.addcdiv_(state["mean"], root, value=-group["lr"] / (1 - 0.9 ** state["steps"]))
"""
LEDGER_ATTACKS = [{"id": f"python-hides-{what}", "status": {"tcp": status}, "says": says, "python": ADAMW.replace("HIDES", hides)} for what, status, says, hides in (
    ("by-an-alias", "forbidden", "changes t.Tensor: what is torch's stays as it is", "t = torch; t.Tensor = HIDDEN"),
    ("in-a-function", "wrong", "of optimizer state (100 % of all)", "hide(torch)"),
    ("behind-large-parameters", "wrong", "of optimizer state (100 % of all)", "type(self.param_groups[0]['params'][0]).nbytes = property(lambda parameter: 10**6)"))]


def forms_in_one_folder(exercise):
    """The better form counts, also where none is whole; a starter beside something else does not."""
    names, count = [Path(file).name for file in cut.files_of(exercise)], len(exercise["cut"])
    python, cpp = {"language": "python"}, {}
    for in_python, in_cpp, expected in ((count, 0, [cpp]), (count, 1, [cpp]), (1, 1, [python, cpp]), (1, 0, [cpp, python]), (0, count, [python]), (count, count, [python])):
        with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
            cut.write({torch_form.file_of(exercise): " is not yet written\n" * in_python, **dict.fromkeys(names, ""), names[0]: "not_written_yet(\n" * in_cpp}, folder)
            if (seen := kits.forms_in(exercise, folder)) != expected:
                yield f"a folder with {in_python} functions to write in Python and {in_cpp} in C++: expected the forms {expected}, got {seen}"


def wrong_in_python(exercise, answer, judged, deadline):
    """What is wrong with its verdict."""
    code = torch_form.edited(exercise, answer)
    verdict = judged(code, only=answer["fails"], deadline=deadline)
    case = verdict["cases"][0]
    if case["status"] == "right" or not any(answer["says"] in each for each in case.get("says", [])):
        yield f"{answer['id']} in Python: expected {answer['fails']} to say \"{answer['says']}\"; {described(verdict) or 'all is right'}"
    if case.get("named") not in (None, answer["id"]):
        yield f"{answer['id']} in Python is named {case['named']}"
    if "--verbose" in sys.argv:
        print(f"{exercise['id']} / {answer['id']} in Python: {case['status']}: {case.get('says', [''])[0]}", flush=True)
    if answer.get("passes_weak"):
        weak = judged(code, of={**exercise, "cases": [exercise["weak"]]})
        if weak["status"] != "right":
            yield f"{answer['id']} in Python does not pass the weak judge: {described(weak)}"


def attacked_in_python(exercise, attacks, judged):
    for attack in attacks:
        (status,) = attack["status"].values()
        verdict = judged(torch_form.reference(exercise) + attack["python"], deadline=3 if status == "hangs" else kits.PATIENT)
        if verdict["status"] != status or attack["says"] not in described(verdict):
            yield f"{attack['id']}: expected {status} {attack['says']}; {described(verdict) or 'all is right'}"
        elif "--verbose" in sys.argv:
            print(f"{attack['id']}: {status}: {described(verdict)[:200]}", flush=True)


def graded_in_python(kit, exercise):
    """A class: right in Python beside the starter in C++, right in C++ beside the starter in Python, and wrong; then with no torch. The Python
    that grades lies in a folder that no submission may read, as below a user's home."""
    file, text = torch_form.file_of(exercise), torch_form.reference(exercise)
    wrong = next(each for each in torch_form.view(exercise)["wrong"] if each["id"] == "sum-not-mean")
    cpp = lambda stub: cut.student_files(kit.root, exercise, stub=stub)
    answers = {"alice": {**cpp(True), file: text}, "bob": {**cpp(False), file: torch_form.starter(exercise)}, "carol": {file: torch_form.edited(exercise, wrong)}}
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        subprocess.run([sys.executable, instructor.__file__, "export", f"{folder}/course", "--exercises", exercise["id"], "--kit", sys.argv[1]],
                       check=True, stdout=subprocess.DEVNULL)
        Path(folder, "key").write_text("0123456789abcdef")
        for student, files in answers.items():
            cut.write(files, Path(folder, "submissions", student, exercise["id"]))

        grader = Path(folder, "python3")
        grader.symlink_to(os.path.realpath(sys.executable))

        def graded(out, **environment):
            done = subprocess.run([grader, instructor.__file__, "grade", f"{folder}/submissions", "--course", f"{folder}/course", "--key", f"{folder}/key",
                                   "--out", f"{folder}/{out}", "--public-only"], capture_output=True, text=True, env={**os.environ, **environment})
            return {student: json.loads(Path(folder, out, f"{student}.json").read_text())["exercises"][0] for student in answers}, done.stderr

        results, errors = graded("results")
        points = {student: result["score"] for student, result in results.items()}
        if points != {"alice": 5, "bob": 5, "carol": 3} or results["carol"]["cases"][1].get("named") != wrong["id"]:
            yield f"graded in Python, the points are {points}: {'; '.join(map(described, results.values()))}; {errors[-500:]}"
        if not has_torch_beside():
            results, _ = graded("without", RINGSIDE_TORCH_PYTHON="")
            if results["alice"]["status"] != "judge error" or "torch is not installed" not in described(results["alice"]) or results["bob"]["score"] != 5:
                yield f"graded without torch: {'; '.join(map(described, results.values()))}"


def has_torch_beside():
    """Whether torch is found also where RINGSIDE_TORCH_PYTHON names none."""
    return any(map(torch_form.torch_of, (sys.executable, shutil.which("python3"))))


def trainings(kit, exercise):
    if not kits.trains(kit, exercise):
        return
    names = {"13": "naive", "14": "flat", "15": "overlap", "17": "bucketed", "19": "zero1_broadcast", "20": "zero2", "21": "zero3", "44": "powersgd"}
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        def trained(strategy, dump):
            return subprocess.run([kit.ringside, "train", "--ranks", "3", "--parallel", strategy, "--steps", "3", "--batch", "6", "--layers", "2",
                                   "--d-model", "32", "--heads", "2", "--sequence", "16", "--bucket-mb", "0.01", "--optimizer", "sgd", "--clip", "0",
                                   "--accumulate", "2", "--dump", f"{folder}/{dump}", *(["--dtype", "fp64"] if exercise.get("lossy") else [])],
                                  capture_output=True, text=True)

        try:
            cut.write(cut.student_files(kit.root, exercise), f"{folder}/starter")
            kits.compile_strategy(kit, exercise, f"{folder}/starter", f"{folder}/build")
            yield "the starter can be trained with, expected not written"
        except kits.Broken as broken:
            if broken.status != "not written":
                yield f"training with the starter: {broken.status}: {broken.says}"
        cut.write(cut.student_files(kit.root, exercise, stub=False), f"{folder}/code")
        kits.compile_strategy(kit, exercise, f"{folder}/code", f"{folder}/build")
        if kits.train_option(exercise) != "--parallel":
            yield from trained_on_meshes(kit, exercise, f"{folder}/build/{exercise['id']}.so")
            if exercise["id"].startswith("24"):
                yield from mesh_command(kit)
            return
        told = trained(f"{folder}/build/{exercise['id']}.so", "reference")
        if told.returncode != 0:
            yield f"training with the reference: exit status {told.returncode}: {told.stderr[-500:]}"
        trained(names[exercise["id"][:2]], "own")
        written = [Path(folder, dump, "step0003.safetensors") for dump in ("reference", "own")]
        if not all(each.exists() for each in written) or not same(exercise, *written):
            yield f"after three steps the parameters or gradients are not those of --parallel {names[exercise['id'][:2]]}"
        if not exercise.get("lossy"):  # on a mesh it has not the numbers of one process
            yield from trained_on_meshes(kit, exercise, f"{folder}/build/{exercise['id']}.so")


def same(exercise, seen, expected):
    """To the bit, if the student's code does no arithmetic; the library is optimised more, so that sums are rounded otherwise."""
    if not exercise.get("lossy"):
        return seen.read_bytes() == expected.read_bytes()
    return meshes.difference(meshes.tensors_in(seen), meshes.tensors_in(expected))[0] < meshes.MOST


@functools.cache
def small_trainings(ringside):
    return meshes.Trainings(ringside, ["--batch", "8", "--micro-batches", "4", "--layers", "2", "--d-model", "32", "--heads", "2", "--sequence", "16"])


def trained_on_meshes(kit, exercise, library):
    """The student's code along its axis, beside the library's along the others: the numbers of one process."""
    on = {"--parallel": ("dp=2,tp=2", "pp=2,dp=2"), "--tensor-parallel": ("dp=2,tp=2", "tp=2,pp=2"), "--schedule": ("pp=2,dp=2", "tp=2,pp=2")}
    for mesh in on[kits.train_option(exercise)]:
        try:
            _, far, name = small_trainings(kit.ringside).compared(mesh, kits.train_option(exercise), library)
            if not far < meshes.MOST:
                yield f"--mesh {mesh}: after three steps {name} differs from that of one process by {far:.3g}"
        except RuntimeError as error:
            yield f"--mesh {mesh}: {str(error)[-300:]}"


def mesh_command(kit):
    """`./exercise mesh` with right answers, with wrong ones of 21 and 24, and with a starter; the last of 19 and 21 that is written takes part."""
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        course = Path(folder, "course")
        subprocess.run([sys.executable, instructor.__file__, "export", course, "--exercises", "19,21,24,26", "--kit", sys.argv[1]], check=True, stdout=subprocess.DEVNULL)

        def write(number, wrong=None, stub=False):
            exercise = kit.find(number)
            answer = next((each for each in exercise["wrong"] if each["id"] == wrong), None)
            cut.write(cut.wrong_files(kit.root, exercise, answer) if answer else cut.student_files(kit.root, exercise, stub=stub), course / exercise["id"])

        def fault(of, typed, status, *patterns):
            done = subprocess.run(["./exercise", "mesh", *typed.split()], cwd=course, capture_output=True, text=True)
            says = done.stdout + done.stderr
            if done.returncode != status or not all(re.search(each, says) for each in patterns):
                yield f"`./exercise mesh {typed}` with {of}: exit status {done.returncode}, expected {status} and {patterns}: {says}"

        for number in ("21", "24", "26"):
            write(number)
        yield from fault("right answers", "", 0, "^21-fsdp 24-tp-linear 26-pipeline-schedule: 3 steps", r"(✓[^✓✗]*){7}$")
        yield from fault("right answers", "pp=2,dp=2,tp=2 --model lab", 0, r"✓ pp=2,dp=2,tp=2 .* differences up to")
        yield from fault("right answers", "tp=2 --model vast", 1, "one process: .*vast")
        write("24", wrong="no-dx-reduce")  # its backward forgets an all-reduce
        yield from fault("no-dx-reduce", "dp=2 tp=2", 1, "✓ dp=2", r"✗ tp=2 +\S+ differs by")
        write("24")
        write("21", wrong="stale-after-step")
        yield from fault("stale-after-step", "pp=2,dp=2,tp=2", 1, r"✗ pp=2,dp=2,tp=2 +\S+ differs by")
        write("21", stub=True)
        write("19")
        yield from fault("the starter of 21", "dp=2", 0, "^19-sharded-optimizer ", "✓ dp=2")
        write("24", stub=True)
        yield from fault("a starter", "", 1, "not written: differentiable.cpp:")


NO_NVCC = "nvcc is not there: install the CUDA Toolkit, and add nvcc to PATH. ./exercise check needs no GPU."


def cuda(kit, exercise):
    if not kits.runs_on_gpu(exercise):
        return
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        course, own = Path(folder, "course"), Path(folder, "course", exercise["id"])
        subprocess.run([sys.executable, instructor.__file__, "export", str(course), "--exercises", exercise["id"], "--kit", sys.argv[1]],
                       check=True, stdout=subprocess.DEVNULL)

        def typed(**environment):
            done = subprocess.run(["./exercise", "gpu", exercise["id"][:2]], cwd=course, capture_output=True, text=True, env={**os.environ, **environment})
            return done.returncode, (done.stdout + done.stderr).strip()

        if typed(PATH="/usr/bin:/bin", CUDA_HOME="/nowhere") != (1, NO_NVCC) and not shutil.which("nvcc", path="/usr/bin:/bin"):
            yield f"without nvcc `./exercise gpu` says {typed(PATH='/usr/bin:/bin', CUDA_HOME='/nowhere')}, expected {NO_NVCC}"
        exported_kit = kits.kit_in(course)  # nvcc finds all that it needs in it
        try:
            cut.write(cut.student_files(kit.root, exercise, stub=False), own)
            if not kits.compile_for_gpu(exported_kit, exported_kit.exercises[0], own, f"{folder}/gpu.ptx", "-arch=sm_90", "-ptx"):
                print(f"SKIPPED: {exercise['id']} on a GPU, because there is no nvcc", flush=True)
                return
        except kits.Broken as broken:
            yield f"nvcc: {broken.says[:5]}"
            return
        # nvcc leaves out, without a word, the call of a function that is not constexpr after all.
        kernels = [text for text in Path(folder, "gpu.ptx").read_text().split(".entry ")[1:] if not re.match(r"\w*(fill_numbers|multiply_in_registers)", text)]
        for kernel in kernels or [""]:
            if not re.search(r"ld\.global|cp\.async", kernel) or "st.global" not in kernel:
                yield f"a kernel neither reads nor writes: {kernel[:200]}"
        status, says = typed()
        if "there is no GPU that CUDA can use: " in says and status == 1 and says.endswith(" ./exercise check needs none."):
            print(f"SKIPPED: the numbers of {exercise['id']} on a GPU, because there is none", flush=True)
        elif status != 0 or "values right" not in says:
            yield f"`./exercise gpu` with the reference: exit status {status}, {says}"
        cut.write(cut.student_files(kit.root, exercise), own)
        if not re.fullmatch(r"not written: \w+\.hpp:\d+", typed()[1]):
            yield f"`./exercise gpu` with the starter says {typed()[1]}"


def seeds(kit, exercise):
    runs = [{"seed": kits.seed_of(COURSE_KEY, f"student {student}", exercise["id"]), "hidden": True} for student in range(20)]
    for student, verdict in enumerate(checked_reference(kit, exercise, runs)):
        if verdict["status"] != "right":
            yield f"the data of student {student}: {described(verdict)}"


def steady(kit, exercise):
    runs = option("runs", 100)
    ways = [{"transport": each, "seed": kits.seed_of(COURSE_KEY, "nobody", exercise["id"])} for each in TRANSPORTS]
    verdicts = checked_reference(kit, exercise, itertools.islice(itertools.cycle(ways), runs))
    cores = os.sched_getaffinity(0)
    one = {min(cores)}
    busy = subprocess.Popen(["sh", "-c", "while kill -0 $PPID 2>/dev/null; do :; done"])
    os.sched_setaffinity(busy.pid, one)
    try:
        for run in range(runs):
            os.sched_setaffinity(0, one if run % 2 == 0 else cores)  # for all that the check starts
            verdict = next(verdicts)
            if verdict["status"] != "right":
                yield f"run {run}, {'on a busy core' if run % 2 == 0 else 'on all cores'}, over {ways[run % 3]['transport']}: {described(verdict)}"
    finally:
        busy.kill()
        os.sched_setaffinity(0, cores)


def stubs(kit, exercise):
    files = cut.student_files(kit.root, exercise)
    verdict = checked(kit, exercise, files)
    yield from faults_of_formats(kit, exercise, verdict)
    for case in verdict["cases"]:
        if case["status"] != "not written" or verdict["score"] != 0:
            yield f"the starter, case {case['id']}: {case['status']} {case.get('says')}, expected not written"
    name = Path(exercise["cut"][0]["file"]).name
    files[name] = files[name].replace("not_written_yet", "not written yet", 1)
    verdict = checked(kit, exercise, files)
    if verdict["status"] != "does not compile" or not verdict["cases"][0]["says"][0].startswith(name + ":"):
        yield f"the starter with a syntax error: {described(verdict)}"


def wrong(kit, exercise):
    for answer in exercise["wrong"]:
        # What hangs is ended soon. On a busy machine that may end another answer, too: then once more, with patience.
        if wrong_answer(kit, exercise, answer, answer.get("deadline", kits.DEADLINE)):
            if fault := wrong_answer(kit, exercise, answer, kits.PATIENT):
                yield f"{answer['id']}: {fault}"


def wrong_answer(kit, exercise, answer, deadline):
    """What is wrong with its verdict, or None."""
    files = cut.wrong_files(kit.root, exercise, answer)
    only = None if "points" in answer else answer["fails"]  # what is partly right has those points
    verdict = checked(kit, exercise, files, only=only, deadline=deadline)
    case = next(each for each in verdict["cases"] if each["id"] == answer["fails"])
    if case["status"] == "right" or not any(answer["says"] in each for each in case.get("says", [])):
        return f"expected {answer['fails']} to say \"{answer['says']}\"; {described(verdict) or 'all is right'}"
    if case.get("named") not in (None, answer["id"]):
        return f"is named {case['named']}"
    if "points" in answer and verdict["score"] != answer["points"]:
        return f"{verdict['score']} points, expected {answer['points']}: {described(verdict)}"
    if "--verbose" in sys.argv:
        print(f"{exercise['id']} / {answer['id']}: {case['status']}: {case['says'][0]}", flush=True)
    return None


def families(kit, exercise):
    """Those of the named exercise; in a sample without the right ones and the attacks, which have proofs of their own."""
    sample = "--sample" in sys.argv
    named = [each.split("/")[1] for each in family_tests(sample) if exercise["id"].startswith(each.split("/")[0] + "-")]
    of = lambda answers, name: [each for each in answers if name(each) in named]
    chosen = {**exercise, "wrong": of(exercise["wrong"], lambda each: each["id"]), "attacks": of(exercise.get("attacks", []), lambda each: each["id"])}
    yield from wrong(kit, chosen)
    if sample:
        return
    yield from attacked(kit, chosen)
    for patch in of(cut.variants_of(exercise), lambda path: path.stem):
        yield from variant(kit, exercise, patch)


def family_tests(sample=False):
    """["13/copies", ...]: the last column of each row of families.md that has such names."""
    cells = [line.rstrip(" |").rsplit("|", 1)[-1].split() for line in (instructor.ROOT / "exercises/families.md").read_text().splitlines() if line.startswith("| ")]
    rows = [cell for cell in cells if all(re.fullmatch(r"\d\d/[\w-]+", each) for each in cell)]
    return [each for row in rows for each in row[:1 if sample else None]]


def untested_refusals(exercise):
    """What the English handout refuses in words, and exercise.json names no test for: "refuses" has a part of each such sentence, with
    the wrong answers and attacks that are refused so."""
    answers = {each["id"] for each in exercise["wrong"] + exercise.get("attacks", []) if each.get("says")}
    refuses, page = exercise.get("refuses", {}), exercise["folder"] / "handout.en.md"
    prose = handouts.Handout(page.read_text()).prose if page.exists() else {}
    text = " ".join(" ".join(prose.get(section, "") for section in ("What you write", "What right means")).split())
    sentences = [each for each in re.split(r"(?<=[.:|]) ", text) if re.search(r"\b(?:is|are) (?:refused|forbidden|not allowed)\b", each)]
    for sentence in sentences:
        if not any(piece in sentence for piece in refuses):
            yield f"the handout says \"{sentence}\", and \"refuses\" of exercise.json names no test of it"
    for piece, tests in refuses.items():
        if not any(piece in sentence for sentence in sentences):
            yield f"\"refuses\" of exercise.json has \"{piece}\", which no sentence of the handout says"
        for test in set(tests) - answers:
            yield f"\"refuses\" of exercise.json names {test}: no wrong answer or attack with a sentence of that name"
    for attack in exercise.get("attacks", []):
        if "forbidden" in attack["status"].values() and "says" not in attack:
            yield f"the attack {attack['id']} is forbidden, without the sentence that it is told"


def unknown_families(kit, exercise):
    answers = {each["id"] for each in exercise["wrong"] + exercise.get("attacks", [])} | {path.stem for path in cut.variants_of(exercise)}
    for test in family_tests():
        if exercise["id"].startswith(test.split("/")[0] + "-") and test.split("/")[1] not in answers:
            yield f"families.md names {test}, and there is no such answer"


def weak(kit, exercise):
    guide = (kit.root / "exercises/instructors.md").read_text()
    table = re.findall(rf"^\| {exercise['id'][:2]}, ([\w-]+): [^|]*\| yes \| ([\w-]+)", guide, re.M)
    if bool(table) != ("weak" in exercise):
        yield "the table of instructors.md and exercise.json do not agree on whether there is a weak judge"
    caught = [(answer["id"], answer["fails"]) for answer in exercise["wrong"] if answer.get("passes_weak")]
    for row in set(table) - set(caught):
        yield f"instructors.md says that {row[0]} passes and is caught by {row[1]}; exercise.json has {caught}"
    for answer in exercise["wrong"]:
        if not answer.get("passes_weak"):
            continue
        files = cut.wrong_files(kit.root, exercise, answer)
        verdict = checked(kit, {**exercise, "cases": [exercise["weak"]]}, files)
        if verdict["status"] != "right":
            yield f"{answer['id']} does not pass the weak judge: {described(verdict)}"
        else:
            print(f"{exercise['id']} / {answer['id']}: passes \"{exercise['weak']['title']}\", caught here by {answer['fails']}", flush=True)


def anchors(kit, exercise):
    for answer in [None] + exercise["wrong"]:
        try:
            cut.wrong_files(kit.root, exercise, answer) if answer else cut.student_files(kit.root, exercise)
        except cut.CutError as error:
            yield str(error)
    for patch in cut.variants_of(exercise):
        try:
            cut.answer_files(kit.root, exercise, patch)
        except cut.CutError as error:
            yield str(error)
    if torch_form.offered(exercise):
        yield from anchors_in_python(exercise)
    yield from wrong_names(exercise)
    yield from unknown_terms(kit, exercise)
    yield from unknown_families(kit, exercise)
    yield from untested_refusals(exercise)
    for lang in exercise["title"]:
        if len(exercise["hints"].get(lang, [])) != 3:
            yield f"expected three hints in {lang}, as the title has one"
    if len(exercise["wrong"]) < 3:
        yield f"expected three wrong answers or more, found {len(exercise['wrong'])}"
    if len(cut.variants_of(exercise)) < 3:
        yield f"expected three right answers in another form or more, found {len(cut.variants_of(exercise))}"


def anchors_in_python(exercise):
    made = [lambda: torch_form.starter(exercise), *(functools.partial(torch_form.edited, exercise, each) for each in torch_form.view(exercise)["wrong"]),
            *(functools.partial(torch_form.variant, exercise, each) for each in torch_form.variants_of(exercise))]
    for make in made:
        try:
            ast.parse(make())
        except (cut.CutError, SyntaxError) as error:
            yield str(error)
    if len(torch_form.variants_of(exercise)) < 3:
        yield f"expected three right answers in Python in another form or more, found {len(torch_form.variants_of(exercise))}"
    yield from wrong_names(torch_form.view(exercise))


def wrong_names(exercise):
    """A wrong answer's name is given for its own sentence, and not where a figure differs or more is said."""
    for answer in exercise["wrong"]:
        named = lambda says: kits.named_mistake(exercise, answer["fails"], [f"world 3, rank 1, step 0: {says}"])
        says = answer["says"]
        if named(says) not in (None, answer["id"]):
            yield f"{answer['id']}: its sentence is named {named(says)}"
        for other in (re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), says, count=1), says + " and more"):
            if other != says and named(other) == answer["id"]:
                yield f"\"{other}\" is named {answer['id']}, whose sentence is \"{says}\""


def unknown_terms(kit, exercise):
    """Terms of the English title and hints whose Chinese name the Chinese ones lack, where there are both."""
    if not {"en", "zh"} <= set(exercise["title"]) & set(exercise["hints"]):
        return
    pairs = list(zip([exercise["title"]["en"], *exercise["hints"]["en"]], [exercise["title"]["zh"], *exercise["hints"]["zh"]]))
    for english, chinese in pairs:
        for term, name in handouts.lacking_terms(english, chinese, everyday=()):
            yield f"\"{english}\" speaks of a {term}, but \"{chinese}\" lacks {name} (docs/glossary.md)"


def formats(kit, exercise):
    """Of a wrong answer, and of the first exercise's starter; `references` has those of right ones, and `stubs` those of all starters."""
    if "--sample" in sys.argv and int(exercise["id"][:2]) % 5:
        return
    answers = [cut.wrong_files(kit.root, exercise, exercise["wrong"][0])]
    if exercise["id"] == kit.exercises[0]["id"]:
        answers.append(cut.student_files(kit.root, exercise))
    for files in answers:
        yield from faults_of_formats(kit, exercise, checked(kit, in_one_world(exercise), files, deadline=kits.DEADLINE))


# What Classroom 50 says of a submission.
SUBMISSION = {"CLASSROOM": "parallel", "ASSIGNMENT": "a2", "OWNER": "alice", "SUBMISSION_TAG": "submit/2026-11-22T07-00-00Z-a1b2c3d",
              "COMMIT_URL": "https://example.org/commit/a1b2c3d", "RELEASE_URL": "https://example.org/releases/1"}


def faults_of_formats(kit, exercise, result):
    os.environ.update(SUBMISSION)
    verdict = kits.verdict(kit, "alice", [result])
    for name, form, most in (("gradescope", published.GRADESCOPE, "max_score"), ("classroom50", published.CLASSROOM50, "max-score")):
        written = json.loads(json.dumps(getattr(forms, name)(verdict)))
        yield from (f"{result['status']}, {name}: {fault}" for fault in published.faults(written, form))
        if "hidden" in json.dumps([each for each in written["tests"] if each.get("visibility") == "visible"]):
            yield f"{result['status']}, {name}: speaks of hidden worlds before the deadline"
        if written["score"] != sum(each["score"] for each in written["tests"]) or exercise["points"] != sum(each[most] for each in written["tests"]):
            yield f"{result['status']}, {name}: the points of the tests do not add up"


def formats_of_right(kit, exercise, right):
    """`right` has run in the hidden worlds, too."""
    yield from faults_of_formats(kit, exercise, right)
    lost = kits.verdict(kit, "alice", [{**right, "cases": [{**case, **({"status": "wrong", "says": ["\x1b[31m<&\nmore"]} if case["hidden"] else {})}
                                                           for case in right["cases"]]}])
    for each in lost["exercises"]:
        kits.settle(exercise, each["cases"])
        each["score"] = sum(case["score"] for case in each["cases"])
    if any(case["hidden"] for case in right["cases"]):
        shown = [(each["status"], each["score"] == each["max_score"]) for each in forms.gradescope(lost)["tests"] if each["visibility"] == "visible"]
        if forms.score(lost) >= forms.score({"exercises": [right]}) or set(shown) != {("passed", True)}:
            yield f"a hidden failure: {forms.score(lost)} points; the visible tests are {shown}"
        xml.etree.ElementTree.fromstring(forms.junit(lost))
    del os.environ["SUBMISSION_TAG"]
    try:
        forms.classroom50(lost)
        yield "Classroom 50 without its variables is no error"
    except ValueError as error:
        if "SUBMISSION_TAG is not set" not in str(error):
            yield f"Classroom 50 without its variables: {error}"


def attacks(kit, exercise):
    if exercise["id"] == "16-bucket-plan":
        yield from included(exercise)
        yield from grading()
    yield from attacked(kit, exercise)


def included(exercise):
    """The standard libraries of C and C++ may be included, and no other."""
    for name, allowed in (("cmath", True), ("math.h", True), ("stdint.h", True), ("string.h", True), ("unistd.h", False), ("sys/socket.h", False), ("pthread.h", False)):
        if bool(kits.forbidden_text(exercise, [("buckets.cpp", 1, f"#include <{name}>")])) == allowed:
            yield f"expected <{name}> to be {'allowed' if allowed else 'refused'}"


def attacked(kit, exercise):
    graded = [each for each in exercise.get("attacks", []) if "grade" in each["status"]]
    yield from graded_attacks(kit, exercise, graded) if graded else ()
    for attack in (each for each in exercise.get("attacks", []) if "python" not in each):
        files = attack_files(kit, exercise, attack)
        for transport, status in attack["status"].items():
            if transport == "grade":
                continue
            mine = f"ringside-attack-{os.getpid()}-"
            verdict = checked(kit, exercise, files, prefix=mine, transport=transport, deadline=3 if status == "hangs" else kits.PATIENT)
            if verdict["status"] not in status.split("|"):  # which of them depends on how busy the machine is
                yield f"{attack['id']} over {transport}: expected {status}; {described(verdict) or 'all is right'}"
            elif attack.get("says", "") not in described(verdict):
                yield f"{attack['id']} over {transport}: expected \"{attack['says']}\"; {described(verdict)}"
            elif "--verbose" in sys.argv:
                print(f"{attack['id']} over {transport}: {status}: {described(verdict)[:200]}")
            if left := left_behind(mine):
                yield f"{attack['id']} over {transport}: {len(left)} processes were left behind"


def attack_files(kit, exercise, attack):
    """{file name: text}: the reference, edited; or the right program, with lines before it begins to read."""
    if "program" not in attack:
        return cut.student_files(kit.root, exercise, stub=False, edits=cut.edits_of(attack))
    return {"answer.py": program_text(attack["program"].replace("ROOT", str(kit.root)))}


def program_text(lines=""):
    """The program of answers.py, with these lines before it begins to read."""
    return cut.replace_once(Path(__file__).with_name("answers.py").read_text(), "\nfor line in sys.stdin:", f"\n{lines}\nfor line in sys.stdin:", "answers.py")


def graded_attacks(kit, exercise, graded):
    """A class in which each student hands in one of these attacks, and alice an archive with a right program that has no right to be run."""
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        submissions = Path(folder, "submissions")
        subprocess.run([sys.executable, instructor.__file__, "export", f"{folder}/course", "--exercises", exercise["id"], "--kit", sys.argv[1]],
                       check=True, stdout=subprocess.DEVNULL)
        Path(folder, "key").write_text("0123456789abcdef")
        for attack in graded:
            files = {name: text.replace("SUBMISSIONS", str(submissions)) for name, text in attack_files(kit, exercise, attack).items()}
            cut.write(files, submissions / attack["id"] / exercise["id"])
        cut.write({**cut.student_files(kit.root, exercise), "answer": program_text(), "answer.c": "int main;\n"}, f"{folder}/alice/{exercise['id']}")
        shutil.make_archive(str(submissions / "alice"), "zip", f"{folder}/alice")
        done = subprocess.run([sys.executable, instructor.__file__, "grade", submissions, "--course", f"{folder}/course", "--key", f"{folder}/key",
                               "--out", f"{folder}/results"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if "does not allow" in done.stderr or "not allowed" in done.stderr:
            print("SKIPPED: grading of programs that cheat, because this machine does not allow a sandbox", flush=True)
            return
        for attack in [*graded, {"id": "alice", "status": {"grade": "right"}}]:
            verdict = json.loads(Path(folder, "results", f"{attack['id']}.json").read_text())["exercises"][0]
            if verdict["status"] not in attack["status"]["grade"].split("|") or attack.get("says", "") not in described(verdict):
                yield f"{attack['id']}, graded: expected {attack['status']['grade']} {attack.get('says', '')}; {described(verdict) or verdict['status']}; {done.stderr[-300:]}"
            elif "--verbose" in sys.argv:
                print(f"{attack['id']}, graded: {verdict['status']}: {described(verdict)[:200]}")
        if left := left_behind("ringside-grade-"):
            yield f"graded programs left {len(left)} processes behind"


def left_behind(prefix):
    """The processes with this in their command line. What a rank started ends with it: at once, or where the machine is busy soon."""
    for _ in range(300):
        left = subprocess.run(["pgrep", "-f", f"/{prefix}"], capture_output=True, text=True).stdout.split()
        if not left:
            break
        time.sleep(0.1)
    return left


# At the beginning of plan_buckets (16): code that harms whoever runs it without walls.
HARMFUL = {
    "bomb": 'for (;;) { long r; asm volatile("syscall" : "=a"(r) : "a"(57L) : "rcx", "r11", "memory"); (void)r; }',  # fork
    "filler": """for (std::string folder : {"/tmp/", "/var/tmp/", "/dev/shm/", "./"})
                   for (int n = 0; n < 40; ++n) {
                     std::ofstream file(folder + "fill" + std::to_string(n));
                     for (int k = 0; k < 90 && file; ++k) file << std::string(1 << 20, 'x');
                   }""",
    "spy": """{ std::string seen;
               std::error_code error;
               for (const char* folder : {"/tmp", "SUBMISSIONS", "ROOT"})
                 for (auto& each : std::filesystem::directory_iterator(folder, error))
                   seen += " " + each.path().string();
               if (std::ofstream("/mnt/course/MANIFEST", std::ios::app)) seen += " writes to the course";
               throw std::runtime_error("sees:" + seen); }""",
    "endless": "static_assert(Deep<600, 0>::value);"}
DEEP = """template <int N, int M> struct Deep { static constexpr int value = Deep<N - 1, M>::value + Deep<N - 1, M + (1 << N % 20)>::value; };
template <int M> struct Deep<0, M> { static constexpr int value = 1; };
"""


def harmful_files(kit, exercise, student, submissions):
    """The answer of a student to 16: right, and harmful if the student is one of HARMFUL."""
    files = cut.student_files(kit.root, exercise, stub=False)
    if harm := HARMFUL.get(student):
        text = files["buckets.cpp"]
        body = text.index("{", text.index("plan_buckets("))
        harm = harm.replace("SUBMISSIONS", str(submissions)).replace("ROOT", str(kit.root))
        files["buckets.cpp"] = "#include <filesystem>\n#include <fstream>\n#include <stdexcept>\n" + DEEP + text[:body + 1] + harm + text[body + 1:]
    return files


def class_run():
    """Prints how long a class takes, and who has not the points that are due. Returns the exit status."""
    kit, numbers, faults = kits.Kit(sys.argv[1]), ("00", "03", "04", "13", "16"), 0
    exercises = [kit.find(each) for each in numbers]
    students = [f"student{number:02}" for number in range(57)] + ["bomb", "endless", "filler"]
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        submissions, results = Path(folder, "submissions"), Path(folder, "results")
        subprocess.run([sys.executable, instructor.__file__, "export", f"{folder}/course", "--exercises", ",".join(numbers), "--kit", sys.argv[1]],
                       check=True, stdout=subprocess.DEVNULL)
        Path(folder, "key").write_text("0123456789abcdef")
        for student, exercise in itertools.product(students, exercises):
            of_student = student if exercise["id"].startswith("16") else "nobody"
            another = student.endswith(("3", "7"))  # every fifth student writes another language where one may
            if another and exercise.get("any_language"):
                files = {"answer.py": program_text()}
            elif another and torch_form.offered(exercise) and torch_form.installed_torch():
                files = {torch_form.file_of(exercise): torch_form.reference(exercise)}
            else:
                files = harmful_files(kit, exercise, of_student, submissions)
            cut.write(files, submissions / student / exercise["id"])
        began = time.monotonic()
        told = subprocess.run([sys.executable, instructor.__file__, "grade", submissions, "--course", f"{folder}/course", "--key", f"{folder}/key", "--out", results],
                              capture_output=True, text=True)
        seconds = time.monotonic() - began
        if "does not allow" in told.stderr or "not allowed" in told.stderr:
            print("SKIPPED: grading of harmful code, because this machine does not allow a sandbox", flush=True)
            return 0
        for student in students:
            for result in json.loads((results / f"{student}.json").read_text())["exercises"]:
                due = 0 if student in ("bomb", "endless") and result["id"].startswith("16") else result["max"]
                if result["score"] != due and not (student == "filler" and result["id"].startswith("16")):
                    faults += 1
                    print(f"{student}, {result['id']}: {result['score']} of {result['max']} points, {due} are due: {described(result)[:300]}", flush=True)
        if len((results / "grades.csv").read_text().splitlines()) != 1 + len(students):
            faults += 1
            print(f"grades.csv has not {len(students)} students", flush=True)
        for student in ("bomb", "endless", "filler"):
            result = next(each for each in json.loads((results / f"{student}.json").read_text())["exercises"] if each["id"].startswith("16"))
            print(f"{student}: {result['status']} after {result['seconds']:.0f} s: {described(result)[:150]}")
    print(f"class: {len(students)} submissions of {len(exercises)} exercises in {seconds:.0f} s on {os.cpu_count()} cores, {faults or 'no'} faults")
    return 1 if faults else 0


def grading():
    """A class in which one forks without end, one fills the disk, one looks around, one never compiles: the others have their
    points, in every format, and nothing stays behind. So has who is graded in another run while the bomb forks."""
    kit = kits.Kit(sys.argv[1])
    exercise = kit.find("16")
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        submissions, results = Path(folder, "submissions"), Path(folder, "results")
        subprocess.run([sys.executable, instructor.__file__, "export", f"{folder}/course", "--exercises", "16", "--kit", sys.argv[1]],
                       check=True, stdout=subprocess.DEVNULL)
        Path(folder, "key").write_text("0123456789abcdef")
        for student in ("alice", *HARMFUL, "zoe"):
            cut.write(harmful_files(kit, exercise, student, submissions), submissions / student / exercise["id"])
        cut.write(harmful_files(kit, exercise, "yan", submissions), Path(folder, "another-class", "yan", exercise["id"]))

        def grade(these, out, *options, **environment):
            return subprocess.Popen([sys.executable, instructor.__file__, "grade", these, "--course", f"{folder}/course", "--key", f"{folder}/key",
                                     "--out", out, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})

        told = grade(submissions, results, "--format", "gradescope,junit,actions", RINGSIDE_COMPILE_SECONDS="20")  # a right answer takes 3
        while told.poll() is None and processes_named("student") < instructor.PROCESSES / 2:
            time.sleep(0.1)
        beside = told.poll() is None
        grade(f"{folder}/another-class", f"{folder}/another").wait()
        stderr = told.communicate()[1]
        if "does not allow" in stderr or "not allowed" in stderr:
            print("SKIPPED: grading of harmful code, because this machine does not allow a sandbox", flush=True)
            return
        verdicts = {student: json.loads((results / f"{student}.json").read_text()) for student in ("alice", *HARMFUL, "zoe")}
        points = {student: forms.score(verdict) for student, verdict in verdicts.items()}
        if points["alice"] != exercise["points"] or points["zoe"] != exercise["points"] or points["bomb"] or points["spy"] or points["endless"]:
            yield f"points: {points}; {stderr[-500:]}"
        of_yan = json.loads(Path(folder, "another/yan.json").read_text())
        if not beside or forms.score(of_yan) != exercise["points"]:
            yield f"another run, {'while the bomb forks' if beside else 'because no bomb was seen'}: {described(of_yan['exercises'][0])}"
        kit.compiler = Path(folder, "busy")
        kit.compiler.write_text("#!/bin/sh\necho \"c++: fatal error: cannot execute 'cc1plus': vfork: Resource temporarily unavailable\" >&2\nexit 1\n")
        kit.compiler.chmod(0o755)
        verdict = checked(kit, exercise, cut.student_files(kit.root, exercise, stub=False))
        if verdict["status"] != "judge error":
            yield f"a compiler that the machine gives no process: expected judge error; {described(verdict)}"
        says = verdicts["spy"]["exercises"][0]["cases"][0]["says"][0]
        if not re.fullmatch("(world \\d+, )?(ranks? [\\d, ]+: )?sees:", says):
            yield f"the spy {says}"
        if len((results / "grades.csv").read_text().splitlines()) != 1 + len(points):
            yield f"grades.csv: {(results / 'grades.csv').read_text()}"
        for student in points:
            suite = xml.etree.ElementTree.fromstring((results / f"{student}.junit.xml").read_text())[0]
            names = [each.get("name") for each in suite]
            if len(set(names)) != len(names) or int(suite.get("tests")) != len(names) or int(suite.get("failures")) != len(suite.findall("testcase/failure")):
                yield f"{student}.junit.xml: {names}, {suite.attrib}"
            if (results / f"{student}.actions.md").read_text().count("\n") != 3:
                yield f"{student}.actions.md has not one line for its exercise"
        if left := left_behind("ringside-grade-"):
            yield f"{len(left)} processes were left behind"


def processes_named(name):
    """How many there are, in sandboxes, too."""
    return int(subprocess.run(["pgrep", "-c", "-x", name], capture_output=True, text=True).stdout)


@functools.cache
def two_exports():
    """The folders of two exports of the whole course, which are there until the proof ends."""
    folder = tempfile.mkdtemp(prefix="ringside-selftest-")
    atexit.register(shutil.rmtree, folder)
    courses = [Path(folder) / name for name in ("first", "second")]
    for course in courses:
        subprocess.run([sys.executable, instructor.__file__, "export", course, "--kit", sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
    return courses


def exported(kit, exercise):
    course, other = two_exports()
    if exercise["id"] == kit.exercises[0]["id"]:
        if course.joinpath("MANIFEST").read_bytes() != other.joinpath("MANIFEST").read_bytes():
            yield "two exports differ"
        answers = [line.strip() for line in handouts.RUBRIC.read_text().splitlines() if re.match(r"\d\. ", line)]
        for page in (page for page in course.rglob("*") if page.suffix in (".md", ".json", ".txt", ".py", ".hpp", ".cpp")):
            if shown := next((line for line in answers if line in page.read_text()), None):
                yield f"the export shows a model answer of rubric.md, in {page.relative_to(course)}: {shown}"
        if shutil.which("gdb") and not shows_tensors(Path(kits.kit_in(course).program)):
            yield "gdb cannot show a tensor in the export: tensor.cpp was compiled without debug information"
        emulated = ["ringside", "train", "--device", "emulated", "--steps", "1", "--layers", "1", "--sequence", "8", "--batch", "1"]
        if said := subprocess.run(["./exercise", *emulated], cwd=course, capture_output=True, text=True).stderr:
            yield f"`./exercise {' '.join(emulated)}`: {said}"
        yield from needed_by(kit, course)
        yield from faults_of_add()
        yield from other_packages(course)
    told = subprocess.run(["./exercise", "check", exercise["id"]], cwd=course, capture_output=True, text=True).stdout
    if ": not written, 0 of" not in told:
        yield f"the starter in the export: {told}"
    if kits.trains(kit, exercise):
        with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
            cut.write(cut.student_files(kit.root, exercise, stub=False), folder)
            try:
                kits.compile_strategy(kits.kit_in(course), exercise, folder, folder)
            except kits.Broken as broken:
                yield f"`./exercise train` with the reference in the export: {broken.status}: {broken.says[0]}"
    yield from typed(course, exercise)
    entries = json.loads((course / ".vscode/launch.json").read_text())["configurations"]
    entry = next(each for each in entries if each["name"].startswith(exercise["id"]))
    inside = lambda text: text.replace("${workspaceFolder}", str(course))
    environment = {**os.environ, **{each["name"]: each["value"] for each in entry["environment"]}}
    subprocess.run([inside(entry["program"]), *map(inside, entry["args"])], env=environment, capture_output=True)
    seen = Path(inside(entry["args"][-1]), "0.json")
    if not seen.exists() or "is not yet written" not in seen.read_text():
        yield f"the debugger's entry {entry['name']} does not reach the starter"


def needed_by(kit, course):
    """The shared libraries that an export needs, and that a student's machine may lack or have in another version."""
    if not kit.settings["portable"]:
        print("SKIPPED: which libraries an export needs, because this build is for its own machine: build/exercises is for others", flush=True)
        return
    for path in (course / name for name in instructor.manifest(course)):
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
        told = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
        for name in re.findall(r"\(NEEDED\) .*\[(.*)\]", told):
            if not re.match(r"(?:libc|libm|libstdc\+\+|libgcc_s|libgomp|libopenblas|ld-linux-[\w-]+)\.so", name):
                yield f"{path.relative_to(course)} in the export needs {name}"
    for option in set(kits.kit_in(course).link) & {"-lfmt", "-lcrypto"}:
        yield f"a student's program is linked with {option}"


def faults_of_add():
    """`export --add`. The second architecture is a copy of this one under another name."""
    here, other = platform.machine(), "made_up"
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        alone, there, both = (Path(folder, name) for name in ("alone", "there", "both"))

        def export(course, *options):
            subprocess.run([sys.executable, instructor.__file__, "export", course, "--exercises", "00", "--kit", sys.argv[1], *options], check=True, stdout=subprocess.DEVNULL)

        export(alone)
        shutil.copytree(alone, there)
        (there / ".ringside" / here).rename(there / ".ringside" / other)
        instructor.write_manifest(there)
        export(both, "--add", there)
        if set(kits.kits_in(both)) != {here, other} or list(instructor.manifest_faults(both, everything=True)):
            yield f"export --add: the course is for {', '.join(kits.kits_in(both))}; not as in MANIFEST: {list(instructor.manifest_faults(both, everything=True))}"
        if Path(kits.kit_in(both).program).parent.name != here:
            yield f"a course for {here} and {other} takes {kits.kit_in(both).program}"
        says = f"this course is for {other}, and this machine is {here}: ask for a course that is for {here}, too"
        Path(folder, "key").write_text("0123456789abcdef")
        for command in (["./exercise", "list"], [instructor.__file__, "grade", ".", "--course", ".", "--key", f"{folder}/key", "--out", f"{folder}/results"]):
            for course, status in ((there, 1), (both, 0)):
                if course == there or command[0] == "./exercise":
                    told = subprocess.run([sys.executable, *command], cwd=course, capture_output=True, text=True)
                    if told.returncode != status or told.stderr.startswith(says) != (status == 1):
                        yield f"{' '.join(command[:2])} in a course for {', '.join(kits.kits_in(course))}: exit status {told.returncode}, {told.stderr}"
        kit_json, handout, before = f".ringside/{other}/kit.json", "00-mean-of-ranks/handout.en.md", instructor.manifest(alone)
        for course, name, edit, why in (
                (Path(folder), None, None, "it is no exported course"), (alone, None, None, f"both are for {here}"),
                (there, kit_json, lambda text: text.replace('"version": "', '"version": "0'), "the versions are not the same: "),
                (there, kit_json, lambda text: text.replace('"00-mean', '"99-mean'), "the exercises are not the same: 00-mean-of-ranks here, 99-mean-of-ranks there"),
                (there, handout, str.upper, f"its {handout} is not as in its MANIFEST: export it again"),
                (there, handout, str.lower, f"{handout} is not the same file in both")):
            if name:
                course = shutil.copytree(course, Path(folder, "changed"), dirs_exist_ok=True)
                (course / name).write_text(edit((course / name).read_text()))
            if "same file" in why:
                instructor.write_manifest(course)
            try:
                instructor.add_architectures(alone, course)
                yield f"export --add takes a course of which it should say \"{why}\""
            except SystemExit as refused:
                if why not in str(refused):
                    yield f"export --add says \"{refused}\", expected \"{why}\""
        if instructor.manifest(alone) != before or set(kits.kits_in(alone)) != {here}:
            yield "a course that could not be added is there in part"
        instructor.add_architectures(there, alone)
        if (there / "MANIFEST").read_bytes() != (both / "MANIFEST").read_bytes():
            yield "a course depends on which of its architectures was exported first"


def other_packages(course):
    """Pages and the dev container name the same packages."""
    packages = "g++ gdb libopenblas-openmp-dev python3"
    for name in ("README.md", "README.zh.md", "install.md", "install.zh.md", ".devcontainer/Dockerfile"):
        named = {each.strip() for each in re.findall(r"g\+\+ [a-z][\w +-]*", (course / name).read_text())}
        if named != {packages}:
            yield f"{name} names the packages {sorted(named)}, expected {packages}"


def typed(course, exercise):
    """Types the lines `./exercise ringside ...` of the handout in this export, with one step, or one sample of at most 1 MB."""
    page = (course / exercise["id"] / "handout.en.md").read_text().replace("\\\n", " ")
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        for variables, line in re.findall(r"^ {4}((?:\w+=\S+ )*)\./exercise ringside ([^|\n]+)", page, re.M):
            words = re.sub(r"\b\d+MB\b", "1MB", re.sub(r"--steps \d+", "--steps 1", line)).split()
            if words[0] == "postmortem":
                continue  # of a job that the reader stops
            if words[0] == "bench" and "--steps" not in words and words[1] != "kernels":
                words += ["--steps" if words[1] in ("train", "ddp", "zero", "mesh") else "--repeat", "1"]
            done = subprocess.run([course / "exercise", "ringside", *words], cwd=folder, capture_output=True, text=True, timeout=120,
                                  env={**os.environ, **dict(each.split("=", 1) for each in variables.split())})
            if done.returncode != 0:
                yield f"`./exercise ringside {' '.join(words)}` in the export: {done.stderr.strip()}"


def debugger(kit, exercise):
    """Types what the handout types after (gdb), in an export with the reference as the answer."""
    handout = (exercise["folder"] / "handout.en.md").read_text()
    begin, case = re.search(r"`\./exercise (debug \d\d)(?: ([a-z0-9-]+))?`", handout).groups()
    commands = [re.split(r" {3,}", typed)[0] for typed in re.findall(r"^ +\(gdb\) (.*)$", handout, re.M)]
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        course = Path(folder) / "course"
        subprocess.run([str(kit.root / "exercises/ringside-exercises"), "export", course, "--kit", sys.argv[1],
                        "--exercises", exercise["id"]], check=True, stdout=subprocess.DEVNULL)
        cut.write(cut.student_files(kit.root, exercise, stub=False), course / exercise["id"])
        limit = ["prlimit", "--as=12000000000"]  # a printer that reads memory without end fails, and harms nobody
        told = subprocess.run([*limit, "./exercise", *begin.split(), *([case] if case else [])], cwd=course, input="\n".join(commands) + "\nkill\nquit\n",
                              capture_output=True, text=True, timeout=600)
    if "--verbose" in sys.argv:
        print(told.stdout, told.stderr)
    if not re.search(r"(hit|^) ?Breakpoint [\d.]+, ", told.stdout, re.M):
        yield f"`./exercise {begin}` stops nowhere: {(told.stdout + told.stderr)[-500:]}"
    for line in told.stderr.splitlines():
        if re.search(r"No symbol|Undefined command|syntax error|no member|Couldn't|Cannot|No breakpoint|not being run|Invalid|not meaningful", line):
            yield f"gdb answers the handout: {line}"


def shows_tensors(program):
    """Whether gdb knows what a tensor consists of: ringside_debug_types in autograd/CMakeLists.txt."""
    told = subprocess.run(["gdb", "-q", "-nx", "-batch", "-ex", "info types ^ringside::autograd::Tensor::Impl$", program],
                          capture_output=True, text=True).stdout
    return "ringside::autograd::Tensor::Impl;" in told


def clinic_anchors():
    """Edits of the clinic whose text is not in the reference once."""
    for bug in clinics.load():
        try:
            clinics.edited(bug["scene"] + bug["edits"])
        except cut.CutError as error:
            yield f"clinic, {bug['id']}: {error}"


def clinic():
    """Each bug, or those named: what Ringside says has the sentence of the bug, and the reference finishes without an error."""
    build, faults = clinics.Build(Path(sys.argv[1]).parents[1]), 0
    names = [each for each in sys.argv[3:] if not each.startswith("--")]
    bugs = [bug for bug in clinics.load() if not names or bug["id"] in names]
    for bug in bugs:
        well, sick = clinics.patient(build, bug, False), clinics.patient(build, bug)
        says = findings.of(sick, well, [bug["run"], *bug["also"]])
        if not any(re.search(bug["says"], each) for each in says):
            faults += 1
            print(f"{bug['id']}: expected \"{bug['says']}\", Ringside says {says[:6]}", flush=True)
        if errors := findings.errors(well):
            faults += 1
            print(f"{bug['id']}: without the bug: {errors}", flush=True)
    print(f"clinic: {len(bugs)} bugs, {faults or 'no'} faults")
    return 1 if faults or not bugs else 0


def own_exercise():
    """An exercise that Ringside does not know, in a folder of an instructor's own. Returns the exit status."""
    name, faults = "50-chain-broadcast", 0
    filled = Path(instructor.ROOT, "exercises/example", name)
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        mine, course, results = Path(folder, "mine"), Path(folder, "course"), Path(folder, "results")

        def typed(*arguments, status=0):
            done = subprocess.run([str(instructor.ROOT / "exercises/ringside-exercises"), *map(str, arguments)], capture_output=True, text=True)
            expect(done.returncode == status, f"{arguments[0]}: exit status {done.returncode}, expected {status}")
            return done.stdout + done.stderr

        def expect(right, otherwise):
            nonlocal faults
            faults += not right
            if not right:
                print(f"own: {otherwise}", flush=True)

        def check(status=1):
            return typed("check", "50", "--from", mine, "--kit", sys.argv[1], status=status)

        typed("new", name, "--from", mine)
        says = typed("new", name, "--from", mine, status=1)
        expect("the number 50 is that of" in says, f"a number that is taken: {says}")
        says = check()
        for missing in ("judge.cpp:1: FILL IN: what is judged", "wrong/a-mistake.hpp:2: FILL IN", "handout.en.md:7: FILL IN: the problem in one paragraph"):
            expect(missing in says, f"check of what `new` wrote does not say \"{missing}\": {says}")
        shutil.rmtree(mine / name)
        shutil.copytree(filled, mine / name, ignore=shutil.ignore_patterns(".built"))
        says = check(status=0)
        expect(says.count("✓") == 8 and "nothing missing" in says, f"check of the exercise as it is filled in: {says}")

        star = (mine / name / "wrong/star.hpp").read_text()
        (mine / name / "wrong/star.hpp").write_text(star.replace("rank 0 sends 2.00 n", "rank 0 sends 3.00 n"))
        (mine / name / "variants/leftwards.hpp").unlink()
        says = check()
        for missing in ("star: expected chain to say \"world 3, root 0, k = 1: rank 0 sends 3.00 n", "expected 3 variants or more, found 2: last-piece-first, piece-by-piece"):
            expect(missing in says, f"check does not say \"{missing}\": {says}")
        (mine / name / "wrong/star.hpp").write_text(star)

        python = mine / "51-right-neighbour/python"
        typed("new", "51-right-neighbour", "--from", mine, "--lang", "en,python")
        says = typed("check", "51", "--from", mine, "--kit", sys.argv[1], status=1)
        for missing in ("python/collect.py:1: FILL IN", "python/right_neighbour.py:1: FILL IN", "python/wrong/a-mistake.py:1: FILL IN"):
            expect(missing in says, f"check of what `new --lang python` wrote does not say \"{missing}\": {says}")
        for path in [*python.rglob("*.py"), *(mine / "51-right-neighbour").rglob("*.[hcj]*p*")]:
            path.write_text(path.read_text().replace("FILL IN: the sentence of the judge, with its figures", "size 1, rank 0: 1, expected 0").replace("FILL IN: ", ""))
        settings = mine / "51-right-neighbour/exercise.json"
        settings.write_text(settings.read_text().replace('["FILL IN: headers and folders of Ringside that students may include, or nothing"]', "[]").replace("FILL IN: ", ""))
        if torch_form.installed_torch():
            proved = "in Python: the reference, its starter, wrong answers and variants"
            says = typed("check", "51", "--from", mine, "--kit", sys.argv[1], status=1)
            expect(f"✓ {proved}" in says and "expected three right answers in Python in another form or more, found 1" in says, f"check of a form in Python: {says}")
            (python / "wrong/a-mistake.py").write_text((python / "variants/another-form.py").read_text())
            says = typed("check", "51", "--from", mine, "--kit", sys.argv[1], status=1)
            expect(f"✗ {proved}" in says and "a-mistake in Python: expected result to say" in says, f"check of a wrong answer in Python that is right: {says}")
        shutil.rmtree(mine / "51-right-neighbour")

        typed("export", course, "--from", mine, "--exercises", "50,00", "--kit", sys.argv[1])
        starter = (course / name / "chain_broadcast.hpp").read_text()
        expect("is_piece" not in starter and "not_written_yet" in starter, f"the export has this starter: {starter}")
        exercise = cut.load(mine / name)
        answers = {"alice": cut.student_files(instructor.ROOT, exercise, stub=False), "bob": cut.answer_files(instructor.ROOT, exercise, mine / name / "wrong/star.hpp"),
                   "carol": cut.student_files(instructor.ROOT, exercise)}
        for student, files in answers.items():
            cut.write(files, Path(folder, "submissions", student, name))
        Path(folder, "key").write_text("0123456789abcdef")
        typed("grade", f"{folder}/submissions", "--course", course, "--key", f"{folder}/key", "--out", results)
        points = {student: forms.score(json.loads((results / f"{student}.json").read_text())) for student in answers}
        expect(points == {"alice": 4, "bob": 2, "carol": 0}, f"the points are {points}")
        says = typed("summary", results)
        expect("1  chain: star" in says, f"the summary does not name the mistake: {says}")
    print(f"own: {faults or 'no'} faults")
    return 1 if faults else 0


def compiler_of_version(path, version):
    """Makes a compiler that tells its version and nothing else. Returns its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path.parent


def handed_in():
    """Returns the exit status."""
    kit, faults = kits.Kit(sys.argv[1]), 0
    exercise = kit.find("00")
    files = cut.student_files(kit.root, exercise, stub=False)

    def expect(truth, what):
        nonlocal faults
        faults += not truth
        if not truth:
            print(what, flush=True)

    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        place, made, results = Path(folder, "submissions"), Path(folder, "made"), Path(folder, "results")
        place.mkdir()
        for inner in (f"{exercise['id']}", f"course/{exercise['id']}"):
            cut.write(files, made / ("flat" if "/" not in inner else "deep") / inner)
        archive = lambda name, form, of: shutil.make_archive(str(place / name), form, made / of)
        for name, form, of in (("ana", "gztar", "flat"), ("ben", "zip", "flat"), ("cyd", "tar", "deep"), ("dan", "zip", "deep")):
            archive(name, form, of)
        archive("eve/submission", "gztar", "flat")
        archive("fay/files/submission", "zip", "deep")
        shutil.copytree(made / "flat", place / "gil")
        shutil.copytree(made / "deep", place / "hal")
        (place / "gil/.git").mkdir()
        (place / "ana.tar.gz").rename(place / "ana.tgz")
        right = {"ana", "ben", "cyd", "dan", "eve", "fay", "gil", "hal"}
        (place / "ivy.rar").write_bytes(b"Rar!")
        (place / "jim.zip").write_bytes(b"PK no archive")
        (place / "kim").mkdir()
        (place / "kim/notes.txt").write_text("later")
        (place / "liz").mkdir()
        archive("mia", "zip", "flat")
        shutil.copytree(made / "flat", place / "mia")
        for part in ("first", "second"):
            shutil.copytree(made / "flat", place / "ned" / part)
        (place / ".DS_Store").write_bytes(b"")
        (place / "oda").mkdir()
        (place / "oda" / exercise["id"]).symlink_to(f"../gil/{exercise['id']}")
        (place / "gil" / exercise["id"] / "key.hpp").symlink_to("../../../key")
        (place / "gil" / exercise["id"] / "core").write_bytes(bytes(submissions.LARGEST))
        (place / "lou.tgz").write_bytes(damaged_archives(exercise["id"])["lou.tgz"])
        in_gbk = os.fsdecode("张三".encode("gbk"))
        shutil.copytree(made / "flat", place / in_gbk)
        found, refused = submissions.submissions_in(place)
        expect(set(found) == right | {"jim", "kim", "liz", "lou", "mia", "ned", "oda"} and set(refused) == {"ivy.rar", "mia.zip", in_gbk},
               f"found {sorted(found)}, refused {refused}")
        for fault in (*faults_of_archives(exercise["id"], files), *faults_of_links(exercise["id"], files)):
            expect(False, fault)

        subprocess.run([sys.executable, instructor.__file__, "export", f"{folder}/course", "--exercises", "00", "--kit", sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
        Path(folder, "key").write_text("0123456789abcdef")
        told = subprocess.run([sys.executable, instructor.__file__, "grade", place, "--course", f"{folder}/course", "--key", f"{folder}/key", "--out", results],
                              capture_output=True, text=True)
        for sentence in ("ivy.rar is neither a folder nor an archive (.tar.gz, .tgz, .tar, .zip)", "jim.zip: jim.zip cannot be unpacked: ",
                         f"kim: expected folders of exercises, such as {exercise['id']}, here or one level deeper; found notes.txt",
                         f"liz: expected folders of exercises, such as {exercise['id']}, here or one level deeper; found nothing",
                         "mia.zip and mia are both of mia: keep one", "ned: there are exercises in first and in second: keep one of them",
                         "lou.tgz: lou.tgz cannot be unpacked: ", "\\xd5\\xc5\\xc8\\xfd is no name in UTF-8: rename it",
                         f"oda: expected folders of exercises, such as {exercise['id']}, here or one level deeper; found {exercise['id']}; "
                         f"{exercise['id']} is a link that leads out of the submission"):
            expect(f"not graded: {place}/{sentence}" in told.stderr, f"the grader does not say \"{sentence}\": {told.stderr}")
        expect(told.returncode == 1, f"the grader ends with {told.returncode}")
        verdicts = {path.stem: json.loads(path.read_text()) for path in results.glob("*.json")}
        statuses = {student: verdict["exercises"][0]["status"] for student, verdict in verdicts.items()}
        expect(statuses == {student: "right" for student in right | {"mia"}}, f"the statuses are {statuses}; {told.stderr}")
        left_out = {student: len(verdict["not_read"]) for student, verdict in verdicts.items() if "not_read" in verdict}
        expect(left_out == {"gil": 2} and told.stderr.count("warning: gil: ") == 2, f"left out are {left_out}: {told.stderr}")
        for fault in (*faults_of_texts(folder, files), *faults_below_room(folder, files), *faults_of_interruption(folder, files)):
            expect(False, fault)

        cut.write(files, Path(folder, "course", exercise["id"]))
        without = subprocess.run([sys.executable, "course/exercise", "check", "00"], cwd=folder, capture_output=True, text=True, env={**os.environ, "PATH": f"{folder}/empty"})
        expect("c++ is not installed: install a C++ compiler (Debian, Ubuntu: apt-get install g++)" in without.stdout and not without.stderr,
               f"a check without a compiler says: {without.stdout}{without.stderr}")
        old = compiler_of_version(f"{folder}/old/c++", "10.2.1")
        for tool in ("nm", "readelf", "env", "prlimit"):
            (old / tool).symlink_to(shutil.which(tool))
        check = lambda *more: subprocess.run([sys.executable, "course/exercise", "check", "00"], cwd=folder, capture_output=True, text=True,
                                             env={**os.environ, "PATH": ":".join(map(str, (old, *more)))})
        expect("c++ is version 10, and a course needs GCC 12 or newer" in (told := check()).stdout, f"a check with an old compiler says: {told.stdout}{told.stderr}")
        (old / "g++-12").symlink_to(shutil.which("c++"))
        expect("right, " in (told := check(Path(shutil.which("as")).parent)).stdout, f"a check with g++-12 beside an old compiler says: {told.stdout}{told.stderr}")
        for typed, says in ((["course/exercise", "debug", "00"], "gdb is not installed; on Debian or Ubuntu: apt-get install gdb\n"),
                            ([instructor.__file__, "export", "other", "--build", f"{folder}/build"], f"cmake is not installed: {kit.root}/demo installs what a build takes\n")):
            without = subprocess.run([sys.executable, *typed], cwd=folder, capture_output=True, text=True, env={**os.environ, "PATH": f"{folder}/empty"})
            expect(without.returncode == 1 and without.stderr.endswith(says), f"{typed} says: {without.stdout}{without.stderr}")
    print(f"submissions: {faults or 'no'} faults")
    return 1 if faults else 0


def tar_of(files, form=""):
    """The bytes of a tar with these files, {name: bytes}."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode=f"w:{form}") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def zip_of(files, method=zipfile.ZIP_DEFLATED):
    """The bytes of a zip with these files, {name: bytes}."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return written.getvalue()


def damaged_archives(id):
    """{name: bytes} of archives that begin well and are damaged further on."""
    whole = tar_of({f"{id}/mean.cpp": os.urandom(300_000)})
    packer = zlib.compressobj(wbits=31)
    packed = lzma.compress(whole)
    return {"lou.tgz": packer.compress(whole[:100_000]) + packer.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 60,  # no block of deflate begins so
            "lou.tar": packed[:200_000] + b"\xff" * 70_000 + packed[270_000:]}


def taken_from(name, content, exercises):
    """What is read of an archive: (names of files, sentences about what was left out), or the sentence that refuses it."""
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        archive = Path(folder, name)
        archive.write_bytes(content)
        Path(folder, "scratch").mkdir()
        try:
            code, left_out = submissions.code_in(archive, f"{folder}/scratch", exercises)
        except submissions.Unreadable as error:
            return str(error)
        return sorted(str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()), left_out


def faults_of_archives(id, files):
    """Archives that are damaged, large, or made on Windows."""
    plain = {f"{id}/{name}": text.encode() for name, text in files.items()}
    for name, content in damaged_archives(id).items():
        if f"{name} cannot be unpacked: " not in (told := taken_from(name, content, [id])):
            yield f"a damaged {name}: {told}"
    windows = {name.replace("/", "\\"): content for name, content in plain.items()}
    if (told := taken_from("pam.zip", zip_of({f"{id}\\": b"", **windows}), [id])) != (sorted(plain), []):
        yield f"a zip with backslashes: {told}"
    large = {**plain, f"{id}/core": bytes(submissions.LARGEST), "core": bytes(submissions.LARGEST)}
    expected = (sorted(plain), [f"{id}/core has 1.0 MB: only files of less than 1 MB are read"])
    for name, content in (("pam.zip", zip_of(large)), ("pam.tgz", tar_of(large, "gz"))):
        if (told := taken_from(name, content, [id])) != expected:
            yield f"{name} with files of 1 MB: {told}"
    many, much = {f"{id}/{n}": b"" for n in range(40)}, {**plain, **{f"notes/{n}": bytes(900_000) for n in range(3)}}
    with unittest.mock.patch.multiple(submissions, MOST=2_000_000, ENTRIES=30):
        for name, content, says in (("pam.zip", zip_of(many), "30 entries"), ("pam.tgz", tar_of(many, "gz"), "30 entries"), ("pam.zip", zip_of(much), "2 MB"),
                                    ("pam.tgz", tar_of({**plain, "core": bytes(3_000_000)}, "gz"), "2 MB")):
            if f"it has more than {says}: only the folders of the exercises are needed" not in (told := taken_from(name, content, [id])):
                yield f"{name} with more than {says}: {told}"
    size = 80_000_000
    lying = zip_of({f"{id}/mean.cpp": bytes(size)}).replace(struct.pack("<I", size), struct.pack("<I", 1000))
    tracemalloc.start()
    told, most = taken_from("pam.zip", lying, [id]), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if "cannot be unpacked" not in told or most > size / 4:
        yield f"a zip with a file of {size} bytes that it calls 1000: {most} bytes of memory, {told}"
    if "compressed by method 14" not in (told := taken_from("pam.zip", zip_of(plain, zipfile.ZIP_LZMA), [id])):
        yield f"a zip that is compressed by LZMA: {told}"


def faults_of_links(id, files):
    """What links in a folder lead to is read where it lies in the folder itself."""
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        bob, alice, scratch = Path(folder, "bob"), Path(folder, "alice"), Path(folder, "scratch")
        for place in (bob / id, alice / "drafts"):
            cut.write(files, place)
        file = next(iter(files))
        for name, target in ((id, "drafts"), ("01", f"../bob/{id}"), ("drafts/more.hpp", f"../../bob/{id}/{file}"), ("drafts/same.hpp", file)):
            (alice / name).symlink_to(target)
        scratch.mkdir()
        code, left_out = submissions.code_in(alice, scratch, [id, "01"])
        names = {str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()}
        links = [each.partition(" is a link that leads out of the submission")[0] for each in left_out]
        if names != {f"{id}/{name}" for name in (*files, "same.hpp")} or links != ["01", f"{id}/more.hpp"]:
            yield f"of a folder with links {sorted(names)} are read; {left_out}"
        try:
            with unittest.mock.patch.object(submissions, "MOST", 100):
                yield f"a folder of more than 100 bytes: {submissions.code_in(bob, Path(folder, 'more'), [id])}"
        except submissions.Unreadable:
            pass


def grading_of(folder, answers, *options, tool=instructor.__file__, before=(), seen_as=None, **how):
    """A run of `grade` with the course of this folder, in a folder of its own below it: answers to exercise 00, {student: {file: text}}. And its results."""
    own = Path(tempfile.mkdtemp(prefix="class-", dir=folder))
    for student, files in answers.items():
        cut.write(files, own / "submissions" / student / "00-mean-of-ranks")
    there = Path(seen_as or folder)
    process = subprocess.Popen([*before, sys.executable, tool, "grade", there / own.name / "submissions", "--course", there / "course", "--key", there / "key",
                                "--out", there / own.name / "results", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    return process, own / "results"


def faults_of_texts(folder, files):
    """An outcome with half of a surrogate pair, a student whose name has a dot, and one whose name leaves no room for an ending: the verdicts
    are written, and counted by `summary`. What judges is a stand-in, because only an answer with torch has such a sentence."""
    tool = Path(folder, "stand_in.py")
    tool.write_text(f"""import json, sys
sys.path.insert(0, {str(Path(instructor.__file__).parent)!r})
import instructor
if sys.argv[1] != "one":
    instructor.__file__ = __file__
    sys.exit(instructor.main())
given = json.load(sys.stdin)
exercise = instructor.kits.kit_in(given["course"]).find(given["exercise"])
json.dump({{"result": instructor.no_result(exercise, "half of \\ud83d"), "not_allowed": []}}, sys.stdout)
""")
    process, results = grading_of(folder, {"alice.smith": files, "bob": files, "x" * 252: files}, "--format", "gradescope,junit,actions", tool=tool)
    told = process.communicate()
    says = {path.name: json.loads(path.read_text())["exercises"][0]["cases"][0]["says"] for path in results.glob("*.json") if "gradescope" not in path.name}
    if says != {name: ["half of ?"] for name in ("alice.smith.json", "bob.json")} or len(list(results.iterdir())) != 9 or process.returncode != 1 \
            or "the verdict cannot be written" not in told[1] or (results / "grades.csv").read_text().count("\n") != 4:
        yield f"an outcome that is no text: {says}, {sorted(path.name for path in results.iterdir())}; {told}"
    summary = subprocess.run([sys.executable, instructor.__file__, "summary", results], capture_output=True, text=True).stdout
    if "00-mean-of-ranks: 2 judge error" not in summary:
        yield f"the summary of two students: {summary}"


def faults_below_room(folder, files):
    """Everything may lie below the folder that the sandbox covers; nothing there can be read by a relative path."""
    if os.geteuid() != 0 or not instructor.sandbox():
        print("SKIPPED: grading below /mnt, because this machine does not allow a mount", flush=True)
        return
    Path(folder).chmod(0o755)  # as the folder of an instructor is
    name = next(iter(files))
    spy = {**files, name: files[name] + 'asm(".section .rodata\\n.incbin \\"key\\"\\n.text");\n'}
    before = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"', folder, instructor.ROOM]
    process, results = grading_of(folder, {"alice": files, "spy": spy}, before=before, seen_as=instructor.ROOM,
                                  env={**os.environ, "TMPDIR": instructor.ROOM})
    told = process.communicate()
    statuses = {path.stem: json.loads(path.read_text())["exercises"][0]["status"] for path in results.glob("*.json")}
    if statuses != {"alice": "right", "spy": "does not compile"}:
        yield f"a class below {instructor.ROOM}: {statuses}; {told}"


def faults_of_interruption(folder, files):
    """Ctrl-C while the second of three is graded, whose answer hangs."""
    name = next(iter(files))
    hangs = {**files, name: files[name] + "namespace { const int hangs = [] { for (volatile int n = 0;; n = n + 1) {} return 0; }(); }\n"}
    heeds = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # a proof in the background may have been started to ignore it
    process, results = grading_of(folder, {"alice": files, "bob": hangs, "carol": files}, "--jobs", "1", start_new_session=True, preexec_fn=heeds)
    first = process.stdout.readline()
    time.sleep(1)
    if reached := subprocess.run(["pgrep", "-g", str(process.pid)], capture_output=True, text=True).stdout.split()[1:]:
        yield f"Ctrl-C reaches {len(reached)} processes besides the grader"
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    told = process.communicate()[1]
    names = sorted(path.name for path in results.iterdir())
    rows = (results / "grades.csv").read_text().count("\n") if "grades.csv" in names else 0
    if process.returncode != 130 or names != ["alice.json", "grades.csv"] or rows != 2 or "interrupted: 1 of 3 submissions are graded" not in told:
        yield f"an interrupted class, after {first!r}: exit status {process.returncode}, {names}, {rows} lines in grades.csv; {told}"
    if (seconds := time.monotonic() - began) > 20 and instructor.sandbox():  # bob's answer alone takes longer
        yield f"an interrupted class goes on for {seconds:.0f} s"


def leaderboard():
    """Returns the exit status."""
    kit, faults = kits.Kit(sys.argv[1]), 0
    exercise = kit.find("15")
    edited = lambda find, replace: cut.student_files(kit.root, exercise, stub=False, edits=[{"find": find, "replace": replace}])
    answers = {"alice": cut.student_files(kit.root, exercise, stub=False),
               "bob": cut.answer_files(kit.root, exercise, exercise["folder"] / "variants/copies.patch"),
               "carol": cut.wrong_files(kit.root, exercise, next(each for each in exercise["wrong"] if each["id"] == "average-twice")),
               "dave": edited("void Overlap::launch(std::size_t i) {\n", "void Overlap::launch(std::size_t i) {\n  if (parameters_.size() > 15) return;\n"),
               "erin": edited("void Overlap::finish() {\n", "void Overlap::finish() {\n  if (parameters_.size() > 15) fmt::print(\"9 steps in 0:01, 900M tokens/s\\n\");\n")}
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        subprocess.run([sys.executable, instructor.__file__, "export", f"{folder}/course", "--exercises", "15", "--kit", sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
        Path(folder, "key").write_text("0123456789abcdef")
        for student, files in answers.items():
            cut.write(files, Path(folder, "submissions", student, exercise["id"]))
        done = subprocess.run([sys.executable, instructor.__file__, "leaderboard", f"{folder}/submissions", "--course", f"{folder}/course", "--key", f"{folder}/key",
                               "--out", f"{folder}/results", "--rounds", "1", "--train", "--steps 6 --link 1Gbps,50us"], capture_output=True, text=True)
        for pattern in (r"^ +[12]\. +\d\.\d{3}  alice ", r"^ +[12]\. +\d\.\d{3}  bob ", r"^ +- +carol .* wrong: gradients: ",
                        r"^ +- +dave .* trains another model: [\d.]+ bits per byte", r"^ +- +erin .* printed its speed \d+ times"):
            if not re.search(pattern, done.stdout, re.M):
                faults += 1
                print(f"leaderboard: no line \"{pattern}\" in:\n{done.stdout}{done.stderr[-1000:]}", flush=True)
        print(done.stdout, end="")
    print(f"leaderboard: {faults or 'no'} faults")
    return 1 if faults else 0


def filled(measured, lang, but=()):
    """A report whose rows are what the files say, but for those of `but`: {id: cell}."""
    text, but = reports.template(lang), dict(but)
    for number, (_, rows, question) in enumerate(reports.SECTIONS, 1):
        for row in rows:
            value = row.expected(measured, 2)
            cell = sorted(value)[0] if row.kind == "name" else f"[{round(value * 1e6 / 4)}]" if row.kind == "shape" else f"{value:.3g} {row.unit}"
            text = text.replace(f"| {cut.said(row.label, lang)} | |", f"| {cut.said(row.label, lang)} | {but.get(row.id, cell)} |")
        answer = but.get(f"question {number}", "It allocates memory that later steps find ready: 46 ms in the first step, none after." * 2)
        text = text.replace(f"> {cut.said(question, lang)}\n", f"> {cut.said(question, lang)}\n\n{answer}\n")
    return text


def measured_report():
    """Returns the exit status."""
    kit, faults = kits.Kit(sys.argv[1]), []
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        Path(folder, "measure").mkdir()
        for command in reports.COMMANDS:
            subprocess.run([kit.ringside, *command.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        measured = reports.Measured(Path(folder, "measure"))

        def found(lang, but=()):
            Path(folder, "measure/report.md").write_text(filled(measured, lang, but))
            return {name: fault for name, fault in reports.checked(Path(folder, "measure")) if fault}

        mean = statistics.mean(measured.rest(2)) + 5 * statistics.median(measured.rest(2))  # so far off that no measurement hides it
        for lang in handouts.LANGUAGES:
            if told_so := found(lang):
                faults.append(f"{lang}, filled in from the files: {told_so}")
        for but, name, says in (({"median": f"{mean:.1f}"}, "median", "the files say"), ({"warm-up": "0"}, "warm-up", "leave out one step"),
                                ({"warm-up": "20"}, "warm-up", "4 steps are left after it, expected 10"), ({"at-the-peak": "embedding"}, "at-the-peak", "the files say"),
                                ({"tensor": "[16, 128, 128]"}, "tensor", "[16, 128, 128] has 1.049 MB in fp32, and the rise is"), ({"risen": ""}, "risen", "you write nothing"),
                                ({"question 3": "It rises."}, "question 3", "2 words, expected 12"), ({"peak": ""}, "peak", "has no number")):
            told_so = found("en", but)
            if says not in told_so.get(name, ""):
                faults.append(f"{but}: expected \"{says}\", told {told_so}")
        steps = [{"step_seconds": seconds / 1000} for seconds in [300.0, 100.0, *[100.0, 110.0] * 8, 400.0]]
        Path(folder, "measure/steps.jsonl").write_text("\n".join(map(json.dumps, steps)))
        for value, says in ((122.4, "you give the mean of these steps"), (100, "the files say 110"), (130.5, "you give the mean of all steps")):
            measured = reports.Measured(Path(folder, "measure"))
            if says not in found("en", {"median": str(value)}).get("median", ""):
                faults.append(f"median {value}: told {found('en', {'median': str(value)})}, expected \"{says}\"")
        Path(folder, "measure/trace.json").unlink()
        try:
            reports.checked(Path(folder, "measure"))
            faults.append("without a trace the report is checked")
        except ValueError as error:
            if "measure/trace.json is missing" not in str(error):
                faults.append(str(error))
    for fault in faults:
        print(f"report: {fault}", flush=True)
    print(f"report: {len(faults) or 'no'} faults")
    return 1 if faults else 0


# A test in the form of CS336's: two ranks train, and their last weights are those of one process. The optimizer's has the same
# gradients on both.
LAST_WEIGHTS = """
import copy, os, torch, torch.distributed as dist, torch.multiprocessing as mp
from . import adapters

def train(rank, what):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="FREE")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    alone, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), torch.randn(8, 4)
    model = copy.deepcopy(alone)
    parallel = {"ddp": lambda: adapters.get_ddp(model), "bucketed": lambda: adapters.get_ddp_bucketed(model, 0.0001)}.get(what, lambda: model)()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (alone, model)]
    if what == "optimizer":
        optimizers[0] = torch.optim.AdamW(alone.parameters())
        optimizers[1] = adapters.get_sharded_optimizer(model.parameters(), torch.optim.AdamW)
    for step in range(3):
        for each in optimizers:
            each.zero_grad()
        alone(x).square().mean().backward()
        parallel(x if what == "optimizer" else x[4 * rank:4 * rank + 4]).square().mean().backward()
        {"ddp": lambda: adapters.ddp_on_after_backward(parallel, None),
         "bucketed": lambda: adapters.ddp_bucketed_on_after_backward(parallel, None)}.get(what, lambda: None)()
        for each in optimizers:
            each.step()
    for mine, whole in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(mine, whole, atol=1e-6)
    dist.destroy_process_group()

def test_last_weights():
    mp.spawn(train, args=("WHAT",), nprocs=2)
"""


def cs336_repositories():
    """Returns the exit status."""
    if not torch_form.installed_torch():
        print("SKIPPED: repositories of CS336, because there is no torch", flush=True)
        return 0
    kit, faults = kits.Kit(sys.argv[1]), 0
    overlap, bucketed = kit.find("15"), kit.find("17")
    wrong = lambda exercise, name: torch_form.edited(exercise, next(each for each in torch_form.view(exercise)["wrong"] if each["id"] == name))
    adapters = ("from . import ddp, bucketed, sharded\nimport torch\n"
                "def get_ddp(module):\n    return ddp.DDP(module)\ndef ddp_on_after_backward(model, optimizer):\n    model.finish_gradient_synchronization()\n"
                "def get_ddp_bucketed(module, size):\n    return bucketed.DDP(module, size)\n"
                "def ddp_bucketed_on_after_backward(model, optimizer):\n    model.finish_gradient_synchronization()\n"
                "def ddp_bucketed_on_train_batch_start(model, optimizer):\n    pass\n"
                "def get_sharded_optimizer(params, optimizer_cls, **kwargs):\n    return OPTIMIZER\n"
                "def get_fsdp(module, compute_dtype=None):\n    raise NotImplementedError\n")
    # Right answers to CS336's text, which leaves open what our exercises settle.
    only_used = torch_form.edited(overlap, {"id": "only-used", "edits": [
        {"find": "        parameter.grad /= dist.get_world_size()\n", "replace": ""},
        {"find": "            work.wait()\n", "replace": "            work.wait()\n        torch.cuda.synchronize()\n        with torch.cuda.nvtx.range(\"divides\"):\n            pass\n        for parameter in self.module.parameters():\n            if parameter.requires_grad:\n                parameter.grad /= dist.get_world_size()\n"}]})
    silent = {"find": "                if 0 < ranks < dist.get_world_size():\n", "replace": "                if False:\n"}
    buckets_by = lambda *edits: torch_form.edited(bucketed, {"id": "other-buckets", "edits": [silent, *edits]})
    mebibytes = {"find": "bucket_size_mb * 1e6", "replace": "bucket_size_mb * 2**20"}
    when_reached = {"find": "size > room or parameter.dtype != buckets[-1][0].dtype", "replace": "room <= 0"}
    four_bytes = {"find": "parameter.numel() * parameter.element_size()", "replace": "parameter.numel() * 4"}
    first_layers_first = {"find": "reversed([each for each in module.parameters() if each.requires_grad])", "replace": "[each for each in module.parameters() if each.requires_grad]"}
    by_count = torch_form.edited(kit.find("19"), {"id": "by-count", "edits": [edit for name in ("by-count", "rate-frozen") for each in kit.find("19")["wrong"]
                                                                              if each["id"] == name for edit in each["python"].get("edits", [each["python"]])]})
    as_ready = next(each["python"]["edits"] for each in bucketed["wrong"] if each["id"] == "as-ready")
    holds = next(each["python"] for each in bucketed["wrong"] if each["id"] == "unused-holds")
    with_the_next = {"find": "while len(self.under_way) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.under_way)]):",
                     "replace": "while len(self.under_way) + 1 < len(self.buckets) and not self.ready.isdisjoint(self.buckets[len(self.under_way) + 1]):"}
    one_each = {"find": "if not buckets or size > room", "replace": "if True or size > room"}
    nothing, replicated = "no-model: no module has run forward", "replicated: each of 2 ranks keeps all parameters between two steps"
    for missed, due in (([nothing, None], []), ([nothing, replicated], [replicated]), ([nothing, nothing], [nothing]), ([None], [])):
        if cs336.first_missed([{"findings": {"fsdp": each}} for each in missed]) != due:
            faults += 1
            print(f"cs336: tests that miss {missed} are not told as {due}", flush=True)
    of_ranks = ("def test():\nE   torch.multiprocessing.spawn.ProcessRaisedException:\nE\nE   Traceback (most recent call last):\n"
                "E     File \"test_ddp.py\", line 7\nE   AssertionError: 1 is not 2\n\nspawn.py:220: ProcessRaisedException")
    for text, due in ((of_ranks, ["AssertionError: 1 is not 2"]), ("E   assert 3 == 4\n\ntest_ddp.py:3: AssertionError", ["assert 3 == 4"])):
        report = f'<testsuites><testsuite><testcase><failure message="long">{text}</failure></testcase><testcase/></testsuite></testsuites>'
        if (found := cs336.reasons(report)) != due:
            faults += 1
            print(f"cs336: a failed test is told as {found}, {due} are due", flush=True)
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        def told(name, ddp, buckets, what):
            tests = Path(folder, name, "tests")
            with kits.reserved_port()[0] as holder:
                port = str(holder.getsockname()[1])
            test = LAST_WEIGHTS.replace("FREE", port).replace("WHAT", what)
            if name == "in MiB" and not shutil.which("nvidia-smi"):  # a test that asks for a GPU
                test = test.replace('"gloo"', '"nccl"')
            optimizer = "optimizer_cls(params, **kwargs)" if name == "plain" else "sharded.ShardedOptimizer(params, optimizer_cls, **kwargs)"
            answer = torch_form.reference(kit.find("19")) if name != "by count" else by_count
            cut.write({"__init__.py": "", "adapters.py": adapters.replace("OPTIMIZER", optimizer), "ddp.py": ddp, "bucketed.py": buckets,
                       "sharded.py": answer,
                       {"optimizer": "test_sharded_optimizer.py"}.get(what, "test_ddp.py"): test}, tests)
            return cs336.verdict(kit, tests.parent, limit=600)["problems"]

        right = torch_form.reference(overlap), torch_form.reference(bucketed)
        late = wrong(overlap, "sync-at-end"), wrong(bucketed, "all-at-finish")
        overlapped, of_buckets, of_state = "ddp_overlap_individual_parameters", "ddp_overlap_bucketed", "optimizer_state_sharding"
        for name, ddp, buckets, what, due in (
                ("right", *right, "ddp", {overlapped: (True, []), of_buckets: (True, [])}),
                ("in MiB", only_used, buckets_by(mebibytes), "ddp", {overlapped: (True, ["15, other-nets"]), of_buckets: (True, [])}),
                ("when reached", right[0], buckets_by(when_reached, four_bytes), "bucketed", {of_buckets: (True, ["17, bucket-size"])}),
                ("in MiB when reached", right[0], buckets_by(mebibytes, when_reached), "bucketed", {of_buckets: (True, ["17, bucket-size"])}),
                ("as ready", right[0], buckets_by(first_layers_first, *as_ready), "bucketed", {of_buckets: (True, ["17, same-order"])}),
                ("with the next", right[0], buckets_by(with_the_next, mebibytes), "bucketed", {of_buckets: (True, ["17, same-order"])}),
                ("used alone", right[0], buckets_by(holds), "bucketed", {of_buckets: (True, ["17, other-nets"])}),
                ("late", *late, "bucketed", {overlapped: (False, ["15, order: sync-at-end: "]), of_buckets: (False, ["17, order: all-at-finish: "])}),
                ("one each", right[0], buckets_by(one_each), "bucketed", {of_buckets: (False, ["17, order: "])}),
                ("first last", right[0], buckets_by(first_layers_first), "bucketed", {of_buckets: (False, ["17, order: "])}),
                ("plain", *right, "optimizer", {of_state: (False, ["19, memory: world 2, each of 2 ranks keeps 8.01 n bytes of optimizer state"])}),
                ("by count", *right, "optimizer", {of_state: (True, ["19, rates: ", "19, balance: world 2, rank 0 keeps 7.9"])}),
                ("sharded", *right, "optimizer", {of_state: (True, [])})):
            rows = {each["problem"]: each for each in told(name, ddp, buckets, what)}
            for problem, (passes, says) in due.items():
                row = rows.get(problem, {})
                told_so = row.get("remarks" if passes else "says", ["no such row"])
                if row.get("passes theirs") is not True or row.get("passes ours") is not passes or len(told_so) < len(says) or passes and len(told_so) > len(says) \
                        or not all(each.startswith(due_says) for each, due_says in zip(told_so, says)):
                    faults += 1
                    print(f"cs336, {name}: {problem}: expected to pass theirs and {'' if passes else 'not '}ours, {says}; {row}", flush=True)
        rows = {each["problem"]: each for each in told("imports", "import a_module_that_is_missing\n", right[1], "ddp")}
        if rows[overlapped]["passes ours"] is not None or rows[overlapped]["passes theirs"] is not None \
                or "cannot be imported here: ModuleNotFoundError" not in rows[overlapped]["says"][0]:
            faults += 1
            print(f"cs336: a repository that lacks a module is judged: {rows[overlapped]}", flush=True)
        with kits.reserved_port()[0] as holder:
            port = holder.getsockname()[1]
        Path(folder, "test_meets.py").write_text(f"import socket, time\ndef test():\n    with socket.create_server((\"127.0.0.1\", {port})):\n        time.sleep(2)\n")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            at_once = list(pool.map(lambda _: cs336.tested(kit, Path(folder), [], "test_meets.py", None, 600)[:2], range(2)))
        if at_once != [(True, []), (True, [])]:
            faults += 1
            print(f"cs336: two gradings at once, whose tests meet at one port: {at_once}", flush=True)
        try:
            cs336.verdict(kit, Path(folder), limit=600)
            faults += 1
            print("cs336: a folder without adapters is judged", flush=True)
        except ValueError as error:
            if "expected a repository of CS336's assignment 2, with tests/adapters.py" not in str(error):
                faults += 1
                print(f"cs336: a folder without adapters: {error}", flush=True)
    print(f"cs336: {faults or 'no'} faults")
    return 1 if faults else 0


def slides():
    """Returns the exit status."""
    faults, exercises = [], kits.Kit(sys.argv[1]).exercises
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory(prefix="ringside-selftest-") as folder:
        for lang in handouts.LANGUAGES:
            file = Path(folder, f"{lang}.html")
            subprocess.run([sys.executable, instructor.__file__, "slides", file, "--lang", lang], check=True, stdout=subprocess.DEVNULL)
            page = file.read_text()
            ids = re.findall(r'<section id="([^"]*)"', page)
            for exercise in exercises:
                number = exercise["id"][:2]
                due = 6 - (not (exercise["folder"] / "figure.svg").exists()) - ("## A worked example" not in (exercise["folder"] / "handout.en.md").read_text())
                if ids.count(f"{number}-{due}") != 1 or f"{number}-{due + 1}" in ids:
                    faults.append(f"{lang}, {exercise['id']}: {sum(each.startswith(number) for each in ids)} slides, expected {due}")
            if outside := re.findall(r'(?:src|href)="(?!https://)[^"]*"|<(?:link|img|script src)[^>]*>', page):
                faults.append(f"{lang}: needs {outside[0]}")
            if not browser:
                print("SKIPPED: how slides look, because there is no browser (apt-get install chromium)", flush=True)
                continue
            shown = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--window-size=1280,720",
                                    "--dump-dom", f"file://{file}"], capture_output=True, text=True).stdout
            if '<body class="one">' not in shown or shown.count("<section") != len(ids):
                faults.append(f"{lang}: the browser shows no slides: {shown[:200]}")
            faults += [f"{lang}: the slide {each} does not hold its text" for each in re.findall(r'<section id="([^"]*)" class="overflows', shown)]
    for fault in faults:
        print(f"slides: {fault}", flush=True)
    print(f"slides: {len(exercises)} exercises, {len(faults) or 'no'} faults")
    return 1 if faults else 0


def told(proof, kit, exercise):
    """The faults of a proof, also where it cannot go on."""
    try:
        yield from proof(kit, exercise)
    except cut.CutError as error:
        yield str(error)
    except kits.Broken as broken:
        yield f"the reference: {broken.status}: {broken.says[0]}"


def all_told(proof, kit, exercise):
    return exercise, list(told(proof, kit, exercise))


def option(name, default):
    """The number after --NAME=."""
    return int(next((each.partition("=")[2] for each in sys.argv if each.startswith(f"--{name}=")), default))


def piece_of(exercises):
    """With --piece=K/N every Nth exercise, from the Kth on, so that N runs prove all. Those that take long are in different pieces."""
    number, _, count = next((each.partition("=")[2] for each in sys.argv if each.startswith("--piece=")), "1/1").partition("/")
    return sorted(exercises, key=lambda each: -each["seconds"])[int(number) - 1::int(count)]


def main():
    if alone := {"clinic": clinic, "own": own_exercise, "class": class_run, "leaderboard": leaderboard, "submissions": handed_in, "report": measured_report, "slides": slides, "cs336": cs336_repositories}.get(sys.argv[2]):
        with kits.saying(lambda: f"{sys.argv[2]}: still proving"):
            return alone()
    kit = kits.Kit(sys.argv[1])
    proof = {"references": references, "variants": variants, "kernels": kernels, "cuda": cuda, "programs": programs, "python": python, "trainings": trainings, "seeds": seeds, "steady": steady, "stubs": stubs, "wrong": wrong, "weak": weak,
             "anchors": anchors, "exported": exported, "formats": formats, "debugger": debugger, "attacks": attacks, "families": families}[sys.argv[2]]
    began = time.monotonic()
    names = [each for each in sys.argv[3:] if not each.startswith("--")]
    exercises = [kit.find(name) for name in names] or piece_of(kit.exercises)
    # Much of a proof is one compiler at a time, and ranks that wait for each other. Those that measure, or try to harm the machine, are alone.
    jobs = 1 if proof in (steady, attacks) else option("jobs", os.cpu_count() or 1)
    if proof is exported:
        two_exports()  # once, for all jobs
    faults, done, count = 0, 0, len(exercises)
    # The processes begin before the thread that speaks: a fork would copy a lock that it may hold.
    with multiprocessing.get_context("fork").Pool(jobs) as pool, kits.saying(lambda: f"{sys.argv[2]}: {done} of {count} exercises, {faults or 'no'} faults"):
        by_time = sorted(exercises, key=lambda each: -each["seconds"])
        for exercise, found in pool.imap_unordered(functools.partial(all_told, proof, kit), by_time):
            done += 1
            for fault in found:
                faults += 1
                print(f"{exercise['id']}: {fault}", flush=True)
    for fault in clinic_anchors() if sys.argv[2] == "anchors" else ():
        faults += 1
        print(fault, flush=True)
    print(f"{sys.argv[2]}: {count} exercises, {faults or 'no'} faults, {time.monotonic() - began:.0f} s")
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main())
