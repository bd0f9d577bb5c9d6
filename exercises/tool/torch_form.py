"""Answers in Python, with torch: the other form of an exercise that has "python" in exercise.json.

The judge is the same: cases, worlds, points, sentences and wrong answers are those of exercise.json, and judge() of judge.cpp reads
what the ranks saw. Here is what differs: the student's file, the ranks, and who sees their calls (exercises/judge/torch):

    ranks.py      the warm parent, with the rights of a submission: imports torch once, and forks a process for each rank
    remote.py     what a rank has for a network: a socket to
    witness.py    a process without the student's code, which makes the calls of a world, and keeps what it sees
"""
import ast
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import cut
import kit as kits

NO_NUMBER = "the data of a rank has another form"  # how main.cpp begins where a judge finds something else than it reads
NO_TORCH = ("torch is not installed, which an answer in Python needs: python3 -m pip install torch --index-url https://download.pytorch.org/whl/cpu; "
            "or name a Python that has it: export RINGSIDE_TORCH_PYTHON=/path/to/venv/bin/python")


# ---- The files

def offered(exercise):
    return "python" in exercise


def file_of(exercise):
    """The name of the student's file."""
    return exercise["python"]["file"]


def view(exercise):
    """The exercise as it is judged in this form: titles that differ, and the wrong answers that exist in Python, with their sentences."""
    titles = exercise["python"].get("titles", {})
    shared = [{**{key: each[key] for key in ("id", "fails", "says", "passes_weak") if key in each}, **each["python"]} for each in exercise["wrong"] if "python" in each]
    return {**exercise, "cases": [{**case, "title": titles.get(case["id"], case["title"])} for case in exercise["cases"]],
            "wrong": shared + exercise["python"].get("wrong", [])}


def answers_of(exercise):
    """What in torch is the answer of this exercise, by its name."""
    return exercise["python"].get("answers", [])


def reference(exercise):
    return (exercise["folder"] / "python" / file_of(exercise)).read_text()


def starter(exercise, written=()):
    """The reference without the bodies of the functions in "cut", but those in `written`: their docstrings stay."""
    text, names = reference(exercise), [each for each in exercise["python"]["cut"] if each not in written]
    lines, found = text.split("\n"), {}
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for inner in getattr(node, "body", []) if isinstance(node, (ast.Module, ast.ClassDef)) else []:
            if isinstance(inner, ast.FunctionDef):
                found[f"{node.name}.{inner.name}" if isinstance(node, ast.ClassDef) else inner.name] = inner
    for name in names:
        if name not in found:
            raise cut.CutError(f"{exercise['id']}: expected a function {name} in {file_of(exercise)}, found {', '.join(found)}")
    for name in sorted(names, key=lambda each: -found[each].lineno):
        body = found[name].body
        documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        begin = body[0].end_lineno if documented else body[0].lineno - 1
        lines[begin:found[name].end_lineno] = [" " * body[0].col_offset + f'raise NotImplementedError("{name} is not yet written")']
    return "\n".join(lines)


def edited(exercise, answer):
    """A wrong answer: a file, a patch, or the reference with edits."""
    if "path" in answer:
        return variant(exercise, answer["path"])
    text = reference(exercise)
    for edit in answer.get("edits") or [answer]:
        text = cut.replace_once(text, edit["find"], edit["replace"], f"{exercise['id']}, {answer['id']} in Python")
    return text


def variants_of(exercise):
    """Patches of the reference, and files that take its place."""
    return sorted(path for path in (exercise["folder"] / "python/variants").glob("*") if path.suffix in (".patch", ".py"))


