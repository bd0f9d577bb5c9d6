"""The instructor's tool, exercises/ringside-exercises:

    export DIR [--exercises 01,15] [--from FOLDER] [--self-study]
               [--lang en,zh] [--build FOLDER] [--add OTHER_EXPORT]
        writes a course that students unpack: starters, the tool, headers,
        libraries, judges; with --self-study also solutions and the whole
        reference, for this machine where build/release is there; with
        --from also exercises of your own; with --add also for the
        architecture of another export, such as aarch64 beside x86_64
    new 50-my-exercise --from FOLDER [--lang en,zh]
        writes the files of an exercise of your own, with FILL IN wherever
        something is missing
    check 50 --from FOLDER [--build FOLDER]
        proves an exercise of your own, and says what is still missing
    grade SUBMISSIONS --course DIR --key FILE --out RESULTS [--public-only]
          [--jobs N] [--format gradescope,classroom50,junit,actions]
        checks a folder of submissions (submissions.py has their forms),
        each in a sandbox
    leaderboard SUBMISSIONS --course DIR --key FILE --out RESULTS
                [--exercises 15,17] [--rounds 5] [--train OPTIONS]
        who has the fastest training step, of those whose answer is right
    cs336 FOLDER ... [--json FILE] [--limit SECONDS]
        repositories of CS336's assignment 2: their own tests over Ringside,
        then our cases of the same problems on the same classes
    slides FILE.html [--exercises 01,15] [--lang en] [--from FOLDER]
        slides for a lecture, from the handouts and their figures: one file
    summary RESULTS
        what the class got wrong, by the names of the wrong answers
"""
import argparse
import collections
import fcntl
import hashlib
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import cs336
import cut
import formats
import handouts
import kit as kits
import leaderboard as boards
import own
import slides as decks
import submissions
import torch_form

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ["ringside", "ringside-bench"]  # ringside runs the others for their commands, which handouts type
FOLDERS = ["base", "collectives", "autograd", "parallel", "ddp", "zero", "transformer"]


# ---- Export

def built_kit(build, for_this_machine=False):
    """The kit of a build that runs on other machines of this architecture, too; or of build/release, if the course is for this
    machine: ./demo and ./check have built most of what it takes, or all."""
    release = ROOT / "build/release"
    if not build and for_this_machine and (release / "build.ninja").exists():
        build = release
        print(f"taking {release}, so the course is for this machine; for others: --build {ROOT}/build/exercises", flush=True)
    build = Path(build or ROOT / "build/exercises")
    if not (build / "exercises/kit.json").exists():
        print(f"building the judges and the programs of the course in {build}: minutes, the first time", flush=True)
    for command in (["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DRINGSIDE_NATIVE=OFF",
                     "-DRINGSIDE_CUDA=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_Gloo=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON",
                     "-DBUILD_TESTING=OFF", *(["-GNinja"] if shutil.which("ninja") else [])],
                    ["cmake", "--build", build, "--parallel", str(os.cpu_count() or 1), "--target", "exercises", "ringside_emulated", *PROGRAMS]):
        if command[1] == "-S" and (build / "CMakeCache.txt").exists():
            continue
        run_with_progress(command)
    return kits.Kit(build / "exercises/kit.json")


def run_with_progress(command):
    """Says how far a build is, and how long the rest takes. Ends the program where the command fails."""
    if not shutil.which(command[0]):
        sys.exit(f"{command[0]} is not installed: {ROOT}/demo installs what a build takes")
    began, done, steps = time.monotonic(), 0, 0
    lines = collections.deque(maxlen=80)

    def how_far():
        if not done:
            return "building the judges"
        left = round((time.monotonic() - began) * (steps - done) / done)
        return f"building the judges: {done} of {steps}{' %' if steps == 100 else ''}, about {left // 60}:{left % 60:02} left"

    with kits.saying(how_far), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                                env={**os.environ, "NINJA_STATUS": "[%f/%t] "}) as process:
        for line in process.stdout:
            lines.append(line)
            if step := re.match(r"\[ *(\d+)(?:/(\d+)|%)\]", line):
                done, steps = int(step[1]), int(step[2] or 100)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{''.join(lines)[-5000:]}")


def chosen_kit(args):
    """With the exercises of the instructor's own folder."""
    kit = kits.Kit(args.kit) if args.kit else built_kit(args.build, for_this_machine=getattr(args, "self_study", False))
    if args.own:
        own.add_all(kit, args.own)
    return kit


def told_by_git(*words):
    """None where there is no git, or no clone: an archive of the repository has neither."""
    done = shutil.which("git") and subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done and done.returncode == 0 else None


