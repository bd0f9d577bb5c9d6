"""`ringside-exercises cs336 FOLDER ...`: repositories of CS336's assignment 2, each judged twice.

Its own tests run over Ringside, with the witness of `ringside watch`. Then the cases of our exercises run on the classes that its
tests/adapters.py returns, in Python with torch (torch_form.py). Code of the repository runs with the rights of the caller, as
pytest does: in a container where you do not know it.
"""
import ast
import contextlib
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import kit as kits
import torch_form

# For each problem and edition: the adapter that makes the student's object, what runs after backward and before a batch, CS336's test,
# what `ringside watch` expects, and our exercise: its "cs336_cases" judge what the assignment asks for, and make remarks on what it leaves open.
PROBLEMS = [
    ("ddp_overlap_individual_parameters", "get_ddp_individual_parameters", "ddp_individual_parameters_on_after_backward", None,
     "tests/test_ddp_individual_parameters.py", "overlap", "15"),
    ("ddp_overlap_individual_parameters", "get_ddp", "ddp_on_after_backward", None, "tests/test_ddp.py", "overlap", "15"),
    ("ddp_overlap_bucketed", "get_ddp_bucketed", "ddp_bucketed_on_after_backward", "ddp_bucketed_on_train_batch_start",
     "tests/test_ddp.py", None, "17"),
    ("optimizer_state_sharding", "get_sharded_optimizer", None, None, "tests/test_sharded_optimizer.py", "sharded-optimizer", "19"),
    ("fsdp", "get_fsdp", None, None, "tests/test_fsdp.py", "fsdp", None)]

NOT_THERE = re.compile(r"\b(?:ModuleNotFound|Import)Error: .*")
REASON = re.compile(r"^(?:E +)?((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*|assert .*|Failed: .*)", re.M)


def written(folder):
    """{adapter: whether it is written} of tests/adapters.py. Throws ValueError where that is not CS336's."""
    file = Path(folder, "tests/adapters.py")
    try:
        tree = ast.parse(file.read_text())
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{folder}: expected a repository of CS336's assignment 2, with tests/adapters.py: {error}") from None
    found = {each.name: "raise NotImplementedError" != ast.unparse(each.body[-1])[:25] for each in tree.body if isinstance(each, ast.FunctionDef)}
    if not any(adapter in found for _, adapter, *_ in PROBLEMS):
        raise ValueError(f"{file}: expected one of {', '.join(adapter for _, adapter, *_ in PROBLEMS)}, found {', '.join(found) or 'no function'}")
    return found


def packages(kit, folder, scratch):
    """Folders to import from, as if the packages of the repository were installed: some ask for their own version. `scratch` is one of
    them, and has what torch does without a GPU."""
    places = [folder]
    for project in sorted([*folder.glob("pyproject.toml"), *folder.glob("*/pyproject.toml")]):
        name, version = (re.search(rf'^{key} = "([^"]+)"', project.read_text(), flags=re.M) for key in ("name", "version"))
        if name:
            told = Path(scratch, f"{name[1].replace('-', '_')}-0.dist-info")
            told.mkdir(exist_ok=True)
            (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name[1]}\nVersion: {version[1] if version else 0}\n")
        places.append(project.parent)
    shutil.copy(kit.root / "exercises/judge/torch/no_gpu.py", scratch)
    told = Path(scratch, "ringside_no_gpu-0.dist-info")
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: ringside-no-gpu\nVersion: 0\n")
    (told / "entry_points.txt").write_text("[torch.backends]\nno_gpu = no_gpu:stand_in\n")
    return [str(each) for each in dict.fromkeys([Path(scratch), *places])]


