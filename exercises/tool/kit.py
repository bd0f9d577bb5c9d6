"""Compiles a student's code, runs its cases and collects the verdict (ringside/verdict/v1).

A kit is what that takes: kit.json names the root of the headers and exercises, the compiler and its
flags, the libraries, a judge's object for each exercise, and the program that judges. The build
makes one in build/PRESET/exercises; every export holds one for each architecture.
"""
import contextlib
import hashlib
import hmac
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cut

# From the worst to the best: the status of an exercise is the first that one of its cases has.
STATUSES = ["judge error", "forbidden", "does not compile", "not written", "crashes", "hangs", "wrong", "right"]
OLDEST = 12  # version of GCC that compiles a course
DEADLINE = 10  # seconds for one world of a case, at home
PATIENT = 30  # where other programs keep the machine busy, as in grading: a right answer must not pay for that
PORT_TAKEN = "the port is taken. Choose another"  # between the look for a free port and its use
# Of each rank: bytes of addresses, and of a file that it writes.
LIMITS = ["prlimit", "--as=8000000000", "--fsize=100000000", "--core=0", "--nofile=256", "--"]
COMPILE_DEADLINE = int(os.environ.get("RINGSIDE_COMPILE_SECONDS", "120"))
COMPILING = ["prlimit", "--as=8000000000", f"--cpu={COMPILE_DEADLINE}", "--fsize=500000000", "--core=0", "--"] if shutil.which("prlimit") else []
# Where others' code is graded, instructor.py sets both: a command before each one that compiles or runs a submission, and
# the id of the user who then runs it, if that is not the caller.
CONFINED, USER = [], None
# A command before the program of a student, which needs nothing of the course: where it is set, the course is out of its sight.
WALLS = []
LONGEST = 2000  # characters of a sentence in a verdict that a submission has a say in


@contextlib.contextmanager
def saying(what):
    """Says on a terminal what is being waited for, the sentence that `what` returns, so often that no ten seconds are silent."""
    if not sys.stderr.isatty():  # what reads a command's output gets what it got when the machine was faster
        yield
        return
    began, ended = time.monotonic(), threading.Event()

    def say():
        while not ended.wait(9):
            print(f"{what()} ({time.monotonic() - began:.0f} s so far)", file=sys.stderr, flush=True)

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def own_folder(path):
    """Makes a folder that who runs a submission may write to."""
    Path(path).mkdir(parents=True, exist_ok=True)
    if USER:
        os.chown(path, USER, USER)
    return Path(path)


def seed_of(key, student, exercise):
    """Data differ from student to student, and only who has the key can tell how."""
    digest = hmac.new(key, f"{student}/{exercise}".encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:7], "big")


PUBLIC_KEY = b"ringside"  # of the checks at home; an instructor grades with another key


def in_one_process(exercise, case, folder):
    """(arguments, environment) with which a student's program runs the largest world of a case in one process, each rank a
    thread, for a debugger. What the ranks saw goes into `folder`."""
    environment = {"WORLD_SIZE": str(case["worlds"][-1]), "RANK": "0", "RINGSIDE_JUDGE_TRANSPORT": "threads",
                   "RINGSIDE_JUDGE_SEED": str(seed_of(PUBLIC_KEY, "home", exercise["id"])), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return [exercise["id"], "collect", case["id"], str(folder)], environment


def version_of(compiler):
    """The major version of GCC or Clang; 0 where there is no such program, or it does not tell."""
    told = shutil.which(compiler) and subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True).stdout
    return int(told.split(".")[0]) if told and told[0].isdigit() else 0


def new_enough(compiler):
    """`compiler`, unless it is older than OLDEST and a GCC that is not lies beside it: Ubuntu 22.04 has g++-12."""
    others = (f"g++-{version}" for version in range(OLDEST + 8, OLDEST - 1, -1))
    return compiler if version_of(compiler) >= OLDEST else next((each for each in others if version_of(each) >= OLDEST), compiler)


