"""The student's tool, ./exercise in an exported course:

    ./exercise                 checks the exercise you are at, and again each time you save a file
    ./exercise check [15]      checks one exercise, or all; exit status 0 if all are right
    ./exercise check 01 --program ./ring.py
                               checks answers of a program in any language (programs.md); as 01-.../answer.py you hand it in
    ./exercise check 15 --lang python
                               checks your answer in Python, with torch: 13, 14, 15, 17, 19, 20, 21, 24, 30, 31, 42, 43, 45, 46
    ./exercise language python from now on your answers to these are in Python; `language c++` goes back
    ./exercise list            all exercises, their points and where you are
    ./exercise hint 15         the next of three hints
    ./exercise debug 15 [CASE] gdb in your function: all ranks are threads of one process
    ./exercise train 15 [OPTIONS]
                               trains a transformer with your code, in four processes (13, 14, 15, 17, 19, 20, 21; 24 and 26 on a
                               mesh); OPTIONS are those of `ringside train`, such as --steps 500 --report report.html
    ./exercise train 21 24 26 --mesh dp=2,tp=2,pp=2
                               with your code of all three
    ./exercise mesh [AXES...] [OPTIONS]
                               your 21 (or 19), 24 and 26 together on meshes of up to eight processes, or on those named, such as
                               tp=2: whether three steps have the parameters and gradients of one process; OPTIONS are those of
                               `ringside train`, such as --model lab
    ./exercise gpu 33          runs your kernels on this machine's GPU, with nvcc (33 and later): compares their numbers with the
                               CPU's, and times them beside what the GPU can do; no points depend on it
    ./exercise ringside ...    the program of this course: ./exercise ringside help
    ./exercise report          the report on a measured training step (measure/): what it lacks; first, an empty one
    ./exercise reset 15        the starter again; your files are kept in 15-.../before-reset
    ./exercise progress        writes progress.html
    ./exercise submit          writes submission.tar.gz
"""
import html
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import cut
import formats
import kit as kits
import meshes
import report as reports
import torch_form