def run_limited(command, seconds, **how):
    """The output of a command, whose processes all end with it and after so many seconds at most: a rank that waits for another waits forever."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True, **how) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0] + f"\nexpected the tests to end within {seconds} s (--limit), they were still running"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@contextlib.contextmanager
def turn():
    """Holds the machine for the tests of one repository: the ranks of CS336's tests meet at a fixed port, and those of two gradings
    would meet each other there. The lock is a name that a socket has in this network alone, as a port; it ends with its process."""
    with socket.socket(socket.AF_UNIX) as lock:
        waits = False
        while True:
            try:
                lock.bind("\0ringside-cs336")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            if not waits:
                waits = True
                print("waits for the tests of another grading on this machine: CS336's tests use one port", file=sys.stderr, flush=True)
            time.sleep(0.1)
        yield


def first_missed(seen):
    """What the witness of these tests misses first, in a list, or nothing. A test in which no model runs says nothing where another has one."""
    told = [missed for each in seen for missed in each["findings"].values()]
    of_models = [missed for missed in told if not (missed or "").startswith("no-model")]
    return [missed for missed in of_models or told if missed][:1]


def reasons(report):
    """What each test failed by, from pytest's XML: the last exception that its text names, which is a rank's where a rank has ended by one."""
    told = []
    for test in ElementTree.fromstring(report).iter("testcase"):
        for fault in [*test.iter("failure"), *test.iter("error")]:
            named = REASON.findall(fault.text or "") or [fault.get("message", "")]
            told.append(named[-1].strip()[:300])
    return list(dict.fromkeys(told))


def tested(kit, folder, paths, test, expected, limit):
    """(whether CS336's test passes, why not, what the witness misses) of one file of tests. None: it could not run here."""
    torch = torch_form.installed_torch()
    with tempfile.TemporaryDirectory(prefix="ringside-cs336-") as out:
        command = [torch["python"], "-m", "ringside", "watch", "--json", f"{out}/seen.json", *(["--expect", expected] if expected else []), "--",
                   torch["python"], "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={out}/tests.xml", test]
        environment = {**os.environ, **torch_form.place_of_ringside(kit), "PYTHONPATH": ":".join([kit.python, *paths]), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        with turn():
            output = run_limited(command, limit, cwd=folder, env=environment)
        report = Path(out, "tests.xml").read_text() if Path(out, "tests.xml").exists() else ""
        seen = json.loads(Path(out, "seen.json").read_text()) if Path(out, "seen.json").exists() else []
    counts = dict(each.split('="') for each in re.findall(r'\b((?:tests|skipped)="\d+)"', report))
    try:
        faults = reasons(report)
    except ElementTree.ParseError:  # there is none, or it was cut off: pytest did not come to its end
        faults = output.strip().splitlines()[-1:] or ["pytest printed nothing"]
    if not faults and counts.get("tests", "0") == counts.get("skipped", "0"):
        faults = [f"{test} has no test that ran"]
    passes = None if faults and all(NOT_THERE.search(each) for each in faults) else not faults
    return passes, faults, first_missed(seen)


def judged(kit, folder, number, adapters):
    """(faults, remarks) of our cases on the class that an adapter returns: a sentence for each case."""
    exercise = kit.find(number)
    cases = {each["id"]: each for each in exercise["cs336_cases"]}
    # A wrong answer of the exercise lends its name to the sentences of the case that is like its own.
    named = lambda answers: [{**each, "fails": id} for id, case in cases.items() for each in answers if each["fails"] == case.get("like", id.removeprefix("cs336-"))]
    python = {**exercise["python"], "wrong": named(exercise["python"].get("wrong", []))}
    exercise = {**exercise, "cases": [*cases.values()], "points": 0, "wrong": named(exercise["wrong"]), "python": python}
    seen = kits.check(kit, exercise, folder, None, language="python", adapters=adapters, deadline=kits.PATIENT)
    told = [(cases[each["id"]].get("remark", False), f"{number}, {each['id'].removeprefix('cs336-')}: {each['named'] + ': ' if each.get('named') else ''}{each['says'][0]}")
            for each in seen["cases"] if each["status"] != "right"]
    return [says for is_remark, says in told if not is_remark], [says for is_remark, says in told if is_remark]


def verdict(kit, folder, limit):
    """One row for each problem of the repository's edition. A test ends after `limit` seconds at most."""
    folder = Path(folder).resolve()
    functions = written(folder)
    with tempfile.TemporaryDirectory(prefix="ringside-cs336-") as scratch:
        return {"folder": folder.name, "problems": rows_of(kit, folder, functions, packages(kit, folder, scratch), limit)}


def rows_of(kit, folder, functions, paths, limit):
    rows = []
    for problem, make, finish, start, test, expected, number in PROBLEMS:
        if make not in functions or not (folder / test).exists():
            continue
        row = {"problem": problem, "test": test, "passes theirs": None, "passes ours": None, "faults": [], "says": [], "remarks": []}
        rows.append(row)
        if not functions[make]:
            row["says"] = [f"{make} is not written"]
            continue
        row["passes theirs"], row["faults"], missed = tested(kit, folder, paths, test, expected, limit)
        row["passes ours"], row["says"] = not missed, missed
        if missed and missed[0].startswith("no-model"):  # nothing was seen, so nothing is said
            row["passes ours"] = None
        if number:
            faults, row["remarks"] = judged(kit, folder, number, {"paths": paths, "make": make, "finish": finish, "start": start})
            of_state = [each for each in missed if not each.startswith("by-count")]  # how state is dealt out is a remark: 19, balance
            row["passes ours"], row["says"] = not faults, faults + (of_state if faults else [])
            if faults and all(NOT_THERE.search(each) for each in faults):
                row["passes ours"], row["says"], row["remarks"] = None, [f"not judged, because its code cannot be imported here: {NOT_THERE.search(faults[0])[0]}"], []
        elif not row["passes theirs"]:
            row["passes ours"], row["says"] = None, []  # what a failing test keeps and sends says nothing
    return rows


WORD = {True: "passes", False: "fails", None: "-"}


def told(found):
    """The lines for a terminal on one repository."""
    if "refused" in found:
        return found["refused"]
    lines = [f"{'problem':<36}{'their tests':<13}{'our cases'}"]
    for row in found["problems"]:
        lines.append(f"{row['problem']:<36}{WORD[row['passes theirs']]:<13}{WORD[row['passes ours']]}")
        lines += [f"    {each}" for each in row["says"]] + [f"    (not asked) {each}" for each in row["remarks"]]
        if row["passes theirs"] is False or not row["says"]:
            lines += [f"    their tests: {each}" for each in row["faults"][:2]]
    both = [row for row in found["problems"] if None not in (row["passes theirs"], row["passes ours"])]
    apart = [row["problem"] for row in both if row["passes theirs"] != row["passes ours"]]
    return "\n".join([*lines, f"they differ in {', '.join(apart)}" if apart else "both agree" if both else "nothing to compare"])


def counted(all_found):
    """How many repositories pass which, for each problem."""
    lines = [f"{'problem':<36}{'written':>9}{'pass theirs':>13}{'pass ours':>11}{'theirs alone':>14}{'ours alone':>12}"]
    for problem in dict.fromkeys(row["problem"] for found in all_found for row in found.get("problems", [])):
        pairs = [(row["passes theirs"], row["passes ours"]) for found in all_found for row in found.get("problems", []) if row["problem"] == problem]
        written_ones = [pair for pair in pairs if pair[0] is not None]
        lines.append(f"{problem:<36}{len(written_ones):>9}{sum(theirs for theirs, _ in written_ones):>13}{sum(ours is True for _, ours in written_ones):>11}"
                     f"{written_ones.count((True, False)):>14}{written_ones.count((False, True)):>12}")
    return "\n".join(lines)


def run(kit, args):
    """Returns 1 if a problem that is written fails in either, or a folder is no repository of the assignment."""
    if not torch_form.installed_torch():
        raise ValueError(torch_form.NO_TORCH)
    all_found = []
    for folder in args.folders:
        try:
            found = verdict(kit, folder, args.limit)
        except ValueError as error:
            if len(args.folders) == 1:
                raise
            found = {"folder": Path(folder).name, "refused": str(error)}
        all_found.append(found)
        print(f"{found['folder']}\n{told(found)}\n" if len(args.folders) > 1 else told(found), flush=True)
        if args.json:  # after each repository: what is done is not lost when a later one is interrupted
            Path(args.json).write_text(json.dumps({"schema": "ringside/cs336/v1", "repositories": all_found}, indent=1) + "\n")
    if len(all_found) > 1:
        print(counted(all_found))
    return 1 if any("refused" in found or any(False in (row["passes theirs"], row["passes ours"]) for row in found["problems"]) for found in all_found) else 0