class Kit:
    def __init__(self, file):
        here = Path(file).resolve().parent
        kit = json.loads(Path(file).read_text())
        path = lambda name: str((here / name).resolve())
        self.root = Path(path(kit["root"]))
        self.compiler = new_enough(kit["compiler"])
        self.flags, self.link = kit["flags"], kit["link"]
        self.libraries = [path(each) for each in kit["libraries"]]
        self.program = path(kit["program"])
        self.ringside = path(kit["ringside"])  # the trainer, where an exercise has a train.cpp
        self.judges = {id: path(each) for id, each in kit["judges"].items()}
        self.programs = {id: path(each) for id, each in kit.get("programs", {}).items()}  # of exercises that `program` does not judge
        self.python, self.python_library = path(kit["python"]), path(kit["python_library"])  # the folder of the package ringside, and libringside.so
        self.settings = kit
        self.exercises = [each for each in cut.load_all(self.root) if each["id"] in self.judges]

    @property
    def linked(self):
        """What a student's object is linked with, behind the judge's. A shared library is found where it lies."""
        found = sorted({f"-Wl,-rpath,{Path(each).parent}" for each in self.libraries if each.endswith(".so")})
        return [*self.libraries, *self.link, *found]

    def program_of(self, exercise):
        return self.programs.get(exercise["id"], self.program)

    def find(self, name):
        """The exercise with this number or id."""
        found = [each for each in self.exercises if name == each["id"] or name.zfill(2) == each["id"].split("-")[0]]
        if not found:
            raise SystemExit(f"there is no exercise {name}; there are "
                             + ", ".join(each["id"] for each in self.exercises))
        return found[0]


def kits_in(course):
    """{architecture: kit.json} of an exported course."""
    return {file.parent.name: file for file in sorted(Path(course, ".ringside").glob("*/kit.json"))}


def kit_in(course):
    """The kit of this machine in an exported course. Ends the program where the course has none."""
    here, files = platform.machine(), kits_in(course)
    if platform.system() != "Linux":
        raise SystemExit(f"the course runs on Linux, and this machine has {platform.system()}: install.md says how to get Linux on it")
    if here not in files:
        raise SystemExit(f"this course is for {' and '.join(files) or 'no architecture'}, and this machine is {here}: ask for a course "
                         f"that is for {here}, too (instructors: ringside-exercises export --add), or use another machine (install.md)")
    return Kit(files[here])


# ---- Compiling

# Functions of the C library with which code leaves its process, or looks into another.
FORBIDDEN_CALLS = re.compile(r"v?fork|__clone|clone3?|exec[vl]p?e?|execveat|fexecve|posix_spawnp?|system|popen|dlv?sym|dlm?open|ptrace|syscall"
                             r"|process_vm_(?:read|write)v|pidfd_\w+|socketpair|recvmsg|sendmsg|write|send|dup[23]?|mount|umount2?|unshare|setns|kill|__libc_start_main")

# Of the C standard library, under the names that they have there.
C_HEADERS = "assert|ctype|errno|float|inttypes|limits|math|stddef|stdint|stdio|stdlib|string|time"

# The ledger counts what the calling thread allocates, and the judge resets its peak: an exercise with "ledger" allows neither.
AROUND_THE_LEDGER = re.compile(r"std::thread::_M_start_thread|pthread_create|thrd_create|GOMP_parallel"
                               r"|ringside::autograd::(?:parallel_for|reset_peak_memory)")


def own_and_given(kit, exercise, folder):
    """What the preprocessor makes of the student's files: the includes in them, as (file, line, text), however they are spelt; the
    words of all other files; and the words of these files. None where it finds an error, which the compiler will tell."""
    source = exercise["folder"] / "bind.cpp"
    try:
        done = subprocess.run([*CONFINED, *COMPILING, kit.compiler, *kit.flags, "-E", "-dI", "-iquote", str(folder), "-I", str(kit.root), str(source)],
                              capture_output=True, text=True, errors="replace", timeout=COMPILE_DEADLINE)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        refuse_busy_machine(done.stderr)
        return None
    own = {str(folder / Path(file).name): Path(file).name for file in cut.files_of(exercise)}
    includes, given, written, here, line = [], [], [], None, 0
    for text in done.stdout.split("\n"):
        if marker := re.match(r'# (\d+) "((?:[^"\\]|\\.)*)"', text):
            here, line = own.get(os.path.normpath(marker[2])), int(marker[1])
            continue
        if here and re.match(r"#include", text):
            includes.append((here, line, text))
        else:
            (written if here else given).append(text)
        line += 1
    words = lambda lines: set(re.findall(r"\w+", "\n".join(lines)))
    return includes, words(given), words(written)