def tracked(folder):
    if (told := told_by_git("ls-files", folder)) is not None:
        return told.split()
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def export(args):
    kit = chosen_kit(args)
    if not (kit.settings["portable"] or args.kit or args.self_study):
        sys.exit(f"{args.build or ROOT / 'build/exercises'} is built for this machine alone: configure it with GCC and -DRINGSIDE_NATIVE=OFF")
    out, hidden = Path(args.dir), Path(args.dir) / ".ringside"
    here = hidden / kit.settings["architecture"]  # what depends on it; the rest is the same for all of them
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty: name a new folder")
    chosen = [kit.find(name) for name in args.exercises.split(",")] if args.exercises else kit.exercises
    answers = {each["file"] for exercise in chosen for each in exercise["cut"]}
    keep = lambda path: path.endswith(".hpp") and (args.self_study or path not in answers)
    for path in (path for folder in FOLDERS for path in tracked(folder) if keep(path)):
        copy(ROOT / path, hidden / "include" / path)
    for path in (path for path in tracked("exercises/judge") if path.endswith(".hpp")):
        copy(ROOT / path, hidden / "include" / path)
    fmt, own_fmt = Path(kit.settings["fmt"]), hidden / "include/fmt"
    own_fmt.mkdir(parents=True)
    for path in fmt.glob("*.h"):  # of the version that the libraries were compiled with; a newer compiler would warn about it
        (own_fmt / path.name).write_text("#pragma GCC system_header\n" + path.read_text())
    (own_fmt / "LICENSE").write_text((fmt / "format.h").read_text().split("*/")[0].lstrip("/*\n").rstrip() + "\n")
    for exercise in chosen:
        export_exercise(kit, exercise, out, args)
        copy(kit.judges[exercise["id"]], here / "judges" / f"{exercise['id']}.o")
    for path in kit.libraries:
        copy(path, here / "lib" / Path(path).name)
    copy(kit.program, here / "ringside-judge", 0o755)
    for name in PROGRAMS:  # ./exercise ringside, which finds in ../lib what --device emulated needs, and in ../../python its other commands
        copy(Path(kit.ringside).with_name(name), here / "bin" / name, 0o755)
    for path in (path for path in tracked("python") if path.endswith((".py", ".json", ".css", ".js"))):  # the commands in Python
        copy(ROOT / path, hidden / path)
    copy(Path(kit.ringside).parent / "../lib/libringside_emulated.so", here / "lib/libringside_emulated.so")
    if any(torch_form.offered(each) for each in chosen):
        for path in tracked("exercises/judge/torch"):
            copy(ROOT / path, hidden / "include" / path)
        copy(kit.python_library, here / "lib/libringside.so")
    if any(kits.trains(kit, each) for each in chosen):
        for name in ("strategies/group_strategy", "strategies/parallel_strategies", "strategies/parallel_strategy", "mesh/mesh_model_ranks"):
            name = f"training/{name}.hpp"
            copy(ROOT / name, hidden / "include" / name)
    if any(kits.runs_on_gpu(each) for each in chosen):  # what nvcc needs besides the headers
        for path in (path for folder in ("autograd/kernels/block", "autograd/tensor") for path in tracked(folder) if path.endswith(".cuh")):
            copy(ROOT / path, hidden / "include" / path)
    for name in ("cut.py", "kit.py", "formats.py", "meshes.py", "report.py", "student.py", "torch_form.py"):
        copy(ROOT / "exercises/tool" / name, hidden / "tool" / name)
    for path in (path for path in tracked("tools/gdb") if path.endswith(".py")):
        copy(ROOT / path, hidden / "gdb" / Path(path).relative_to("tools/gdb"))
    copy(ROOT / "exercises/tool/exercise", out / "exercise", 0o755)
    for name in ("LICENSE", "NOTICE"):  # the same licence as libcrypto's
        copy(ROOT / name, hidden / name)
    for name in ("Dockerfile", "devcontainer.json"):
        copy(ROOT / "exercises/devcontainer" / name, out / ".devcontainer" / name)
    for lang in args.lang:  # the front page, without what speaks of the repository: the note above and the last section
        page = handouts.with_tables(handouts.page_of(lang).read_text(), chosen, lang)
        page = re.sub(r"^> .*\n\n", "", page, count=1, flags=re.M)
        (out / handouts.page_of(lang).name).write_text(page[:page.rindex("\n## ")])
    copy(ROOT / "exercises/programs.md", out / "programs.md")
    for lang in args.lang:
        name = handouts.page_of(lang, "install").name
        copy(ROOT / "exercises" / name, out / name)
        copy(ROOT / f"exercises/measure/handout.{lang}.md", out / f"measure/handout.{lang}.md")
    copy(ROOT / "exercises/assistants.md", out / "AGENTS.md")
    if args.self_study:
        for path in (path for folder in FOLDERS for path in tracked(folder) if path.endswith((".hpp", ".cpp"))):
            copy(ROOT / path, out / "reference" / path)
        for path in tracked("exercises/judge/planning"):
            copy(ROOT / path, out / "reference" / path)
    write_json(out / ".vscode/tasks.json", tasks(chosen))
    write_json(out / ".vscode/launch.json", launches(chosen))
    (out / "compile_flags.txt").write_text("\n".join(["-std=c++20", "-I.ringside/include"]
                                                     + [f"-I{each['id']}" for each in chosen]) + "\n")
    commit = told_by_git("rev-parse", "HEAD") or ""
    programs = {each["id"]: f"judges/{each['id']}" for each in chosen if each["id"] in kit.programs}
    for id, name in programs.items():
        copy(kit.programs[id], here / name, 0o755)
    write_json(here / "kit.json", {
        "version": commit, "root": "../include", "compiler": "c++", "portable": kit.settings["portable"], "flags": kit.flags, "link": kit.link,
        "python": "../python", "python_library": "lib/libringside.so", "libraries": [f"lib/{Path(path).name}" for path in kit.libraries],
        "program": "ringside-judge", "programs": programs, "ringside": "bin/ringside",
        "judges": {each["id"]: f"judges/{each['id']}.o" for each in chosen}})
    write_manifest(out)
    if args.add:
        add_architectures(out, Path(args.add))
    print(f"wrote {len(chosen)} exercises, {sum(each['points'] for each in chosen)} points, for {' and '.join(kits.kits_in(out))}, to {out}")