class Course:
    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.hidden = self.folder / ".ringside"
        self.kit = kits.kit_in(self.folder)
        self.lang = "zh" if os.environ.get("LANG", "").startswith("zh") else "en"

    # What the tool remembers: the last verdicts, and how many hints were read.
    def memory(self):
        try:
            return json.loads((self.hidden / "memory.json").read_text())
        except (OSError, ValueError):
            return {"verdicts": {}, "hints": {}}

    def in_python(self, exercise):
        """Whether the student has chosen Python, and the exercise has that form."""
        return torch_form.offered(exercise) and self.memory().get("language") == "python"

    def language(self, name=None):
        """Chooses the language, or says which one is chosen."""
        if name not in (None, "python", "c++"):
            sys.exit(f"there is no language {name}; there are python and c++")
        memory = self.memory()
        if name:
            memory["language"] = name
            self.remember(memory)
        able = [each for each in self.kit.exercises if torch_form.offered(each)]
        for each in able if name == "python" else ():
            self.write_python(each)
        print(f"{memory.get('language', 'c++')}: " + ("answers to " + ", ".join(each["id"] for each in able) + " are in Python, all others in C++"
                                                       if self.memory().get("language") == "python" else "all answers are in C++"))

    def write_python(self, exercise):
        """The starter in Python, unless the file is there."""
        path = self.where(exercise) / torch_form.file_of(exercise)
        if not path.exists():
            shutil.copy(self.hidden / "starters" / exercise["id"] / path.name, path)
            print(f"wrote {path.relative_to(self.folder)}")

    def remember(self, memory):
        (self.hidden / "memory.json").write_text(json.dumps(memory))

    def where(self, exercise):
        return self.folder / exercise["id"]

    def sources(self, exercise):
        if self.in_python(exercise):
            return [self.where(exercise) / torch_form.file_of(exercise)]
        return [self.where(exercise) / Path(file).name for file in cut.files_of(exercise)]

    def answers(self, exercise):
        """The files of its answers, in every form that is there: C++, Python, a program in another language."""
        names = [*(Path(file).name for file in cut.files_of(exercise)), *([torch_form.file_of(exercise)] if torch_form.offered(exercise) else [])]
        return [*(path for name in names if (path := self.where(exercise) / name).exists()), *kits.programs_in(exercise, self.where(exercise))]

    def language_of(self, exercise, path):
        """The language of one of these files, where the exercise has a form in Python."""
        return None if not torch_form.offered(exercise) else "python" if path.name == torch_form.file_of(exercise) else None if path.stem == "answer" else "c++"

    def check(self, exercise, command=None, language=None):
        if language == "python" or (command is None and language is None and self.in_python(exercise)):
            if not torch_form.offered(exercise):
                sys.exit(f"{exercise['id']} has no form in Python; these have: " + ", ".join(each["id"] for each in self.kit.exercises if torch_form.offered(each)))
            self.write_python(exercise)
            language = "python"
        doing = {}

        def waiting():
            running = " and ".join(f"case {case} with {size} rank{'s' * (size > 1)}" for case, size in list(doing.values()))
            return f"{exercise['id']}: still waiting for {running or 'the compiler'}"

        with kits.saying(waiting):
            verdict = kits.check(self.kit, exercise, self.where(exercise), self.hidden / "build" / exercise["id"],
                                 seed=kits.seed_of(kits.PUBLIC_KEY, "home", exercise["id"]), command=command, doing=doing, **({"language": language} if language else {}))
        memory = self.memory()
        memory["verdicts"][exercise["id"]] = verdict
        self.remember(memory)
        shown = torch_form.view(exercise) if verdict.get("language") == "python" else exercise
        print(formats.terminal(shown, verdict, self.lang), flush=True)
        return verdict["status"] == "right"

    def check_program(self, exercise, command):
        """`command` is a program and its arguments, of which some may be files here."""
        if not exercise.get("any_language"):
            sys.exit(f"{exercise['id']} is written in C++; programs may answer "
                     + ", ".join(each["id"] for each in self.kit.exercises if each.get("any_language")))
        program, *rest = shlex.split(command)
        found = shutil.which(program) or sys.exit(f"{program} is no program: write its path, such as ./ring.py, and make it executable (chmod +x)")
        return self.check(exercise, shlex.join(os.path.abspath(each) if os.path.exists(each) else each for each in [found, *rest]))

    def current(self):
        """The first exercise that is not right yet."""
        verdicts = self.memory()["verdicts"]
        return next((each for each in self.kit.exercises if verdicts.get(each["id"], {}).get("status") != "right"), None)

    def watch(self):
        # Looking at a few dozen times of change takes 1 ms, and works on every file system.
        seen = {}
        if any(map(self.in_python, self.kit.exercises)):
            torch_form.warm(self.kit)
        while True:
            now = {path: path.stat().st_mtime_ns for each in self.kit.exercises for path in self.answers(each)}
            changed = next(((each, path) for each in self.kit.exercises for path in self.answers(each) if seen.get(path) != now.get(path)), None)
            exercise, path = changed if seen and changed else (None if seen else self.current(), None)
            seen = now
            if exercise is None and not changed and not self.current():
                print("All exercises are right.")
                return True
            if exercise:
                print(f"\n---- {time.strftime('%H:%M:%S')}")
                language = self.language_of(exercise, path) if path else None
                if self.check(exercise, language=language) and (following := self.current()):
                    print(f"Next: {following['id']}  {cut.said(following['title'], self.lang)}: edit {self.sources(following)[0]}")
                print("Waiting for you to save a file; Ctrl-C ends.", flush=True)
            time.sleep(0.2)

    def list(self):
        verdicts, total = self.memory()["verdicts"], 0
        for each in self.kit.exercises:
            verdict = verdicts.get(each["id"], {"status": "not checked", "score": 0})
            total += verdict["score"]
            print(f"{each['id']:<26} {verdict['score']:>2} of {each['points']:>2}  {verdict['status']:<17}"
                  f"{cut.said(each['title'], self.lang)} ({each['hours']} h)")
        print(f"{total} of {sum(each['points'] for each in self.kit.exercises)} points")

    def hint(self, exercise):
        memory = self.memory()
        hints = cut.said(exercise["hints"], self.lang)
        if self.in_python(exercise):  # the last one names functions
            hints = [*hints[:-1], cut.said(exercise["python"]["hint"], self.lang)]
        read = min(memory["hints"].get(exercise["id"], 0) + 1, len(hints))
        memory["hints"][exercise["id"]] = read
        self.remember(memory)
        for number, hint in enumerate(hints[:read], 1):
            print(f"Hint {number} of {len(hints)}: {hint}")

    def first_line(self, exercise, function):
        """FILE:LINE of the first statement of a function: at its opening bracket gdb does not know the arguments yet, and in a
        line with a lambda it would stop in that."""
        file = Path(function["file"]).name
        text = (self.where(exercise) / file).read_text(errors="replace")
        code, at = cut.masked(text), cut.find_function(text, function["function"], file)[1] + 1
        while re.match(r"\s*[^\n;]*\[[^\]\n]*\]\s*[({]", code[at:]):
            while code[at] != ";":
                at = cut.closing(code, at) + 1 if code[at] in "({[" else at + 1
            at += 1
        at += re.match(r"\s*", code[at:]).end()
        return f"{file}:{1 + text[:at].count(chr(10))}"

    def compiled(self, compile, exercise):
        try:
            with kits.saying(lambda: f"{exercise['id']}: still compiling"):
                return compile(self.kit, exercise, self.where(exercise), self.hidden / "build" / exercise["id"])
        except kits.Broken as broken:
            sys.exit("\n".join([f"{broken.status}: {broken.says[0]}", *broken.says[1:]]))

    def debug(self, exercise, name=None):
        if self.in_python(exercise):
            sys.exit("gdb shows C++: in Python, what you print() stands below the case, with the ranks one after the other")
        cases = self.memory()["verdicts"].get(exercise["id"], {}).get("cases", [])
        name = name or next((each["id"] for each in cases if each["status"] != "right"), exercise["cases"][0]["id"])
        case = next((each for each in exercise["cases"] if each["id"] == name), None)
        if not case:
            sys.exit(f"{exercise['id']} has no case {name}; its cases are " + ", ".join(each["id"] for each in exercise["cases"]))
        if not shutil.which("gdb"):
            sys.exit("gdb is not installed; on Debian or Ubuntu: apt-get install gdb")
        program, _ = self.compiled(kits.compile_student, exercise)
        stops = [argument for each in exercise["cut"] for argument in ("-ex", f"break {self.first_line(exercise, each)}")]
        with tempfile.TemporaryDirectory() as folder:
            arguments, environment = kits.in_one_process(exercise, case, folder)
            print(f"gdb in case {name} with {environment['WORLD_SIZE']} ranks, each a thread (info threads, thread 2, continue)", flush=True)
            os.spawnvpe(os.P_WAIT, "gdb", ["gdb", "-q", "-ex", f"source {self.hidden}/gdb/load.py", "-ex", "set breakpoint pending on", *stops,
                                           "-ex", "run", "--args", program, *arguments], {**os.environ, **environment})

    def train(self, *words):
        """`words`: the numbers of exercises, then options."""
        numbers = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        options, with_code = words[len(numbers):], self.libraries(list(map(self.kit.find, numbers)))
        mesh = next((after for word, after in zip(options, options[1:]) if word == "--mesh"), "dp=4")
        ranks = [] if {"-n", "--ranks"} & set(options) else ["--ranks", str(meshes.ranks_of(mesh))]
        command = ["train", *ranks, *with_code, *options]
        print(f"ringside {shlex.join(command)}", flush=True)
        os.execv(self.kit.ringside, [self.kit.ringside, *command])

    def libraries(self, exercises):
        """The options of `ringside train` that take the code of these exercises."""
        able = [each["id"] for each in self.kit.exercises if kits.trains(self.kit, each)]
        options = {}
        for exercise in exercises:
            if exercise["id"] not in able:
                sys.exit(f"{exercise['id']} is no method of training, so no transformer can be trained with it; " +
                         (f"these are: {', '.join(able)}" if able else "this course has none"))
            if (option := kits.train_option(exercise)) in options:
                sys.exit(f"{exercise['id']} takes the place of {options[option]['id']}: name one of them")
            options[option] = exercise
        return [word for option, exercise in options.items() for word in (option, os.path.relpath(self.compiled(kits.compile_strategy, exercise)))]

    def mesh(self, *words):
        """`words`: meshes, then options. One line for each mesh. Returns whether all of them are right."""
        named = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        exercises = [each for each in self.kit.exercises if each["id"][:2] in ("24", "26")]
        sharded = [each for each in self.kit.exercises if each["id"][:2] in ("19", "21")]
        written = [each for each in sharded if "not_written_yet(" not in "".join(path.read_text(errors="replace") for path in self.sources(each))]
        if len(exercises) < 2 or not sharded:
            sys.exit("`./exercise mesh` needs the exercises 24, 26, and 19 or 21, of which this course lacks some")
        exercises = [(written or sharded)[-1], *exercises]
        print(f"{' '.join(each['id'] for each in exercises)}: {meshes.STEPS} steps of SGD in fp64, beside one process", flush=True)
        option = dict(zip(("dp", "tp", "pp"), map(lambda each: self.libraries([each]), exercises)))
        try:
            with kits.saying(lambda: "still training with one process"):
                trainings, right = meshes.Trainings(self.kit.ringside, ["--batch", "8", "--micro-batches", "4", "--sequence", "32", *words[len(named):]]), True
        except RuntimeError as error:
            sys.exit(f"one process: {error}")
        for mesh in named or ("dp=2", "tp=2", "pp=2", "dp=2,tp=2", "pp=2,dp=2", "pp=2,tp=2", "pp=2,dp=2,tp=2"):
            own = [word for axis in option if axis in mesh for word in option[axis]]
            try:
                with kits.saying(lambda: f"still training on {mesh}"):
                    count, far, name = trainings.compared(mesh, *own)
                says = f"{count} tensors, differences up to {far:.1e}" if far < meshes.MOST else f"{name} differs by {far:.2g}"
            except RuntimeError as error:
                far, says = float("inf"), str(error)
            right = right and far < meshes.MOST
            print(f"  {'✓' if far < meshes.MOST else '✗'} {mesh:<15} {says}", flush=True)
        return right

    def gpu(self, exercise):
        if not kits.runs_on_gpu(exercise):
            sys.exit(f"{exercise['id']} has no kernels for a GPU; these have: "
                     + ", ".join(each["id"] for each in self.kit.exercises if kits.runs_on_gpu(each)))
        program = self.compiled(lambda kit, exercise, folder, build: kits.compile_for_gpu(kit, exercise, folder, Path(build) / "gpu", "-arch=native"), exercise)
        if not program:
            sys.exit("nvcc is not there: install the CUDA Toolkit, and add nvcc to PATH. ./exercise check needs no GPU.")
        os.execv(program, [str(program)])

    def ringside(self, *arguments):
        os.execv(self.kit.ringside, ["ringside", *arguments])

    def reset(self, exercise):
        before = self.where(exercise) / "before-reset"
        before.mkdir(exist_ok=True)
        for path in self.sources(exercise):
            if path.exists():
                shutil.copy(path, before / path.name)
            shutil.copy(self.hidden / "starters" / exercise["id"] / path.name, path)
        print(f"{exercise['id']} is the starter again; your files are in {before}")

    def progress(self):
        verdicts = self.memory()["verdicts"]
        done = sum(verdicts.get(each["id"], {}).get("score", 0) for each in self.kit.exercises)
        rows = "".join(f"<tr><td>{each['id']}<td>{html.escape(cut.said(each['title'], self.lang))}"
                       f"<td>{verdicts.get(each['id'], {}).get('status', 'not checked')}"
                       f"<td>{verdicts.get(each['id'], {}).get('score', 0)} / {each['points']}" for each in self.kit.exercises)
        page = self.folder / "progress.html"
        page.write_text('<!doctype html><meta charset="utf-8"><title>Ringside: progress</title>'
                        "<style>body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}td{padding:.3em 1em .3em 0}"
                        "td:not(:nth-child(2)){white-space:nowrap}td:last-child{text-align:right}</style>"
                        f"<h1>Progress: {done} of {sum(each['points'] for each in self.kit.exercises)} points</h1><table>{rows}</table>\n")
        print(f"wrote {page}")

    def submit(self):
        verdicts = self.memory()["verdicts"]
        with tarfile.open(self.folder / "submission.tar.gz", "w:gz", dereference=True) as archive:
            for path in [*(path for each in self.kit.exercises for path in self.answers(each)), *self.folder.glob("measure/[rs]*")]:
                archive.add(path, str(path.relative_to(self.folder)))
            text = json.dumps(kits.verdict(self.kit, "home", [verdicts[each["id"]] for each in self.kit.exercises if each["id"] in verdicts]))
            entry = tarfile.TarInfo("verdict.json")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        print(f"wrote {self.folder}/submission.tar.gz: hand this file in")