def forbidden_text(exercise, includes):
    """What the source may not hold: includes that are not on the list."""
    own = [Path(file).name for file in cut.files_of(exercise)]
    allowed = exercise["may_include"] + exercise.get("include", []) + own + ["exercises/judge/starter.hpp"]
    for name, number, line in includes:
        match = re.match(r'#include(?:_next)?\s*(?:"([^"]*)"|<([^>]*)>)?', line)
        quoted, angled = match.groups()
        system = angled is not None and re.fullmatch(rf"[a-z_0-9]+|fmt/[a-z]+\.h|(?:{C_HEADERS})\.h", angled)
        mine = quoted is not None and ".." not in quoted and any(
            quoted == each or (each.endswith("/") and quoted.startswith(each)) for each in allowed)
        if not (system or mine):
            return (f"{name}:{number}: includes {quoted or angled or 'by a macro'}, which is not on the list: "
                    + ", ".join(exercise["may_include"]) + ", and the C++ standard library")
    return None


def forbidden_symbols(kit, exercise, obj, given, written):
    """What the object may not use: the reference; functions that no header on the list declares; other processes; code that runs
    before the judge's. Definitions of inline functions count too."""
    for line in subprocess.run(["nm", "-C", "--format=posix", obj], capture_output=True, text=True, check=True).stdout.split("\n"):
        match = re.match(r"(.*) ([A-Za-z])(?: [0-9a-f]+)*\s*$", line)
        if not match:
            continue
        name, kind = match.groups()
        for banned in exercise["may_not_use"]:
            if banned in name:
                return f"uses {name.split(' ')[0]}, which is the reference (or builds on it): write it yourself"
        if exercise.get("ledger") and (around := AROUND_THE_LEDGER.search(name)):
            return f"uses {around[0]}: memory is measured on the thread that calls your code, and by the judge alone"
        if kind in "Uw" and FORBIDDEN_CALLS.fullmatch(name) and (name != "syscall" or name in written):  # std::atomic waits by it
            return f"uses {name}: a rank has only its group to talk to others"
        if kind == "U" and (called := re.match(r"ringside::(?:\w+::)*(~?\w+)", name)) and called[1].lstrip("~") not in given:
            return f"uses {called[0]}, which no header on the list declares: write it yourself"
    sections = subprocess.run(["readelf", "-SW", obj], capture_output=True, text=True, check=True).stdout
    if any(flag.startswith("-fsanitize=") for flag in kit.flags):
        sections = re.sub(r"\.(?:init|fini)_array\.(?:00099|[01])\b", "", sections)  # the sanitizer's own, of GCC and of Clang
    if early := re.search(r"\.(?:preinit_array|[cd]tors|(?:init|fini)_array\.\d+)\b", sections):
        return f"has code that runs before main, or after it, in an order of its own ({early[0]})"
    return None


class Broken(Exception):
    """A status that ends an exercise before its cases run, with its sentences."""

    def __init__(self, status, *says):
        super().__init__(status)
        self.status, self.says = status, [each for each in says if each]


def require_compiler(kit):
    """Throws Broken with what to install. A compiler brings the other tools."""
    for tool in (kit.compiler, "nm", "readelf"):
        if not shutil.which(str(tool)):
            raise Broken("judge error", f"{tool} is not installed: install a C++ compiler (Debian, Ubuntu: apt-get install g++)")
    if 0 < (version := version_of(kit.compiler)) < OLDEST:
        raise Broken("judge error", f"{kit.compiler} is version {version}, and a course needs GCC {OLDEST} or newer (Debian, Ubuntu: apt-get install "
                     f"g++-{OLDEST}, if the release has it; else a newer release, or a container: install.md)")