def add_architectures(out, other):
    """Copies the architectures of another export of the same course. Ends the program where it is not the same."""
    mine, theirs = kits.kits_in(out), kits.kits_in(other)
    refuse = lambda why: sys.exit(f"{out} is for {' and '.join(mine)} alone, because {other} cannot be added: {why}")
    if not theirs or not (other / "MANIFEST").exists():
        refuse("it is no exported course")
    if both := mine.keys() & theirs.keys():
        refuse(f"both are for {' and '.join(sorted(both))}")
    settings = [json.loads(next(iter(files.values())).read_text()) for files in (mine, theirs)]
    for what, of in (("versions", lambda kit: kit["version"] or "unknown"), ("exercises", lambda kit: ", ".join(sorted(kit["judges"])))):
        if of(settings[0]) != of(settings[1]):
            refuse(f"the {what} are not the same: {of(settings[0])} here, {of(settings[1])} there; export both from one commit, with the same --exercises")
    if changed := next(manifest_faults(other, everything=True), None):
        refuse(f"its {changed} is not as in its MANIFEST: export it again")
    ours, its = manifest(out), manifest(other)
    of_architecture = {name for name in ours.keys() | its.keys() if re.match(rf"\.ringside/({'|'.join(map(re.escape, [*mine, *theirs]))})/", name)}
    if differ := sorted(name for name in (ours.keys() | its.keys()) - of_architecture if ours.get(name) != its.get(name)):
        refuse(f"{differ[0]} is not the same file in both")
    for name in its.keys() & of_architecture:
        copy(other / name, out / name, (other / name).stat().st_mode & 0o777)
    write_manifest(out)


def languages(text, *more):
    known = [*handouts.LANGUAGES, *more]
    if unknown := set(text.split(",")) - set(known):
        raise argparse.ArgumentTypeError(f"expected {', '.join(known)}, separated by commas, got {', '.join(sorted(unknown))}")
    return text.split(",")


def export_exercise(kit, exercise, out, args):
    hidden, id = out / ".ringside", exercise["id"]
    starters = cut.student_files(ROOT, exercise)
    cut.write(starters, out / id)
    cut.write(starters, hidden / "starters" / id)
    for name in [*(f"handout.{lang}.md" for lang in args.lang), "figure.svg"]:
        if (exercise["folder"] / name).exists():
            copy(exercise["folder"] / name, out / id / name)
    for name in ["interface.hpp", "bind.cpp", *(["train.cpp"] if kits.trains(kit, exercise) else []), *(["gpu.cu"] if kits.runs_on_gpu(exercise) else [])]:
        copy(exercise["folder"] / name, hidden / "include/exercises" / id / name)
    for name in exercise.get("include", []):
        copy(ROOT / name, hidden / "include" / name)
    if torch_form.offered(exercise):
        copy(exercise["folder"] / "python/collect.py", hidden / "include/exercises" / id / "python/collect.py")
        cut.write({torch_form.file_of(exercise): torch_form.starter(exercise)}, hidden / "starters" / id)
    # Without edits, which show the reference: with the names and sentences of wrong answers a verdict can be named.
    public = {**{key: value for key, value in exercise.items() if key not in ("attacks", "folder")}, "wrong": [public_part(each) for each in exercise["wrong"]]}
    if exercise.get("python", {}).get("wrong"):
        public["python"] = {**exercise["python"], "wrong": [public_part(each) for each in exercise["python"]["wrong"]]}
    write_json(hidden / "include/exercises" / id / "exercise.json", public)
    if args.self_study:
        cut.write(cut.student_files(ROOT, exercise, stub=False), hidden / "solutions" / id)
        if torch_form.offered(exercise):
            copy(exercise["folder"] / "python" / torch_form.file_of(exercise), hidden / "solutions" / id / torch_form.file_of(exercise))


