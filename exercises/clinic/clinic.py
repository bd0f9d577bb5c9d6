"""The bug clinic, exercises/ringside-clinic:

    ringside-clinic --list           the bugs, and what one notices
    ringside-clinic NAME             runs the whole program with this bug: what you notice, what Ringside says, the lesson
    ringside-clinic --seed 7         a bug that is not named: runs it, and keeps its output, trace, notes and flight records
    ringside-clinic --seed 7 --look                what Ringside says about it, compared with the reference
    ringside-clinic --seed 7 --answer left-ring    checks your diagnosis

A bug is an edit of the reference: a wrong answer of an exercise, or one in clinic/bugs.json. The edited files are compiled
and linked before the libraries of the build (--build, build/release). The reference runs beside it, with the same scene.
"""
import argparse
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import cut
import findings
import kit as kits

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "exercises/clinic"


def load():
    """All bugs, in order, with the edits of their exercises."""
    book = json.loads((HERE / "bugs.json").read_text())
    for bug in book["bugs"]:
        if "exercise" in bug:
            exercise = cut.load(ROOT / "exercises" / bug["exercise"])
            wrong = next(each for each in exercise["wrong"] if each["id"] == bug["wrong"])
            bug["edits"] = [{"file": cut.files_of(exercise)[0], "drop": exercise.get("drop", []), **edit} for edit in cut.edits_of(wrong)]
        bug["scene"] = bug.get("scene", [])
        if "tsan" not in bug:
            bug["scene"] = book["observer"] + bug["scene"]
        for key in ("run", "also"):
            fill = lambda text: text.replace("{train}", book["train"])
            bug[key] = fill(bug[key]) if key == "run" else [fill(each) for each in bug.get(key, [])]
    return book["bugs"]


# ---- Programs

FOLDERS = {"ringside": "cli", "ringside-bench": "bench"}


