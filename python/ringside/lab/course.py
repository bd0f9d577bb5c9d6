"""`ringside course FOLDER`: the exercises, which the wheel ringside_course brings."""

import argparse
import importlib.util
import platform
import shutil
from pathlib import Path
from typing import Iterator

from ringside.command_line import Command, Option
from ringside.library import RingsideError

PACKAGE = "ringside_course"
GLIBC = (2, 35)
NEEDS = "glibc 2.35 and GCC 12 (Ubuntu 22.04 with g++-12, Debian 12), or newer"


def installed_course() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is not None and found.submodule_search_locations:
        return Path(next(iter(found.submodule_search_locations)), "course")
    library, version = platform.libc_ver()
    wheel = f"the exercises are a wheel of their own, {PACKAGE}, which needs {NEEDS}"
    if library == "glibc" and tuple(map(int, version.split(".")[:2])) < GLIBC:
        raise RingsideError(
            f"{wheel}; this machine has glibc {version}: use a newer system, or a container"
        )
    raise RingsideError(
        f"{wheel}. It is not installed: pip install {PACKAGE}-...whl, of the release that this "
        "program is from"
    )


def missing() -> Iterator[str]:
    """What the first exercise will need and this machine does not have."""
    for program, package, why in (("c++", "g++", "compiles"), ("gdb", "gdb", "debugs")):
        if not shutil.which(program):
            yield f"{program}, which {why} your code, is not installed: sudo apt-get install {package}"


def run(args: argparse.Namespace) -> None:
    course, folder = installed_course(), Path(args.FOLDER)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RingsideError(f"{folder} is not empty: name a new folder")
    try:
        # pip compiles every Python file that it installs; MANIFEST does not name the results.
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(course, folder, ignore=ignored, dirs_exist_ok=True)
    except OSError as error:
        raise RingsideError(f"cannot write {folder}: {error.strerror or error}") from error
    exercises = sum((each / "handout.en.md").is_file() for each in folder.glob("[0-9]*"))
    print(f"wrote {exercises} exercises to {folder}. Next: cd {folder} && ./exercise")
    for sentence in missing():
        print(sentence)


COMMAND = Command(
    "course",
    "Write the exercises of the course into a new folder",
    run,
    [Option("FOLDER", "A new folder", required=True)],
    notes=f"""\
The exercises are a wheel of their own, {PACKAGE}. It needs
{NEEDS}.
With a build of Ringside, `exercises/ringside-exercises export` makes a course.

Examples:
  ringside course my-course
      handouts, starters and judges of all exercises
  cd my-course && ./exercise
      checks what you write, each time you save it
""",
)