def public_part(answer):
    """Of a wrong answer: what names a verdict, in both forms."""
    keys = ("id", "fails", "says")
    return {**{key: answer[key] for key in keys}, **({"python": {key: answer["python"][key] for key in keys if key in answer["python"]}} if "python" in answer else {})}


def tasks(chosen):
    matcher = {"owner": "ringside", "fileLocation": ["relative", "${fileDirname}"],
               "pattern": {"regexp": r"^\s*([\w.]+):(\d+):(\d+): (error|warning): (.*)$", "file": 1, "line": 2, "column": 3,
                           "severity": 4, "message": 5}}
    task = lambda label, command, matcher=(), **more: {"label": label, "type": "shell", "command": f"./exercise{command}",
                                                       "problemMatcher": matcher, **more}
    here = "${relativeFileDirname}"  # the folder of the file that is open: its exercise
    return {"version": "2.0.0", "tasks": [
        task("watch", ""), task("check this file", f" check {here}", matcher, group={"kind": "test", "isDefault": True}),
        task("a hint for this file", f" hint {here}"),
        *(task(f"check {each['id']}", f" check {each['id'][:2]}", matcher, group="test") for each in chosen),
        *(task(f"compile {each['id']}", f" check {each['id'][:2]} || true") for each in chosen)]}


def launches(chosen):
    """For the debugger of VS Code: the first case of each exercise, all ranks as threads. Breakpoints are the student's."""
    def launch(exercise):
        build = f"${{workspaceFolder}}/.ringside/build/{exercise['id']}"
        arguments, environment = kits.in_one_process(exercise, exercise["cases"][0], build)
        return {"name": f"{exercise['id']}: {exercise['cases'][0]['id']}", "type": "cppdbg", "request": "launch", "program": f"{build}/student",
                "args": arguments, "environment": [{"name": name, "value": value} for name, value in environment.items()],
                "cwd": "${workspaceFolder}", "MIMode": "gdb", "preLaunchTask": f"compile {exercise['id']}",
                "setupCommands": [{"text": "-enable-pretty-printing"}, {"text": "source ${workspaceFolder}/.ringside/gdb/load.py"}]}

    return {"version": "0.2.0", "configurations": [launch(each) for each in chosen]}


def copy(source, target, mode=0o644):
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_manifest(out):
    """MANIFEST: the sha256 of every file, sorted. Modes do not depend on the umask."""
    lines = []
    for path in sorted(path for path in out.rglob("*") if path.is_file() and path != out / "MANIFEST"):
        path.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n")
    (out / "MANIFEST").write_text("".join(lines))


# ---- Grading

NO_RIGHTS = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
# Ids of users that no account has: one for each submission that is checked at a time. The kernel counts the processes of a user in
# all sandboxes together, so each run takes ids of its own: else a fork bomb in one run would leave no process for another run.
FIRST_USER = 1_900_000_000 + random.randrange(200_000_000)
PROCESSES = 512
ROOM = "/mnt"  # in the sandbox: the course, the submission, and a place to build, 2 GB


def sandbox():
    """A command that runs another one with no network but its own loopback, no view of other processes, and mounts of its own;
    [] where that is not allowed. The kernel limits the number of processes for each user, but not for root: where root grades, the
    submission runs as a user of its own; where another user does, that user is root of the sandbox without rights outside."""
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *own_user, "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
               *([] if os.geteuid() == 0 else ["prlimit", f"--nproc={2 * PROCESSES}"]), "--"]
    allowed = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    return command if allowed else []


def furnish(course, code, hide, torch):
    """Inside the sandbox: ROOM gets the course and the Python that has `torch`, if any, read-only, and a copy of the folder `code`; then the
    folders in `hide`, and those in which anybody may write, are covered by empty ones. Whether it all worked."""
    def mount(*options, **how):
        return subprocess.run(["mount", *options], capture_output=True, **how).returncode == 0

    room = Path(ROOM).resolve()
    covered = {Path(each).resolve() for each in ["/tmp", "/var/tmp", "/dev/shm", *hide] if Path(each).is_dir()}
    covered = {each for each in covered if room not in (each, *each.parents) and each not in room.parents}  # the others are covered by ROOM itself
    folders = {"course": course, **({"python": torch["base"], "packages": torch["packages"]} if torch else {}), **({"code": code} if code.is_dir() else {})}
    # They may lie below ROOM, and are reached by their descriptors once it is covered.
    opened = {name: os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for name, folder in folders.items()}
    try:
        if not mount("-t", "tmpfs", "-o", "size=2g,mode=755", "none", ROOM):
            return False
        for name in {"code", "tmp", *opened}:
            Path(ROOM, name).mkdir()
        if "code" in opened:
            for path in Path(f"/proc/self/fd/{opened['code']}").iterdir():  # plain files: submissions.code_in() has copied no others
                copy(path, f"{ROOM}/code/{path.name}")
        for name, descriptor in opened.items():
            if name != "code" and not (mount("--no-canonicalize", "--bind", f"/proc/self/fd/{descriptor}", f"{ROOM}/{name}", pass_fds=[descriptor])
                    and mount("-o", "remount,bind,ro", f"{ROOM}/{name}")):
                return False
    finally:
        for descriptor in opened.values():
            os.close(descriptor)
    return all([mount("-t", "tmpfs", "-o", "size=64m,mode=1777", "none", str(folder)) for folder in sorted(covered, reverse=True)])  # inner ones first