class Build:
    """Makes programs that differ from the build's in a few files."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        for name in FOLDERS:
            if not (self.folder / "bin" / name).exists():
                sys.exit(f"{folder}/bin/{name} is missing: build the target {name} there, or name a build with --build")
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        self.compile = {os.path.relpath(each["file"], ROOT): shlex.split(each["command"]) for each in commands}
        self.libraries = {file: set() for file in self.compile}  # that have an object of it: a test may have one, too
        for each in commands:
            target = re.search(r"/CMakeFiles/([^/]+)\.dir/", each["command"])[1].removesuffix("_cold")  # whose objects are in the library, too
            self.libraries[os.path.relpath(each["file"], ROOT)].add(f"lib{target}.a")

    def link_command(self, name):
        recipe = self.folder / FOLDERS[name] / f"CMakeFiles/{name}.dir/link.txt"  # of Makefiles
        if recipe.exists():
            return [os.path.join("..", each) if each.endswith((".a", ".o")) else each for each in shlex.split(recipe.read_text())]
        told = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", f"bin/{name}"], capture_output=True, text=True, check=True)
        return [each for each in shlex.split(told.stdout.strip().split("\n")[-1]) if each not in (":", "&&")]

    def place_of(self, *contents):
        """A folder of its own for these texts, and for this build of the libraries."""
        stamp = str(os.stat(self.folder / "bin/ringside").st_mtime_ns) + (HERE / "observe.hpp").read_text()
        return self.folder / "clinic" / hashlib.sha256(json.dumps([*contents, stamp]).encode()).hexdigest()[:16]

    def program(self, edits, name="ringside"):
        """The path of this program with these edits; compiled only if it is not there yet."""
        if not edits:
            return self.folder / "bin" / name
        texts = edited(edits)
        made = self.place_of("program", texts) / name
        if made.exists():
            return made
        link = self.link_command(name)
        objects = [str(self.object_of(file, texts)) for file in self.sources(texts, link)]
        cut_at = next(i for i, each in enumerate(link) if each.endswith(".a"))
        link[cut_at:cut_at] = objects
        made.parent.mkdir(parents=True, exist_ok=True)
        link[link.index("-o") + 1] = str(made) + ".part"
        self.run(link)
        os.rename(str(made) + ".part", made)
        return made

    def object_of(self, file, texts):
        """The object of one source, with the edited headers."""
        seen = {each: text for each, text in texts.items() if each == file or each.endswith(".hpp")}
        work = self.place_of(file, seen)
        if not (work / "object.o").exists():
            write(seen, work / "source")
            self.run(self.compile_command(file, work, str(work / "part.o")))
            (work / "part.o").rename(work / "object.o")
        return work / "object.o"

    def sources(self, texts, link):
        """The edited sources, and those of the linked libraries that include an edited header."""
        headers = [f'#include "{file}"' for file in texts if file.endswith(".hpp")]
        users = [file for file in self.compile if headers and not file.startswith(("tests/", "exercises/"))
                 and self.libraries[file] & set(map(os.path.basename, link)) and (ROOT / file).exists() and any(each in (ROOT / file).read_text() for each in headers)]
        files = dict.fromkeys([file for file in texts if file.endswith(".cpp")] + users)
        if not files:
            raise cut.CutError(f"edit of {', '.join(texts)}: expected a source of the program that includes it, found none")
        return files

    def compile_command(self, file, work, output):
        own = work / "source" / file
        given = [each for each in self.compile[file][:-4] if not each.startswith(("-W", "-O"))]  # without -o OBJECT -c SOURCE
        return [given[0], f"-I{work / 'source'}", *given[1:], "-O1", "-g", "-w", "-o", output, "-c", str(own if own.exists() else ROOT / file)]

    def run(self, command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")

    def under_thread_sanitizer(self, source, edits):
        """A program of one source, with edited headers, in which ThreadSanitizer watches."""
        work = self.place_of(source, edited(edits))
        write(edited(edits), work / "source")
        work.mkdir(parents=True, exist_ok=True)
        compiler = next(iter(self.compile.values()))[0]
        self.run([compiler, "-std=c++20", "-O1", "-g", "-fsanitize=thread", f"-I{work / 'source'}", f"-I{ROOT}", str(ROOT / source), "-o", str(work / "program")])
        return work / "program"


def write(texts, folder):
    for file, text in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)


def edited(edits):
    """{file: text} after all edits. Each must find its text once, outside of the functions that its exercise leaves out."""
    texts = {}
    for edit in edits:
        file, find = edit["file"], edit["find"]
        text = texts.get(file) or (ROOT / file).read_text()
        left_out = [cut.find_function(text, each["function"], file) for each in edit.get("drop", []) if each["file"] == file]
        places = [match.start() for match in re.finditer(re.escape(find), text)
                  if not any(begin <= match.start() < end for begin, _, end in left_out)]
        if len(places) != 1:
            raise cut.CutError(f"edit of {file}: expected {find!r} once, found it {len(places)} times")
        texts[file] = text[:places[0]] + edit["replace"] + text[places[0] + len(find):]
    return texts


# ---- Running

def patient(build, bug, sick=True, called=None):
    """Runs the program with the bug, or without it; returns the folder with all that came of it, which is named so that it does
    not tell the bug."""
    edits = bug["scene"] + (bug["edits"] if sick else [])
    folder = build.folder / "clinic/runs" / f"{called or bug['id']}-{'sick' if sick else 'well'}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "flights").mkdir(parents=True)
    environment = {**os.environ, "COLUMNS": "100", "RINGSIDE_CLINIC": str(folder), "RINGSIDE_FLIGHT_DIR": str(folder / "flights"),
                   "RINGSIDE_TIMEOUT": "40", "RINGSIDE_WARN_AFTER": "20", **bug.get("env", {})}
    if "tsan" in bug:
        program = build.under_thread_sanitizer(bug["tsan"], edits)
        plain = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
        output(folder / "output", [*plain, program], environment)
        return folder
    program = build.program(edits)
    if any(command.startswith("bench") for command in [bug["run"], *bug["also"]]):
        build.program(edits, "ringside-bench")  # beside ringside, which runs it
    for number, command in enumerate([bug["run"], *bug["also"]]):
        more = ["--trace", str(folder / "trace.json"), "--trace-steps", "1-4"] if number == 0 and command.startswith("train") else []
        of_this = environment if number == 0 else {key: value for key, value in environment.items() if key != "RINGSIDE_CLINIC"}
        output(folder / ("output" if number == 0 else f"output{number}"), [program, *command.split(), *more], of_this)
    if any((folder / "flights").iterdir()):
        output(folder / "postmortem", [program, "postmortem", folder / "flights"], environment)
    return folder


def output(file, command, environment):
    try:
        done = subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180)
        file.write_bytes(done.stdout)
    except subprocess.TimeoutExpired as late:
        file.write_bytes((late.stdout or b"") + b"\n(stopped after 180 s)\n")


def examined(build, bug, called=None):
    """(folder of the run, what Ringside says about it)"""
    well, sick = patient(build, bug, False, called), patient(build, bug, True, called)
    return sick, findings.of(sick, well, [bug["run"], *bug["also"]])


# ---- The program

def tell_run(bug, folder, named):
    told = (folder / "output").read_text(errors="replace").rstrip().split("\n")
    command = f"ringside {bug['run']}" if bug["run"] else "a program with two threads and one channel, under ThreadSanitizer"
    environment = "".join(f"{key}={value} " for key, value in bug.get("env", {}).items())
    print(f"{bug['id'] if named else 'The patient'} runs: {environment}{command}\n")
    print("\n".join("    " + line for line in told[-14:]))
    print(f"\nkept in {folder}: output, notes of each step and rank (0.jsonl), trace.json for ui.perfetto.dev, flights")


def tell_findings(says):
    print("\nWhat Ringside says, beside the reference:")
    print("\n".join("    " + each for each in says) or "    nothing")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, help="which bug; default: at random")
    parser.add_argument("--look", action="store_true")
    parser.add_argument("--answer", metavar="NAME")
    parser.add_argument("--build", default=ROOT / "build/release")
    args = parser.parse_args()
    bugs = load()
    names = [bug["id"] for bug in bugs]
    for name in filter(None, (args.name, args.answer)):
        if name not in names:
            sys.exit(f"there is no bug {name}; there are {', '.join(names)}")
    if args.list:
        print("\n".join(f"{bug['id']:<24}{bug['notice']}" for bug in bugs))
        return 0
    if (args.answer or args.look) and args.seed is None and not args.name:
        sys.exit("--look and --answer need the --seed of the patient")
    seed = args.seed if args.seed is not None else random.randrange(1000)
    bug = bugs[names.index(args.name)] if args.name else random.Random(seed).choice(bugs)
    if args.answer:
        right = args.answer == bug["id"]
        print(f"Yes, it is {bug['id']}. {bug['lesson']}" if right else f"No, it is not {args.answer}. Look at: --seed {seed} --look")
        return 0 if right else 1
    with kits.saying(lambda: "still compiling and running the patient, and the reference beside it"):
        folder, says = examined(Build(args.build), bug, None if args.name else f"patient-{seed}")
    tell_run(bug, folder, bool(args.name))
    if args.name or args.look:
        tell_findings(says)
    if args.name:
        print(f"\nLesson: {bug['lesson']}")
    else:
        print(f"\nWhich bug is it? --list names them. Then: ringside-clinic --seed {seed} --answer NAME")
    return 0