def run_compiler(kit, folder, *arguments):
    """What the compiler prints about the student's files in `folder`. Throws Broken."""
    try:
        compiled = subprocess.run([*CONFINED, *COMPILING, kit.compiler, *kit.flags, "-fdiagnostics-color=never", "-iquote", str(folder), "-I", str(kit.root),
                                   *arguments], capture_output=True, text=True, errors="replace", timeout=COMPILE_DEADLINE)
    except subprocess.TimeoutExpired:
        raise Broken("does not compile", f"the compiler did not come to an end in {COMPILE_DEADLINE} s") from None
    output = compiled.stderr.replace(str(folder) + "/", "")
    if compiled.returncode != 0:
        refuse_busy_machine(output)
        errors = [line for line in output.split("\n") if re.search(r"\b(fatal )?error:", line)]
        raise Broken("does not compile", errors[0] if errors else output[-500:], *output.splitlines())
    return output


def refuse_busy_machine(output):
    """Throws Broken where the compiler could not start one of its own programs: no fault of the student."""
    if re.search(r"fatal error: .*: Resource temporarily unavailable", output):
        raise Broken("judge error", "this machine had no process left for the compiler: check again")


def refuse_starter(folder):
    """Throws Broken where a function is not yet written."""
    for path in sorted(Path(folder).glob("*.?pp")):
        for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
            if "not_written_yet(" in line:
                raise Broken("not written", f"{path.name}:{number}")


def trains(kit, exercise):
    """Whether `ringside train` can run its code."""
    return (exercise["folder"] / "train.cpp").exists()


def train_option(exercise):
    """The option of `ringside train` that takes its code."""
    return exercise.get("train", "--parallel")


def compile_strategy(kit, exercise, folder, build):
    """The student's code as a shared library for `ringside train`. Throws Broken."""
    folder, library = Path(folder).resolve(), Path(build) / f"{exercise['id']}.so"
    refuse_starter(folder)
    require_compiler(kit)
    library.parent.mkdir(parents=True, exist_ok=True)
    run_compiler(kit, folder, "-O2", "-fPIC", "-shared", exercise["folder"] / "train.cpp", "-o", library)
    return library


def runs_on_gpu(exercise):
    """Whether its code can be measured on a GPU: it is judged on the emulation of one."""
    return (exercise["folder"] / "gpu.cu").exists()


def compile_for_gpu(kit, exercise, folder, target, *options):
    """What nvcc makes of the student's code; None where there is no nvcc. Throws Broken."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin")
    if not nvcc:
        return None
    refuse_starter(folder)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    compiled = subprocess.run([nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-I", str(folder), "-I", str(kit.root), *options,
                               str(exercise["folder"] / "gpu.cu"), "-o", str(target)], capture_output=True, text=True)
    if compiled.returncode != 0:
        raise Broken("does not compile", *(compiled.stdout + compiled.stderr).splitlines())
    return target


def programs_in(exercise, folder):
    """The program of a student, in any language: the file `answer`, with any ending or none, of an exercise that takes programs."""
    return sorted(path for path in Path(folder).glob("answer*") if exercise.get("any_language") and path.is_file()
                  and path.name.split(".")[0] == "answer" and not path.name.endswith("~"))


def command_of(programs):
    """The command that starts the only program of these files; others are its sources. Throws Broken."""
    begins = {path: path.read_bytes()[:20] for path in programs}
    able = [path for path in programs if path.suffix == ".py" or begins[path].startswith((b"#!", b"\x7fELF"))]
    if len(able) > 1:
        raise Broken("does not compile", f"{' and '.join(path.name for path in able)} are programs: keep one of them")
    if not able:
        raise Broken("does not compile", f"{programs[0].name} is no program: expected a first line such as #!/usr/bin/env node, it begins with "
                     f"{begins[programs[0]].decode(errors='replace').splitlines()[:1]}")
    path = able[0].resolve()
    if path.suffix == ".py":
        return shlex.join([shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable, str(path)])
    path.chmod(0o755)  # an archive or a download does not keep it
    return shlex.quote(str(path))


def stubs_in(exercise, folder):
    """How many functions of the C++ files are not yet written: all, where a file is missing."""
    paths = [Path(folder, Path(file).name) for file in cut.files_of(exercise)]
    return sum(path.read_text(errors="replace").count("not_written_yet(") for path in paths) if all(path.exists() for path in paths) else len(exercise["cut"])


def compile_student(kit, exercise, folder, build):
    """The program with the student's code. Throws Broken."""
    folder, build = Path(folder).resolve(), own_folder(build)
    missing = [name for name in (Path(file).name for file in cut.files_of(exercise)) if not (folder / name).exists()]
    if missing:
        raise Broken("not written", f"{folder} has no {missing[0]}" + " and no answer.py" * bool(exercise.get("any_language")))
    require_compiler(kit)
    includes, given, written = own_and_given(kit, exercise, folder) or ([], set(), set())
    if wrong := forbidden_text(exercise, includes):
        raise Broken("forbidden", wrong)
    obj, program = build / "student.o", build / "student"
    output = run_compiler(kit, folder, "-c", exercise["folder"] / "bind.cpp", "-o", obj)
    if wrong := forbidden_symbols(kit, exercise, str(obj), given, written):
        raise Broken("forbidden", wrong)
    linked = subprocess.run([*CONFINED, *COMPILING, kit.compiler, str(obj), kit.judges[exercise["id"]], *kit.linked, "-o", str(program)],
                            capture_output=True, text=True, errors="replace")
    if linked.returncode != 0:
        refuse_busy_machine(linked.stderr)
        missing = re.findall(r"undefined reference to `([^']*)'", linked.stderr)
        raise Broken("does not compile", f"declared, but not defined: {missing[0]}" if missing else linked.stderr[-500:])
    return str(program), output