def manifest(course):
    """{file: sha256} of an exported course."""
    return {name: digest for digest, name in (line.split("  ", 1) for line in Path(course, "MANIFEST").read_text().splitlines())}


def manifest_faults(course, everything=False):
    """Files of the course that are not as they were exported: of those that grade, or of all."""
    for name, digest in manifest(course).items():
        path = Path(course, name)
        if not (everything or name.startswith(".ringside/")):
            continue  # handouts and starters
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            yield name


def verify(course, when):
    if changed := list(manifest_faults(course)):
        raise RuntimeError(f"{when}, {changed[0]} of the course is not as in MANIFEST: export the course again")


def raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 1)  # struct ifreq, IFF_UP
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def one(args):
    """Inside the sandbox: checks one exercise of a submission; reads what to do from standard input."""
    given = json.load(sys.stdin)
    course, code, not_allowed = given["course"], Path(given["code"]), []
    if given["sandboxed"]:
        raise_loopback()
        torch = given.get("torch")
        if furnish(course, code, given["hide"], torch):
            course, code = f"{ROOM}/course", Path(ROOM, "code")
            os.chdir("/")  # from the caller's folder a relative path would lead below what covers it
            tempfile.tempdir = f"{ROOM}/tmp"
            if torch:
                python = Path(f"{ROOM}/python", Path(torch["real"]).relative_to(torch["base"]))
                torch_form.MOVED = {"python": str(python), "base": f"{ROOM}/python", "packages": f"{ROOM}/packages"}
            kits.WALLS = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=755 none "$0" && exec "$@"', course]
        else:
            not_allowed.append("a file system of its own")
        if os.geteuid() == 0 and given["user"]:
            kits.USER = given["user"]
            kits.CONFINED = [*NO_RIGHTS, f"--reuid={kits.USER}", f"--regid={kits.USER}", "--clear-groups", "--", "prlimit", f"--nproc={PROCESSES}", "--"]
        else:
            kits.CONFINED = [*NO_RIGHTS, "--"]
    else:
        not_allowed.append("a sandbox of its own")
    kit = kits.kit_in(course)
    exercise = kit.find(given["exercise"])
    with tempfile.TemporaryDirectory(prefix="ringside-grade-") as build:
        Path(build).chmod(0o711)
        result = kits.check(kit, exercise, code, Path(build) / exercise["id"], jobs=2, deadline=kits.PATIENT,
                            hidden=given["hidden"], seed=given["seed"])
        speed = None
        if given.get("rounds") and result["status"] == "right":
            speed = boards.measured(kit, exercise, code, kits.own_folder(Path(build) / "train"), given["rounds"], given["train"])
    json.dump({"result": result, "not_allowed": not_allowed, "speed": speed}, sys.stdout)


def no_result(exercise, says):
    """Of an exercise that could not be graded, through no fault of the student."""
    return {"id": exercise["id"], "status": "judge error", "score": 0, "max": exercise["points"], "seconds": 0, "cases": [
        {"id": case["id"], "status": "judge error", "score": 0, "max": case["points"], "seconds": 0, "hidden": False, "says": [says]}
        for case in exercise["cases"]]}


def key_in(file):
    key = Path(file).read_bytes().strip()
    if len(key) < 16:
        sys.exit(f"{file}: expected a key of at least 16 bytes; make one with: openssl rand -hex 32 > {file}")
    return key


def handed_in(args, kit):
    """{student: a folder or an archive}. Names on stderr what is no submission: nobody gets 0 points for a form."""
    found, refused = submissions.submissions_in(args.submissions)
    ids = [each["id"] for each in kit.exercises]
    for student, path in found.items():
        with tempfile.TemporaryDirectory(prefix="ringside-submission-") as folder:
            try:
                for sentence in submissions.code_in(path, folder, ids)[1]:
                    print(f"warning: {student}: {sentence}", file=sys.stderr)
            except (submissions.Unreadable, OSError) as error:
                refused[path.name] = f"{path.name}: {error}"
    for sentence in refused.values():
        print(f"not graded: {args.submissions}/{sentence}", file=sys.stderr)
    readable = {student: path for student, path in found.items() if path.name not in refused}
    if not readable:
        sys.exit(f"{args.submissions}: expected a folder or an archive ({', '.join(submissions.ARCHIVES)}) for each student, found none")
    return readable, bool(refused)