def variant(exercise, path):
    if path.suffix == ".py":
        return path.read_text()
    with tempfile.TemporaryDirectory(prefix="ringside-answer-") as folder:
        Path(folder, file_of(exercise)).write_text(reference(exercise))
        done = subprocess.run(["git", "apply", "-p1", str(path)], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise cut.CutError(f"{exercise['id']}, {path.name} in Python: {done.stderr.strip()}")
        return Path(folder, file_of(exercise)).read_text()


# ---- The warm parent

MOVED = None  # in a sandbox instructor.py sets it: what torch_of() returns, where a submission may read it


def installed_torch():
    """Of the first Python that has torch: its path, the folder of its installation and that of torch. None if there is none."""
    named = (os.environ.get("RINGSIDE_TORCH_PYTHON"), sys.executable, shutil.which("python3"))
    return MOVED or next(filter(None, (torch_of(os.path.abspath(path)) for path in named if path)), None)


@functools.lru_cache(maxsize=None)
def torch_of(path):
    """None where this Python has no torch, or is no Python."""
    look = ("import importlib.util, json, os, sys; torch = importlib.util.find_spec('torch'); torch and print(json.dumps("
            "{'real': os.path.realpath(sys.executable), 'base': os.path.realpath(sys.base_prefix), 'packages': os.path.dirname(os.path.dirname(torch.origin))}))")
    try:
        found = subprocess.run([path, "-c", look], capture_output=True, text=True).stdout
    except OSError:
        found = ""
    return {"python": path, **json.loads(found)} if found else None


def place_of_ringside(kit):
    """Environment that says where the package ringside of this kit is, and its library."""
    return {"RINGSIDE_PYTHON": kit.python, "RINGSIDE_LIBRARY": kit.python_library}


class Parent:
    """A process that has imported torch. One serves all checks of this process."""

    current = None

    def __init__(self, kit):
        self.lock, self.key = threading.Lock(), (os.getpid(), str(kit.root))
        ours, theirs = socket.socketpair()
        here = kit.root / "exercises/judge/torch/ranks.py"
        environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "RINGSIDE_PYTHON": kit.python,
                       "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HOME": "/" if kits.USER else os.environ.get("HOME", "/")}
        if not (torch := installed_torch()):
            raise kits.Broken("judge error", NO_TORCH)
        if MOVED:
            environment |= {"PYTHONPATH": MOVED["packages"], "LD_LIBRARY_PATH": f"{MOVED['base']}/lib"}
        limits = kits.LIMITS if shutil.which("prlimit") else []
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*kits.CONFINED, *limits, torch["python"], str(here), str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                        env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors)
        theirs.close()
        self.socket, self.file = ours, ours.makefile("r")

    def ask(self, question, *descriptors):
        with self.lock:
            try:
                socket.send_fds(self.socket, [json.dumps(question).encode()], descriptors)
                line = self.file.readline()
            except OSError:
                line = ""
        if not line:
            Parent.current = None
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
            raise kits.Broken("judge error", f"the process that imports torch has ended: {said[0][:kits.LONGEST]}")
        return json.loads(line)

    def end(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()


making = threading.Lock()


def parent_of(kit):
    with making:
        if not Parent.current or Parent.current.key != (os.getpid(), str(kit.root)):
            Parent.current = Parent(kit)
        return Parent.current


def warm(kit):
    """Begins to import torch, for the checks that follow."""
    def begin():
        with contextlib.suppress(kits.Broken):  # a check says what is missing
            parent_of(kit).ask({"import": "torch"})

    threading.Thread(target=begin, daemon=True).start()


# ---- Running

class NotFinite(str):
    """What stands in a rank's data for a number that JSON does not have: "nan", "inf" or "-inf", which number_of() in C++ reads."""

    def __new__(cls, constant):
        return super().__new__(cls, {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[constant])


def places_not_finite(data, place=""):
    """The numbers that are not finite: "plain, steps[0], gradients, first.bias[2] is nan"."""
    if isinstance(data, NotFinite):
        yield f"{place or 'the result'} is {data}"
    for key, each in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places_not_finite(each, f"{place or 'results'}[{key}]" if isinstance(data, list) else f"{place}, {key}" if place else key)


class Runner(kits.Runner):
    """As that of C++ answers; each rank is a fork of the warm parent, and one witness makes the calls of a world."""

    def __init__(self, kit, path, exercise, seed=0, deadline=kits.DEADLINE, doing=None, command=None, adapters=None):
        super().__init__(kit, kit.program_of(exercise), exercise, seed=seed, deadline=deadline, doing=doing)
        self.path, self.parent, self.adapters = path, parent_of(kit), adapters

    def world(self, case, size, folder):
        """What the ranks came to, and behind them the single process, where the case has one."""
        form = self.exercise["python"]
        pairs = [socket.socketpair() for _ in range(size + (case["id"] in form.get("single", [])))]
        environment = {**self.environment, "RINGSIDE_JUDGE_SEED": str(self.seed), "RINGSIDE_BACKEND": "tcp", "RINGSIDE_FLIGHT_DIR": f"{folder}/flights",
                       "RINGSIDE_ALGORITHM": "all_reduce=ring,reduce_scatter=ring,all_gather=ring,broadcast=binomial", **place_of_ringside(self.kit)}
        if MOVED:
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [f"{MOVED['base']}/lib", environment.get("LD_LIBRARY_PATH")]))
        python = MOVED["python"] if MOVED else sys.executable  # in a sandbox the folder of the latter may be covered
        here = self.kit.root / "exercises/judge/torch/witness.py"
        witness = subprocess.Popen([python, "-B", str(here), str(self.deadline), str(size), *(str(ours.fileno()) for ours, _ in pairs)],
                                   pass_fds=[ours.fileno() for ours, _ in pairs], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=open(f"{folder}/witness.errors", "wb"))
        pids = []
        for rank, (ours, theirs) in enumerate(pairs):
            ours.close()
            with open(f"{folder}/{rank}.output", "wb") as output:
                told = {"rank": rank, "size": size, "case": case["id"], "collect": str(self.exercise["folder"] / "python/collect.py"),
                        "folder": str(kits.own_folder(Path(folder, str(rank)))), "path": str(self.path), "adapters": self.adapters, "ledger": self.exercise.get("ledger", False),
                        "answers": answers_of(self.exercise)}
                pids.append(self.parent.ask({"fork": told}, theirs.fileno(), output.fileno())["pid"])
            theirs.close()
        try:
            heard = witness.communicate(timeout=self.deadline + 5)[0]
        except subprocess.TimeoutExpired:
            witness.kill()
            heard = witness.communicate()[0]
        statuses = [self.ended(pid) for pid in pids]
        if witness.returncode != 0:
            raise kits.Broken("judge error", f"the witness ended: {kits.end_of(f'{folder}/witness.errors', 500)}")
        told = json.loads(heard, parse_constant=NotFinite, parse_int=lambda text: int(text) if len(text) < 300 else text)
        return [self.outcome_of(each, status) for each, status in zip(told, statuses)]

    def sentences(self, said, ranks):
        """Where a number is not finite: the judge may say no more than that it is none, and every comparison with nan is false."""
        found = next((f"rank {rank}: {place}" for rank, each in enumerate(ranks) for place in places_not_finite(each["data"])), None)
        if found is None or said and not said[0].startswith(NO_NUMBER):
            return said
        return [f"{found}, expected a finite number: look for 0 / 0, or for memory that nothing was written to, as of torch.empty()"]

    def ended(self, pid):
        """Ends a rank, and what it has started. Returns its status, as os.waitpid() does."""
        if self.parent.ask({"look": pid})["status"] is None:
            try:
                os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        return self.parent.ask({"reap": pid})["status"]

    @staticmethod
    def outcome_of(told, status):
        doing = told.pop("doing")
        if "hangs" in told:
            return {"hangs": f"did not come back from {doing}"}
        if "data" in told:
            return {"data": told["data"], "called": 1}
        for kind in ("error", "not_written"):
            if kind in told:
                text = told[kind][:kits.LONGEST] + "..." * (len(told[kind]) > kits.LONGEST)
                return {kind: f"{text} (in {doing})" if kind == "error" and doing != "the case" else text}
        ending = signal.Signals(status & 127).name if status & 127 else f"exit status {status >> 8}"
        return {"crashes": f"its process ended in {doing}, without a result ({ending})"}


def module_of(exercise):
    """What the warm parent imports, so that no rank has to wait for it: the ledger and optimizers of torch bring what would compile them,
    which takes seconds more."""
    return "torch._dynamo" if exercise.get("ledger") else "torch"


def runner(kit, exercise, folder, **how):
    """Of the answer in this folder. Throws Broken."""
    if how.get("adapters"):  # a repository of CS336's, whose code is not looked at
        parent_of(kit).ask({"import": module_of(exercise)})
        return Runner(kit, folder, view(exercise), **how)
    path = Path(folder).resolve() / file_of(exercise)
    if not path.exists():
        raise kits.Broken("not written", f"{folder} has no {path.name}")
    parent = parent_of(kit)
    if fault := parent.ask({"check": str(path), "cut": exercise["python"]["cut"], "ledger": exercise.get("ledger", False), "answers": answers_of(exercise)}):
        raise kits.Broken(fault["status"], fault["says"])
    parent.ask({"import": module_of(exercise)})
    return Runner(kit, path, view(exercise), **how)
