"""The commands of `ringside` from Python: each is a function.

    ringside.step("ring_all_reduce", n=4)         ringside step ring_all_reduce -n 4
    ringside.account(model="tiny", mesh="dp=2")   ringside account --model tiny --mesh dp=2

Arguments become words of the command line, and the command checks them. So this file knows no
option, and `help(ringside.step)` is the command's own help. The commands that are Python run in a
process of this interpreter, and need no program.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from ringside.library import BUILD_OF_TREE, RingsideError

PACKAGE = Path(__file__).resolve().parent


class CommandError(RingsideError):
    """The program's error, after the last paragraph that it printed. `result` has all of it."""

    def __init__(self, text, result):
        super().__init__(text)
        self.result = result


def find_program():
    """RINGSIDE_PROGRAM, the one of this library's build or installation, the one in the build of
    the tree whose source this is, or the one on PATH."""
    named = os.environ.get("RINGSIDE_PROGRAM")
    if named:
        return named
    package = Path(os.environ.get("RINGSIDE_LIBRARY") or __file__).resolve()
    # PREFIX/lib/TRIPLET, or build/release/python/ringside
    for folder in [*list(package.parents)[:3], BUILD_OF_TREE]:
        if os.access(folder / "bin/ringside", os.X_OK):
            return str(folder / "bin/ringside")
    found = shutil.which("ringside")
    if found is None:
        raise RingsideError(
            f"the program ringside is neither in a folder bin beside {package.parent} nor on PATH: "
            "build it (cmake --build --preset release --target ringside), and add its folder to "
            "PATH or name the program in RINGSIDE_PROGRAM"
        )
    return found


def declared(words):
    """The command_line.Command that these words run, if it is one of those that are Python."""
    from ringside.__main__ import COMMANDS, command_named  # which imports this file

    name = next((word for word in words if word != "help"), None)
    return command_named(name) if name in COMMANDS else None


def run(words):
    """Runs a command, and waits for its end."""
    if declared(words):
        arguments = [sys.executable, str(PACKAGE)]  # -m would look in the current folder first
    else:
        arguments = [find_program()]
    try:
        return subprocess.run(
            [*arguments, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise RingsideError(
            f"cannot run {arguments[0]}: {error.strerror}. Name the program "
            "ringside in RINGSIDE_PROGRAM"
        ) from None


@cache
def options_of(command):
    """The options of a command, as the completions of a shell learn them."""
    if declared(command):
        return {word for option in declared(command).options for word in option.words}
    return {
        line.split("\t")[0]
        for line in run(["help", "--as", "words", "--", *command]).stdout.splitlines()
    }


def text_of(value):
    """A value on the command line: [2, 4] is 2,4; {"dp": 2, "tp": 4} is dp=2,tp=4."""
    if isinstance(value, dict):
        return ",".join(f"{key}={text_of(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple, range)):
        return ",".join(map(text_of, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def words_of(options):
    """n=4 is -n 4, max_size=8 is --max-size 8, and a flag is True. None and False are left out."""
    for name, value in options.items():
        if value is None or value is False:
            continue
        yield f"-{name}" if len(name) == 1 else "--" + name.replace("_", "-")
        if value is not True:
            yield text_of(value)


def in_frame(page):
    """A page within another. A page is full of ", so the attribute stands in '."""
    text = page.replace("&", "&amp;").replace("'", "&#39;")
    return f"<iframe srcdoc='{text}' width='100%' height='640'></iframe>"


class Result:
    """What a command printed: str() is its text, and `data` what it writes with --json, or None.
    A notebook shows the page that the command makes with --html, or its --svg."""

    def __init__(self, command, arguments, options):
        self.command = (command, *map(text_of, arguments))
        self.options = options
        self.data = None
        has = options_of(self.command)
        with tempfile.TemporaryDirectory() as folder:
            figures = options.get("json", f"{folder}/figures.json" if "--json" in has else None)
            done = self._run(json=figures)
            self.text = done.stdout.strip("\n")
            if figures and os.path.isfile(figures):
                self.data = json.loads(Path(figures).read_text())
        if done.returncode != 0:
            said = re.sub(r"^ringside: ", "", done.stderr, flags=re.MULTILINE).strip()
            before = self.text.split("\n\n")[-1]  # the findings that the sentence is about
            raise CommandError("\n".join(filter(None, (before, said))), self)

    def _run(self, **more):
        return run([*self.command, *words_of({**self.options, **more})])

    def __str__(self):
        return self.text

    __repr__ = __str__

    def _repr_html_(self):
        # Only a command that draws pages is run again: one that measures would measure anew.
        kinds = ["html", "svg"] if "--html" in options_of(self.command) else []
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "page." + kind)
                if self._run(json=None, **{kind: file}).returncode == 0 and file.exists():
                    page = file.read_text()
                    return page if kind == "svg" else in_frame(page)
        return f"<pre>{html.escape(self.text)}</pre>"


class Command:
    """A command. help() and a notebook's ? show its help."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *arguments, **options):
        return Result(self.name, arguments, options)

    @property
    def __doc__(self):
        try:
            return run(["help", self.name]).stdout
        except RingsideError as error:  # help(ringside) asks for it, too
            return str(error)

    def __repr__(self):
        return f"<ringside {self.name}>"
