"""Exercises of an instructor's own, in a folder of their own: `ringside-exercises new`, `check`, and `--from FOLDER`.

Such an exercise has the files of any other (building.md), and its reference in reference/ beside exercise.json. No build of
Ringside knows it: judge, reference and a program of both are compiled here, with the recipe with which students compile.
"""
import itertools
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cut
import handouts
import kit as kits
import torch_form

HERE = Path(__file__).resolve().parents[1]
MARK = "FILL IN"
BUILT = ".built"  # in the instructor's folder
FEWEST = 3  # wrong answers, and variants


# ---- new

def new(args):
    number, _, slug = args.name.partition("-")
    if not re.fullmatch(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*", args.name):
        raise ValueError(f"{args.name}: expected a number of two digits and a name in small letters, such as 50-my-exercise")
    for folder in (HERE, Path(args.own)):
        if taken := sorted(folder.glob(f"{number}-*/exercise.json")):
            raise ValueError(f"{args.name}: the number {number} is that of {taken[0].parent}; numbers from 50 on are free in Ringside")
    target = Path(args.own, args.name)
    if target.exists():
        raise ValueError(f"{target} is there already: choose another name, or remove it")
    in_python, langs = "python" in args.lang, [each for each in args.lang if each != "python"] or ["en"]
    for path in sorted(path for path in (HERE / "template").rglob("*") if path.is_file() and (in_python or path.suffix != ".py")):
        text = path.read_text() if in_python else re.sub(r'  "python": .*\n', "", path.read_text())
        text = text.replace("NN-new-exercise", args.name).replace("new_exercise", slug.replace("-", "_"))
        text = re.sub(r'\{"LANG": (.*)\}', lambda match: "{" + ", ".join(f'"{lang}": {match[1]}' for lang in langs) + "}", text)
        file = target / str(path.relative_to(HERE / "template")).replace("new_exercise", slug.replace("-", "_"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for lang in langs:
        (target / f"handout.{lang}.md").write_text(empty_handout(cut.load(target), lang))
    print(f"wrote {target}: {sum(path.is_file() for path in target.rglob('*'))} files, which say {MARK} where something is missing.\n"
          f"What is still missing:  exercises/ringside-exercises check {number} --from {args.own}")


def empty_handout(exercise, lang):
    """Head, sections and table of cases; what a section holds is in the table of building.md."""
    holds = dict(re.findall(r"^\| ([A-Z][\w ]+) \| \S[^|]* \| ([^|]+) \|$", (HERE / "building.md").read_text(), flags=re.M))
    lines = ["\n\n".join(handouts.head(exercise, lang))]
    for section in handouts.SECTIONS:
        lines.append(f"## {section if lang == 'en' else handouts.CHINESE[section]}\n\n{MARK}: {holds[section]}")
        if section == "What right means":
            lines.append("| case | points | worlds | hidden | it is right if |\n|---|---|---|---|---|\n" + "\n".join(
                f"| `{case['id']}` | {case['points']} | {', '.join(map(str, case['worlds']))} | {', '.join(map(str, case.get('hidden', [])))} | {MARK} |"
                for case in exercise["cases"]))
    return "\n\n".join(lines) + "\n"


# ---- --from FOLDER

def add_all(kit, folder):
    """Adds the exercises in a folder to the kit. Those whose files have not changed are not compiled again."""
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}")
    for file in sorted(Path(folder).glob("[0-9]*/exercise.json")):
        add(kit, cut.load(file.parent))


def add(kit, exercise):
    for other in kit.exercises:
        if handouts.number_of(other) == handouts.number_of(exercise):
            raise ValueError(f"{exercise['folder']}: the number is that of {other['id']}; choose another one")
    built = exercise["folder"].parent / BUILT / exercise["id"]
    judge, program = built / "judge.o", built / "program"
    needed = [kit.program, *(path for path in exercise["folder"].rglob("*") if path.is_file())]
    needed += [path for file in cut.files_of(exercise) if (path := cut.source(kit.root, exercise, file)).exists()]
    if not program.exists() or program.stat().st_mtime < max(Path(path).stat().st_mtime for path in needed):
        program.unlink(missing_ok=True)
        compile_judge(kit, exercise, built)
    kit.judges[exercise["id"]], kit.programs[exercise["id"]] = str(judge), str(program)
    kit.exercises = sorted([*kit.exercises, exercise], key=lambda each: each["id"])


def compile_judge(kit, exercise, built):
    """judge.o, and the program in which the reference is the student. Throws ValueError."""
    reference = built / "reference"
    built.mkdir(parents=True, exist_ok=True)
    (built.parent / ".gitignore").write_text("*\n")
    cut.write(cut.student_files(kit.root, exercise, stub=False), reference)
    parts = {"judge.o": exercise["folder"] / "judge.cpp", "reference.o": exercise["folder"] / "bind.cpp", "held.o": kit.root / "exercises/judge/reference.cpp"}

    def compile_part(name):
        try:
            kits.run_compiler(kit, reference, "-g0", "-c", parts[name], "-o", built / name)
        except kits.Broken as broken:
            raise ValueError(f"{parts[name]}: {broken.status}: {broken.says[0]}") from None

    with kits.saying(lambda: f"still compiling the judge of {exercise['id']}"), ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_part, parts))
    done = subprocess.run([kit.compiler, *(str(built / name) for name in parts), *kit.linked, "-o", str(built / "program")],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{exercise['id']} cannot be linked: {done.stderr[-1000:]}")


# ---- check

def marks(folder, endings):
    """Where something is to be filled in: "judge.cpp:16: FILL IN: ..."."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in endings):
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if MARK in line:
                yield f"{path.relative_to(folder)}:{number}: {line[line.index(MARK):].strip()}"


def too_few(what, found):
    if len(found) < FEWEST:
        yield f"expected {FEWEST} {what} or more, found {len(found)}: {', '.join(found) or 'none'}"


def check(chosen_kit, args):
    """Each proof in turn, and what it misses. Code with something to fill in is not run. Returns 1 if anything is missing."""
    import selftest  # which exports courses with instructor.py, which imports this file
    folders = [path.parent for path in sorted(Path(args.own).glob("[0-9]*/exercise.json")) if args.exercise in (path.parent.name, path.parent.name.split("-")[0])]
    if not folders:
        raise ValueError(f"there is no exercise {args.exercise} in {args.own}; make one with: ringside-exercises new {args.exercise} --from {args.own}")
    missing = 0

    def told(title, faults):
        nonlocal missing
        with kits.saying(lambda: f"still proving that {title}"):
            faults = list(faults)
        missing += len(faults)
        print(f"  {'✗' if faults else '✓'} {title}", flush=True)
        for fault in faults:
            print(f"      {fault}", flush=True)
        return not faults

    print(folders[0].name)
    if told("exercise.json and the code are filled in", marks(folders[0], (".json", ".hpp", ".cpp", ".patch", ".py"))):
        args.own = None  # only this exercise: another one may not compile yet
        kit = chosen_kit(args)
        exercise = cut.load(folders[0])
        add(kit, exercise)
        for title, proof in (("names and edits occur once; three hints", selftest.anchors), ("the reference has full points over threads, shm and tcp", selftest.references),
                             ("the starter is \"not written\"", selftest.stubs), ("each wrong answer fails with its sentence", selftest.wrong),
                             ("each variant has full points", selftest.variants)):
            few = too_few("variants", [path.stem for path in cut.variants_of(exercise)]) if proof is selftest.variants else ()
            told(title, itertools.chain(selftest.told(proof, kit, exercise), few))
        if torch_form.offered(exercise):
            told("in Python: the reference, its starter, wrong answers and variants", selftest.told(selftest.python, kit, exercise))
        told("the handout says what exercise.json says", handouts.faults(exercise))
    told("the handout is filled in", marks(folders[0], (".md",)))
    print(f"{missing or 'nothing'} missing" + ("" if missing else f": it can be exported with --from {folders[0].parent}"))
    return 1 if missing else 0