def hidden_folders(args):
    """What no submission may read."""
    return [str(ROOT), args.submissions, str(Path(args.key).resolve().parent), str(Path(args.out)), *([] if os.geteuid() == 0 else [str(Path.home())])]


def leaderboard(args):
    """One submission at a time: what runs beside it would slow it down."""
    key, kit, out, walls = key_in(args.key), kits.kit_in(args.course), Path(args.out), sandbox()
    if not walls:
        print("warning: unshare is not allowed here: submissions run without a sandbox of their own", file=sys.stderr)
    able = [each for each in kit.exercises if kits.trains(kit, each) and kits.train_option(each) == "--parallel" and not each.get("lossy")]
    exercises = [kit.find(each) for each in args.exercises.split(",")] if args.exercises else able
    if not exercises or any(each not in able for each in exercises):
        sys.exit("a leaderboard needs methods of data parallelism: " + ", ".join(each["id"] for each in able))
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    readable, refused = handed_in(args, kit)
    ids = [each["id"] for each in kit.exercises]
    for student, path in readable.items():
        with tempfile.TemporaryDirectory(prefix="ringside-submission-") as folder:
            code = submissions.code_in(path, folder, ids)[0]
            for exercise in (each for each in exercises if (code / each["id"]).is_dir()):
                verify(args.course, f"before {student}")
                given = {"course": str(Path(args.course).resolve()), "code": str((code / exercise["id"]).resolve()), "exercise": exercise["id"],
                         "hidden": True, "hide": hidden_folders(args), "sandboxed": bool(walls), "user": FIRST_USER if os.geteuid() == 0 else None,
                         "seed": kits.seed_of(key, student, exercise["id"]), "rounds": args.rounds, "train": args.train.split()}
                with kits.saying(lambda: f"{student}: still measuring {exercise['id']}"):
                    done = subprocess.run([*walls, sys.executable, __file__, "one"], input=json.dumps(given), capture_output=True, text=True)
                if done.returncode != 0:
                    raise RuntimeError(f"{student}, {exercise['id']}: {done.stderr.strip()[-300:]}")
                told = json.loads(done.stdout)
                verify(args.course, f"after {student}")
                rows.append(boards.row(student, exercise, told["result"], told["speed"]))
    print(boards.written(rows, out / "leaderboard.csv"))
    return 1 if refused else 0