def main(folder, arguments):
    course = Course(folder)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of `./exercise list | head`
    command, *rest = arguments or ["watch"]
    with_exercise = {"hint": course.hint, "debug": course.debug, "gpu": course.gpu, "reset": course.reset}
    try:
        if command == "check" and len(rest) == 3 and rest[1] == "--program":
            return 0 if course.check_program(course.kit.find(rest[0]), rest[2]) else 1
        if command == "check" and len(rest) == 3 and rest[1] == "--lang":
            if rest[2] not in ("python", "c++"):
                sys.exit(f"there is no language {rest[2]}; there are python and c++")
            return 0 if course.check(course.kit.find(rest[0]), language=rest[2]) else 1
        if command == "language" and len(rest) < 2:
            course.language(*rest)
            return 0
        if command == "ringside":
            course.ringside(*rest)
        if command == "train" and rest and not rest[0].startswith("-"):
            course.train(*rest)
        if command == "report" and not rest:
            return 0 if reports.report(course.folder, course.lang, "./exercise ringside") else 1
        if command == "mesh" and all("=" in each for each in itertools.takewhile(lambda word: not word.startswith("-"), rest)):
            return 0 if course.mesh(*rest) else 1
        if command == "check":
            chosen = [course.kit.find(name) for name in rest] or course.kit.exercises
            return 0 if all([course.check(exercise) for exercise in chosen]) else 1
        most = {"hint": 1, "debug": 2, "gpu": 1, "reset": 1}.get(command, len(rest))
        if command in with_exercise and 0 < len(rest) <= most:
            with_exercise[command](course.kit.find(rest[0]), *rest[1:])
        elif command in ("watch", "list", "progress", "submit") and not rest:
            getattr(course, command)()
        else:
            if command in ("-h", "--help", "help"):
                print(__doc__.strip())
                return 0
            fault = f"{command} takes the number of an exercise" if command in (*with_exercise, "train") else f"there is no command {' '.join(arguments)}"
            print(f"{fault}\n\n{__doc__.strip()}", file=sys.stderr)
            return 2
    except KeyboardInterrupt:
        print()
    return 0