# ---- Running

def reserved_port():
    """A socket that keeps a free port for rank 0, and the port."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder, holder.getsockname()[1]


def end_of(path, most):
    """The last bytes of a file that a submission has written, as text."""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most).decode(errors="replace")


def read_plain(path):
    """The text of a small file that a submission may have written; "" where it is a link, or none."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), errors="replace") as file:
            return file.read(1000) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else ""
    except OSError:
        return ""


class Report:
    """What a program tells its parent, through a socket that begins with a secret and has no name in any folder."""
    MOST = 200_000_000  # bytes

    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        self.secret = secrets.token_bytes(32)
        self.ours.sendall(self.secret)
        self.heard = bytearray()
        self.reader = threading.Thread(target=self.read, daemon=True)

    def read(self):
        try:
            while len(self.heard) < self.MOST and (some := self.ours.recv(1 << 16)):
                self.heard += some
        except OSError:
            pass

    def start(self):
        self.theirs.close()
        self.reader.start()

    def end(self):
        """{rank: outcome} once the program has ended; {} unless it told the secret first."""
        self.reader.join(2)
        if self.reader.is_alive():  # a process that got away holds the other end
            self.ours.shutdown(socket.SHUT_RDWR)
            self.reader.join()
        self.ours.close()
        try:
            return json.loads(self.heard[32:]) if self.heard[:32] == self.secret else {}
        except ValueError:
            return {}


def named_mistake(exercise, case, says):
    """The wrong answer whose sentence this is, with all its figures: before it stands only where, and after it nothing. None if
    there is no such wrong answer, or more than one: a part of a sentence fits other mistakes, too."""
    where = r"(?:(?:world|ranks?|step|net|buckets of|after step) [^:,]*(?:, \d+)*[:,] ?)*"
    named = {wrong["id"] for wrong in exercise.get("wrong", []) if wrong["fails"] == case and re.search(r"\d", wrong["says"])
             and says and re.fullmatch(where + re.escape(wrong["says"]), says[0])}
    return named.pop() if len(named) == 1 else None