def grade(args):
    key = key_in(args.key)
    kit, out, walls = kits.kit_in(args.course), Path(args.out), sandbox()
    if not walls:
        print("warning: unshare is not allowed here: submissions run without a sandbox of their own", file=sys.stderr)
    wanted = list(filter(None, args.format.split(",")))
    if unknown := set(wanted) - {"gradescope", "classroom50", "junit", "actions"}:
        sys.exit(f"there is no format {', '.join(sorted(unknown))}; there are gradescope, classroom50, junit, actions")
    for name in wanted:  # what a format lacks is told before hours of grading
        getattr(formats, name)(kits.verdict(kit, "nobody", []))
    verify(args.course, "before grading")
    out.mkdir(parents=True, exist_ok=True)
    readable, refused = handed_in(args, kit)
    ids = [each["id"] for each in kit.exercises]
    hide, torch = hidden_folders(args), torch_form.installed_torch()
    users, running, stopping, lost = queue.SimpleQueue(), set(), threading.Event(), []
    for worker in range(args.jobs):
        users.put(FIRST_USER + worker)

    def checked(student):
        with tempfile.TemporaryDirectory(prefix="ringside-submission-") as folder:
            code, left_out = submissions.code_in(readable[student], folder, ids)
            verify(args.course, f"before {student}")
            user = users.get()
            try:
                told = [checked_one(student, code, exercise, user) for exercise in kit.exercises if not stopping.is_set()]
            finally:
                users.put(user)
        if stopping.is_set():
            return None
        verify(args.course, f"after {student}")
        verdict = kits.verdict(kit, student, [each["result"] for each in told])
        return {**verdict, **{key: value for key, value in (("not_allowed", told[0]["not_allowed"]), ("not_read", left_out)) if value}}

    def checked_one(student, code, exercise, user):
        """Each exercise has a sandbox of its own: what one leaves behind, processes and full disks, ends with it."""
        given = {"course": str(Path(args.course).resolve()), "code": str((code / exercise["id"]).resolve()), "exercise": exercise["id"],
                 "hidden": not args.public_only, "hide": hide, "sandboxed": bool(walls), "user": user if os.geteuid() == 0 else None,
                 "torch": torch if torch_form.offered(exercise) else None, "seed": kits.seed_of(key, student, exercise["id"])}
        with kits.saying(lambda: f"{student}: still checking {exercise['id']}; a world that hangs takes {kits.PATIENT} s"):
            # In a session of its own: Ctrl-C is for this process, which then ends the others.
            with subprocess.Popen([*walls, sys.executable, __file__, "one"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  errors="replace", start_new_session=True) as process:
                running.add(process)
                if stopping.is_set():
                    stop(process)
                stdout, stderr = process.communicate(json.dumps(given))
                running.discard(process)
        if process.returncode != 0:
            says = f"grading failed: {(stderr.strip() or f'exit status {process.returncode}').splitlines()[-1]}"
            if not stopping.is_set():
                print(f"warning: {student}, {exercise['id']}: {says}", file=sys.stderr)
            return {"result": no_result(exercise, says), "not_allowed": []}
        return json.loads(stdout)

    def stop(process):
        """A sandbox ends with its first process; without one, this process ends what it has started itself."""
        process.send_signal(signal.SIGKILL if walls else signal.SIGINT)

    def graded(student):
        """The verdict, also where the grading failed: the others are graded all the same. None if it was interrupted."""
        if stopping.is_set():
            return None
        try:
            verdict = checked(student)
        except Exception as error:
            print(f"warning: {student}: grading failed: {error or type(error).__name__}", file=sys.stderr)
            verdict = kits.verdict(kit, student, [no_result(each, f"grading failed: {error or type(error).__name__}") for each in kit.exercises])
        if not verdict or stopping.is_set():
            return None
        verdict = plain(verdict)
        for what in verdict.get("not_allowed", []):
            print(f"warning: {student}: this machine does not allow {what}", file=sys.stderr)
        try:
            write_json(out / f"{student}.json", verdict)
            for name in wanted:
                text = getattr(formats, name)(verdict)
                ending = {"junit": "xml", "actions": "md"}.get(name, "json")
                (out / f"{student}.{name}.{ending}").write_text(text if isinstance(text, str) else json.dumps(text, indent=1) + "\n", encoding="utf-8")
        except Exception as error:
            lost.append(student)
            print(f"warning: {student}: the verdict cannot be written: {error}", file=sys.stderr)
        print(f"{student}: {formats.score(verdict)} points", flush=True)
        return verdict

    with ThreadPoolExecutor(args.jobs) as pool:
        grades = [pool.submit(graded, student) for student in readable]
        try:
            wait(grades)
        except KeyboardInterrupt:
            stopping.set()
            for process in list(running):
                stop(process)
    verdicts = list(filter(None, (each.result() for each in grades)))
    (out / "grades.csv").write_text(formats.table(verdicts), encoding="utf-8")
    if stopping.is_set():
        print(f"interrupted: {len(verdicts)} of {len(readable)} submissions are graded, and grades.csv has only these", file=sys.stderr)
        return 130
    return 1 if refused or lost else 0


def plain(value):
    """This value of JSON, with ? for each half of a surrogate pair, which a program may print and no file can hold."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def slides(args):
    known = cut.load_all(ROOT) + ([cut.load(path.parent) for path in sorted(Path(args.own).glob("[0-9]*/exercise.json"))] if args.own else [])
    wanted = args.exercises.split(",") if args.exercises else [each["id"] for each in known]
    chosen = [each for name in wanted for each in known if each["id"] == name or each["id"].startswith(name + "-")]
    if len(chosen) != len(wanted):
        sys.exit(f"there is no exercise {', '.join(name for name in wanted if not any(each['id'].startswith(name) for each in chosen))}")
    if missing := [each["id"] for each in chosen if not (each["folder"] / f"handout.{args.lang}.md").exists()]:
        sys.exit(f"no handout in {args.lang}: {', '.join(missing)}")
    Path(args.file).write_text(page := decks.page(chosen, args.lang))
    print(f"wrote {page.count('<section ')} slides of {len(chosen)} exercises to {args.file}")


def mistake_of(case):
    """The name of the wrong answer, or else the first sentence; None where there is no mistake of its own."""
    if case["status"] in ("right", "not written") or not case.get("says") or case["says"][0].startswith("not judged"):
        return None
    if case["status"] in ("forbidden", "does not compile"):  # the same for all cases
        return case["says"][0][:90]
    sentence = re.sub(r"^(world \d+, )?(ranks? [\d, ]+: )?", "", case["says"][0])  # the same in every world
    return f"{case['id']}: {case.get('named') or sentence[:90]}"


def summary(args):
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(args.results).glob("*.json"))]
    verdicts = [each for each in found if isinstance(each, dict) and each.get("schema") == "ringside/verdict/v1"]  # the others are in the forms of --format
    for id in dict.fromkeys(each["id"] for verdict in verdicts for each in verdict["exercises"]):
        results = [each for verdict in verdicts for each in verdict["exercises"] if each["id"] == id]
        statuses = collections.Counter(each["status"] for each in results)
        print(f"{id}: " + ", ".join(f"{count} {status}" for status, count in statuses.most_common()))
        named = collections.Counter(what for each in results for what in set(map(mistake_of, each["cases"])) if what)
        for what, count in named.most_common(8):
            print(f"    {count:>3}  {what}")


def with_own(command, required=False):
    command.add_argument("--from", dest="own", metavar="FOLDER", required=required, help="with the exercises of your own in this folder")
    command.add_argument("--build", help="a build folder with RINGSIDE_NATIVE=OFF; default: build/exercises, made if it is missing")
    command.add_argument("--kit", help="take what this kit.json names, although it may run on this machine only")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("export", help="write a course for students")
    command.add_argument("dir")
    command.add_argument("--exercises", help="numbers, such as 01,15; default: all")
    command.add_argument("--lang", type=languages, default=handouts.LANGUAGES, help="languages of the handouts; default: en,zh")
    with_own(command)
    command.add_argument("--self-study", action="store_true",
                         help="with solutions and the whole reference; default: without them, and without headers that hold an answer")
    command.add_argument("--add", metavar="OTHER_EXPORT", help="with the architecture of another export of the same version and exercises")
    command.set_defaults(run=export)
    command = commands.add_parser("new", help="write the files of an exercise of your own")
    command.add_argument("name", help="a free number and a name, such as 50-my-exercise")
    command.add_argument("--from", dest="own", required=True, metavar="FOLDER", help="your exercises; made if it is missing")
    command.add_argument("--lang", type=lambda text: languages(text, "python"), default=["en"],
                         help="languages of the handout, and python for a form in Python: en,python; default: en")
    command.set_defaults(run=own.new)
    command = commands.add_parser("check", help="prove an exercise of your own, and say what is missing")
    command.add_argument("exercise", help="its number or name")
    with_own(command, required=True)
    command.set_defaults(run=lambda args: own.check(chosen_kit, args))
    command = commands.add_parser("grade", help="check a folder of submissions")
    command.add_argument("submissions")
    command.add_argument("--course", required=True, help="the exported course")
    command.add_argument("--key", required=True, help="a file with the course key: it decides each student's data")
    command.add_argument("--out", required=True)
    command.add_argument("--public-only", action="store_true", help="without the hidden worlds")
    command.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="submissions at a time")
    command.add_argument("--format", default="", help="also write gradescope, classroom50, junit, actions")
    command.set_defaults(run=grade)
    command = commands.add_parser("leaderboard", help="the fastest right training steps")
    command.add_argument("submissions")
    command.add_argument("--course", required=True, help="the exported course")
    command.add_argument("--key", required=True, help="a file with the course key")
    command.add_argument("--out", required=True, help="a folder; gets leaderboard.csv")
    command.add_argument("--exercises", default="", help="numbers, such as 15,17; default: all that ringside train can run")
    command.add_argument("--rounds", type=int, default=5, help="trainings of each submission, in turn with Ringside's own; default: 5")
    command.add_argument("--train", default="--steps 30 --link 1Gbps,50us",
                         help="options of ringside train; default: %(default)s")
    command.set_defaults(run=leaderboard)
    command = commands.add_parser("slides", help="slides for a lecture, from the handouts")
    command.add_argument("file", help="an HTML file")
    command.add_argument("--exercises", default="", help="numbers, such as 01,15; default: all")
    command.add_argument("--lang", choices=handouts.LANGUAGES, default="en")
    command.add_argument("--from", dest="own", metavar="FOLDER", help="with exercises of your own in this folder")
    command.set_defaults(run=slides)
    command = commands.add_parser("cs336", help="judge repositories of CS336's assignment 2, beside their own tests")
    command.add_argument("folders", nargs="+", metavar="FOLDER", help="a repository, with tests/adapters.py")
    command.add_argument("--json", metavar="FILE", help="write the verdicts")
    command.add_argument("--limit", type=int, default=600, metavar="SECONDS", help="a file of their tests ends after so long [600]")
    command.add_argument("--build", help="as export takes it; default: build/exercises, made if it is missing")
    command.add_argument("--kit", help="take what this kit.json names")
    command.set_defaults(own=None, run=lambda args: cs336.run(chosen_kit(args), args))
    command = commands.add_parser("summary", help="what the class got wrong")
    command.add_argument("results")
    command.set_defaults(run=summary)
    commands.add_parser("one").set_defaults(run=one)
    args = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a name that the terminal cannot show ends nothing
    try:
        return args.run(args)
    except (ValueError, RuntimeError, cut.CutError) as error:
        sys.exit(f"ringside-exercises: {error}")


if __name__ == "__main__":
    sys.exit(main())
