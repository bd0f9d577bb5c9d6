"""`ringside-exercises cs336 FOLDER`: a repository of CS336's assignment 2, judged twice.

Its own tests run over Ringside, with the witness of `ringside watch`. Then the cases of our exercises run on the classes that its
tests/adapters.py returns, in Python with torch (torch_form.py). Code of the repository runs with the rights of the caller, as
pytest does: in a container where you do not know it.
"""
import ast
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import kit as kits
import torch_form

# For each problem and edition: the adapter that makes the student's object, what runs after backward and before a batch, CS336's test,
# what `ringside watch` expects, our exercise and those of its cases that CS336 asks for, too.
PROBLEMS = [
    ("ddp_overlap_individual_parameters", "get_ddp_individual_parameters", "ddp_individual_parameters_on_after_backward", None,
     "tests/test_ddp_individual_parameters.py", "overlap", "15", ("gradients", "order", "calls")),
    ("ddp_overlap_individual_parameters", "get_ddp", "ddp_on_after_backward", None, "tests/test_ddp.py", "overlap", "15", ("gradients", "order", "calls")),
    ("ddp_overlap_bucketed", "get_ddp_bucketed", "ddp_bucketed_on_after_backward", "ddp_bucketed_on_train_batch_start",
     "tests/test_ddp.py", None, "17", ("gradients", "order", "same-order")),
    ("optimizer_state_sharding", "get_sharded_optimizer", None, None, "tests/test_sharded_optimizer.py", "sharded-optimizer", None, ()),
    ("fsdp", "get_fsdp", None, None, "tests/test_fsdp.py", "fsdp", None, ())]


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


def packages(folder, scratch):
    """Folders to import from, as if the packages of the repository were installed: some ask for their own version."""
    places = [folder]
    for project in sorted([*folder.glob("pyproject.toml"), *folder.glob("*/pyproject.toml")]):
        name, version = (re.search(rf'^{key} = "([^"]+)"', project.read_text(), flags=re.M) for key in ("name", "version"))
        if name:
            told = Path(scratch, f"{name[1].replace('-', '_')}-0.dist-info")
            told.mkdir(exist_ok=True)
            (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name[1]}\nVersion: {version[1] if version else 0}\n")
        places.append(project.parent)
    return [str(each) for each in dict.fromkeys([Path(scratch), *places])]


def tested(kit, folder, paths, test, expected):
    """(whether CS336's test passes, its last lines, what the witness misses) of one file of tests."""
    torch = torch_form.installed_torch()
    with tempfile.TemporaryDirectory(prefix="ringside-cs336-") as out:
        command = [torch["python"], "-m", "ringside", "watch", "--json", f"{out}/seen.json", *(["--expect", expected] if expected else []), "--",
                   torch["python"], "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={out}/tests.xml", test]
        environment = {**os.environ, **torch_form.place_of_ringside(kit), "PYTHONPATH": ":".join([kit.python, *paths]), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace")
        report = Path(out, "tests.xml").read_text() if Path(out, "tests.xml").exists() else ""
        counts = dict(each.split('="') for each in re.findall(r'\b((?:tests|failures|errors|skipped)="\d+)"', report))
        ran = {key: int(value) for key, value in counts.items()}
        passes = ran.get("tests", 0) > ran.get("skipped", 0) and ran.get("failures", 1) + ran.get("errors", 1) == 0
        seen = json.loads(Path(out, "seen.json").read_text()) if Path(out, "seen.json").exists() else []
    missed = [missed for each in seen for missed in each["findings"].values() if missed]
    return passes, (done.stdout + done.stderr).strip().splitlines()[-3:], missed[:1]


def judged(kit, folder, number, cases, adapters):
    """The verdict of our cases on the class that an adapter returns."""
    exercise = kit.find(number)
    exercise = {**exercise, "cases": [{**each, "after": None} for each in exercise["cases"] if each["id"] in cases]}
    exercise["points"] = sum(each["points"] for each in exercise["cases"])
    return kits.check(kit, exercise, folder, None, language="python", adapters=adapters, deadline=kits.PATIENT)


def verdict(kit, folder):
    """One row for each problem of the repository's edition."""
    folder = Path(folder).resolve()
    functions = written(folder)
    with tempfile.TemporaryDirectory(prefix="ringside-cs336-") as scratch:
        return {"schema": "ringside/cs336/v1", "folder": folder.name, "problems": rows_of(kit, folder, functions, packages(folder, scratch))}


def rows_of(kit, folder, functions, paths):
    rows = []
    for problem, make, finish, start, test, expected, number, cases in PROBLEMS:
        if make not in functions or not (folder / test).exists():
            continue
        row = {"problem": problem, "test": test, "passes theirs": None, "passes ours": None, "says": []}
        rows.append(row)
        if not functions[make]:
            row["says"] = [f"{make} is not written"]
            continue
        row["passes theirs"], row["output"], missed = tested(kit, folder, paths, test, expected)
        row["passes ours"], row["says"] = not missed, missed
        if number:
            seen = judged(kit, folder, number, cases, {"paths": paths, "make": make, "finish": finish, "start": start})
            wrong = [each for each in seen["cases"] if each["status"] != "right"]
            row["passes ours"] = not wrong
            row["says"] = [f"{number}, {each['id']}: {each.get('named') or each['status']}: {each['says'][0]}" for each in wrong]
        elif not row["passes theirs"]:
            row["passes ours"] = None  # what a failing test keeps and sends says nothing
    return rows


def told(found):
    """The lines for a terminal."""
    word = {True: "passes", False: "fails", None: "-"}
    lines = [f"{'problem':<36}{'their tests':<13}{'our cases'}"]
    for row in found["problems"]:
        lines.append(f"{row['problem']:<36}{word[row['passes theirs']]:<13}{word[row['passes ours']]}")
        lines += [f"    {each}" for each in row["says"]]
        if row["passes theirs"] is False:
            lines += [f"    their tests: {each}" for each in row["output"][-1:]]
    apart = [row["problem"] for row in found["problems"] if None not in (row["passes theirs"], row["passes ours"]) and row["passes theirs"] != row["passes ours"]]
    return "\n".join([*lines, f"they differ in {', '.join(apart)}" if apart else "both agree"])


def run(kit, args):
    """Returns 1 if a problem that is written fails in either."""
    if not torch_form.installed_torch():
        raise ValueError(torch_form.NO_TORCH)
    found = verdict(kit, args.folder)
    print(told(found), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 1 if any(False in (row["passes theirs"], row["passes ours"]) for row in found["problems"]) else 0