class Runner:
    def __init__(self, kit, program, exercise, seed=0, transport="tcp", deadline=DEADLINE, command=None, environment=None, doing=None):
        self.doing = {} if doing is None else doing  # what runs now: {any: (the case's id, ranks)}, for who looks on
        self.kit, self.program, self.exercise, self.command = kit, program, exercise, command
        self.sanitized = any("-fsanitize" in flag for flag in kit.flags)  # slow, and needs terabytes of addresses
        self.seed, self.transport, self.deadline = seed, transport, deadline * (6 if self.sanitized else 1)
        # Only what the ranks need: a student's code sees nothing of the caller's environment. The judge has the same one,
        # because it compares bits: it has to multiply with the kernel of the BLAS that the ranks use.
        self.environment = {"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        self.environment |= environment or {}
        if self.sanitized:
            self.environment["RINGSIDE_ONEDNN"] = "off"  # see .ci/run
        for key in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):  # the first: where a server has its OpenBLAS
            if key in os.environ:
                self.environment[key] = os.environ[key]
        self.limits = LIMITS if shutil.which("prlimit") and not self.sanitized else []
        if self.limits and command:  # who asks a program keeps its answer, however long that line is; the program may have more
            self.limits = [LIMITS[0], f"--as=2000000000:{LIMITS[1].partition('=')[2]}", *LIMITS[2:]]

    def world(self, case, size, folder):
        """Runs the ranks of one world, each a process, and returns what each came to."""
        transport = "threads" if size == 1 else self.transport
        processes = 1 if transport == "threads" else size
        holder, port = reserved_port()
        with holder:
            started, reports = [], []
            for rank in range(processes):
                own = Path(folder, str(rank))
                own.mkdir(mode=0o700) if self.command else own_folder(own)
                report = Report()
                environment = self.environment | {
                    "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                    "RINGSIDE_JOB_KEY": str(port), "RINGSIDE_CONNECT_TIMEOUT": str(max(2, self.deadline * 4 // 5)), "RINGSIDE_FLIGHT_DIR": f"{own}/flights",
                    "RINGSIDE_JUDGE_TIMEOUT": str(max(1, self.deadline // 2)), "RINGSIDE_JUDGE_RESULT": str(report.theirs.fileno()), "RINGSIDE_JUDGE_TRANSPORT": transport, "RINGSIDE_JUDGE_SEED": str(self.seed)}
                if self.command:
                    environment["RINGSIDE_STUDENT_PROGRAM"] = self.confined_program(own_folder(Path(folder, f"{rank}.program")))
                output = open(f"{folder}/{rank}.output", "wb")
                started.append(subprocess.Popen(
                    [*([] if self.command else CONFINED), *self.limits, self.program, self.exercise["id"], "collect", case["id"], str(own)], pass_fds=[report.theirs.fileno()],
                    env=environment, cwd=own, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True))
                output.close()
                report.start()
                reports.append(report)
            stuck = self.wait(started)
        told = [report.end() for report in reports]
        self.gather_flights(folder, processes)
        process_of = lambda rank: rank if processes > 1 else 0
        return [self.outcome(Path(folder, str(process_of(rank))), rank, started[process_of(rank)], process_of(rank) in stuck,
                             told[process_of(rank)].get(str(rank))) for rank in range(size)]

    def confined_program(self, folder):
        """What starts the student's program in this folder. Who asks it is code of ours alone, so it keeps its rights: the program, which
        has none, can neither look into its memory nor see its environment."""
        limits = LIMITS[:2] + ["--"] if self.limits else []
        return shlex.join(["env", "-i", "-C", str(folder), "PATH=/usr/local/bin:/usr/bin:/bin", *WALLS, *CONFINED, *limits, "sh", "-c", f"exec {self.command}"])

    @staticmethod
    def gather_flights(folder, processes):
        """The flight records of all ranks into one folder."""
        for rank in range(processes):
            for path in sorted(Path(folder, str(rank), "flights").glob("*")):
                if path.is_file() and not path.is_symlink() and path.stat().st_size < 10_000_000:
                    Path(folder, "flights").mkdir(exist_ok=True)
                    shutil.copyfile(path, Path(folder, "flights", path.name))

    def wait(self, started):
        """Waits until all end or the deadline passes. Returns the ranks that had to be stopped."""
        end = time.monotonic() + self.deadline
        stuck = set()
        for rank, process in enumerate(started):
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                stuck.add(rank)
        for rank in stuck:
            started[rank].send_signal(signal.SIGUSR1)  # writes the flight record
        if stuck:
            time.sleep(0.3)
        for process in started:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what a rank has started
            except ProcessLookupError:
                pass
            process.wait()
        return stuck

    def outcome(self, folder, rank, process, stuck, found):
        doing = read_plain(folder / f"{rank}.doing") or "the case"
        if stuck:  # a result that came after the deadline does not count
            return {"hangs": f"did not come back from {doing}"}
        if self.sanitized and process.returncode > 0:  # a race or a leak, which is told at the end
            return {"crashes": f"its process ended with exit status {process.returncode}: see what the sanitizer printed"}
        if found:
            if len(found.get("error", "")) > LONGEST:
                found["error"] = found["error"][:LONGEST] + "..."
            return {**found, "error": f"{found['error']} (in {doing})"} if "error" in found and doing != "the case" else found
        code = process.returncode
        ending = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return {"crashes": f"its process ended in {doing}, without a result ({ending})"}

    def case(self, case, worlds):
        """The verdict of one case: the first world in which it is not right decides."""
        began, run = time.monotonic(), object()  # a hidden case has the id of a public one
        for size in worlds:
            self.doing[run] = case["id"], size
            for _ in range(3):
                with tempfile.TemporaryDirectory(prefix="ringside-") as folder:
                    Path(folder).chmod(0o711)
                    status, says, picture, output = self.judged(case, size, folder)
                if not any(PORT_TAKEN in each for each in says):
                    break
            else:
                status, says, picture = "judge error", ["another program took the port of this world, three times: check again"], ""
            if status != "right":
                break
        self.doing.pop(run, None)
        verdict = {"id": case["id"], "status": status, "score": case["points"] if status == "right" else 0, "max": case["points"],
                   "seconds": round(time.monotonic() - began, 2), "hidden": False}
        for key, value in (("says", says), ("picture", picture), ("output", output)):
            if value and status != "right":
                verdict[key] = value
        if status != "right" and (named := named_mistake(self.exercise, case["id"], says)):
            verdict["named"] = named
        return verdict

    def judged(self, case, size, folder):
        """(status, sentences, picture, output) of a case in one world."""
        ranks = self.world(case, size, folder)
        ranks, single = ranks[:size], ranks[size:]  # the second: what a process without the student's code computes, where the judge does not
        output = "".join(end_of(path, 2000) for path in (Path(folder, f"{rank}.output") for rank in range(size)) if path.exists())[-2000:]
        where = f"world {size}, " if size > 1 else ""
        for kind, status in (("crashes", "crashes"), ("not_written", "not written"), ("hangs", "hangs"), ("error", "wrong")):
            texts = {each[kind]: [rank for rank, other in enumerate(ranks) if other.get(kind) == each[kind]] for each in ranks if kind in each}
            if not texts:
                continue
            if kind == "not_written" or size == 1:
                hit, where = list(texts), ""
            else:
                hit = [f"rank{'s' * (len(who) > 1)} {', '.join(map(str, who))}: {text}" for text, who in texts.items()]
            # Others repeat the first cause, or tell where they heard it.
            says = [where + each for each in hit if "(as rank" not in each] or [where + each for each in hit]
            if kind == "error" and "nothing came to rank" in says[0]:
                status = "hangs"
            if status == "hangs" and Path(folder, "flights").is_dir():
                flights = subprocess.run([self.kit.program, "postmortem", f"{folder}/flights"], capture_output=True, text=True, env=self.environment)
                says += flights.stdout.strip().split("\n")
            return status, says[:1] if kind == "not_written" else says, "", output
        if not all(each["called"] for each in ranks):
            return "judge error", ["the check never reached your code: please report this"], "", output
        if single and "data" not in single[0]:
            return "judge error", [f"the single process: {next(iter(single[0].values()))}"], "", output
        given = {"world": size, "seed": self.seed, "ranks": [each["data"] for each in [*ranks, *single]]}
        judge = subprocess.run([self.kit.program_of(self.exercise), self.exercise["id"], "judge", case["id"]], input=json.dumps(given),
                               capture_output=True, text=True, env=self.environment)
        if judge.returncode != 0:
            return "judge error", [judge.stderr.strip() or f"the judge ended with {judge.returncode}"], "", output
        verdict = json.loads(judge.stdout)
        says = self.sentences(verdict["says"], ranks)
        return "wrong" if says else "right", [where + each for each in says], verdict["picture"], output

    def sentences(self, said, ranks):
        """What the judge has said of what these ranks came to."""
        return said


def check(kit, exercise, folder, build, hidden=False, jobs=None, only=None, compiled=None, **how):
    """The verdict of one exercise: of what is in `folder`, or of the program that `command` starts. `compiled` is what
    compile_student returned, where many checks are made of the same code. Where a folder holds several forms of an answer, the better
    one counts."""
    forms = [] if how.get("command") or how.get("language") or compiled else forms_in(exercise, folder)
    verdicts = [check_one(kit, exercise, folder, build, hidden, jobs, only, compiled, **each, **how) for each in forms or [{}]]
    return max(verdicts, key=lambda each: each["score"])


def forms_in(exercise, folder):
    """The forms of an answer in this folder, as arguments of check_one(): C++ is {}. Whole ones come first, then those that are written in
    part. A starter counts only where nothing else is there."""
    programs = programs_in(exercise, folder)
    forms = [({"programs": programs}, 0.0)] * bool(programs)  # and the part that is not written
    if "python" in exercise and (path := Path(folder, exercise["python"]["file"])).is_file():
        forms.append(({"language": "python"}, path.read_text(errors="replace").count(" is not yet written") / len(exercise["python"]["cut"])))
    forms.append(({}, stubs_in(exercise, folder) / len(exercise["cut"])))
    begun = sorted((each for each in forms if each[1] < 1), key=lambda each: each[1] > 0)
    return [form for form, _ in begun or forms[:1]]


def check_one(kit, exercise, folder, build, hidden, jobs, only, compiled, programs=(), language="c++", **how):
    """The verdict of the C++ code in `folder`, of the program among `programs`, or of the answer in Python."""
    began = time.monotonic()
    cases = []
    result = {"id": exercise["id"], "status": "right", "score": 0, "max": exercise["points"], "seconds": 0, "cases": cases}
    try:
        if programs:
            how["command"] = command_of(programs)
            result["program"] = Path(shlex.split(how["command"])[-1]).name
        if language == "python":
            import torch_form  # which imports this file

            result["language"] = language
            runner = torch_form.runner(kit, exercise, folder, **how)
        else:
            program, warnings = (kit.program_of(exercise), "") if how.get("command") else compiled or compile_student(kit, exercise, folder, build)
            result["compile_seconds"] = round(time.monotonic() - began, 2)
            if "warning:" in warnings:
                result["warnings"] = warnings
            runner = Runner(kit, program, exercise, **how)
        runs = [(case, case["worlds"], False) for case in exercise["cases"] if only in (None, case["id"])]
        if hidden:
            runs += [({**case, "points": 0}, case["hidden"], True) for case in exercise["cases"] if case.get("hidden")]
        with ThreadPoolExecutor(jobs or min(4, os.cpu_count() or 1)) as pool:
            for (case, _, is_hidden), verdict in zip(runs, pool.map(lambda run: runner.case(run[0], run[1]), runs)):
                verdict["hidden"] = is_hidden
                cases.append(verdict)
        settle(exercise, cases)
    except Broken as broken:
        cases.clear()
        for case in exercise["cases"]:
            cases.append({"id": case["id"], "status": broken.status, "score": 0, "max": case["points"], "seconds": 0,
                          "hidden": False, "says": broken.says})
    result["score"] = sum(case["score"] for case in cases)
    result["status"] = min((case["status"] for case in cases), key=STATUSES.index, default="judge error")
    result["seconds"] = round(time.monotonic() - began, 2)
    return result


def settle(exercise, cases):
    """A budget counts only where results are right. Hidden worlds that are not right take the points of their case away, and the
    public case says nothing of it."""
    by_id = {case["id"]: case for case in cases if not case["hidden"]}
    for meta in exercise["cases"]:
        before = by_id.get(meta.get("after"))
        if meta["id"] in by_id and before and before["status"] != "right":
            by_id[meta["id"]].update(status=before["status"], score=0, says=[] if before["status"] == "not written" else [f"not judged before {before['id']} is right"])
            for key in ("picture", "output"):
                by_id[meta["id"]].pop(key, None)
    for case in cases:
        if case["hidden"] and case["status"] != "right":
            case["score"] = -by_id[case["id"]]["score"]


def verdict(kit, student, exercises):
    return {"schema": "ringside/verdict/v1", "student": student, "ringside": kit.settings.get("version", "0.1"), "exercises": exercises}
