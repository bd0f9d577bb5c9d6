"""Commands that are Python: what a command declares, and how its arguments are read.

    COMMAND = Command("synthesize", "Let a solver find an algorithm for a network", run, [
        Option("collective NAME", "all_gather, broadcast, ...", required=True),
        Option("-n,--ranks N", "Number of ranks, 2 to 64 [4]", in_range(2, 64), default=4),
        Flag("--exact", "No round more than needed"),
    ], notes="...")

`run` gets an argparse.Namespace: `--time-limit` is its `time_limit`. It prints to standard output,
and raises UsageError for arguments that are wrong, RingsideError for what failed, or Exit if the
error has been printed. The texts follow those of the C++ commands: the same help, the same
sentences, and the same data, from which the program `ringside` makes its manual and completions.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import textwrap
import time
from dataclasses import dataclass, field
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NoReturn,
    Optional,
    Sequence,
    TextIO,
)

from ringside.library import RingsideError

LEFT = 28  # columns of an option's names in the help


class UsageError(RingsideError):
    """The arguments are wrong: exits with 2 and names --help."""


class Exit(Exception):
    """Ends the command with this exit code: the error has been printed already."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


Check = Callable[[str], Any]  # the value of a text, or ValueError with a sentence


@dataclass(frozen=True)
class Option:
    """`names` is "--mesh AXES", "-n,--ranks N" or, for an argument, "collective NAME". A type that
    ends with ",..." is a list with commas between its values, one with " ..." takes all words that
    follow. The help shows the default where `text` ends with it in brackets. Without a text it is
    not in the help: an old option, for which the command has a sentence."""

    names: str
    text: str
    check: Check = str
    default: Any = None
    required: bool = False
    group: str = "Options"

    @property
    def words(self) -> List[str]:
        """-n and --ranks; none for an argument."""
        return [word for word in self.names.split()[0].split(",") if word.startswith("-")]

    @property
    def value_name(self) -> str:
        return self.names.partition(" ")[2]

    @property
    def key(self) -> str:
        """The attribute of the namespace."""
        longest = max(self.names.split()[0].split(","), key=len)
        return longest.lstrip("-").replace("-", "_")


class Flag(Option):
    """An option without a value: True if it is given."""


class Words(Option):
    """An option with one or more values, or an argument that any number of words are: a list."""


@dataclass(frozen=True)
class Command:
    """`notes` stand below the options in the help: paragraphs, and "Examples:" with a command
    indented by two spaces and what it shows indented by six below."""

    name: str
    description: str
    run: Callable[[argparse.Namespace], None]
    options: Sequence[Option] = ()
    notes: str = ""
    help_option: Option = field(default=Flag("-h,--help", "Print this help message and exit"))


# Checks of values.


def one_of(names: Iterable[str], also_called: Optional[Dict[str, str]] = None) -> Check:
    """Refuses any other value, with the name that was probably meant."""
    known = list(names)

    def check(text: str) -> str:
        if text in known:
            return text
        meant = (also_called or {}).get(text, text)
        raise ValueError(f"expected {', '.join(known)}, got '{text}'{did_you_mean(meant, known)}")

    return check


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a number is expected, not {text}") from None


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number(text)
        raise ValueError(f"a whole number is expected, not {text}") from None


def in_range(least: float, most: float, of: Callable[[str], Any] = whole_number) -> Check:
    """A number from `least` to `most`; `of` is whole_number or number."""

    def check(text: str) -> Any:
        value = number(text)
        if not least <= value <= most:
            raise ValueError(f"a number from {least:.15g} to {most:.15g} is expected, not {text}")
        return of(text)

    return check


def above_zero(text: str) -> float:
    value = number(text)
    if not value > 0:
        raise ValueError(f"a number above 0 is expected, not {text}")
    return value


def at_least_one(thing: str) -> Check:
    def check(text: str) -> int:
        value = whole_number(text)
        if value < 1:
            raise ValueError(f"at least 1 {thing} is needed, not {value}")
        return value

    return check


def edits_between(a: str, b: str) -> int:
    """How many letters to insert, remove, replace or swap with the next to make b of a (Damerau and
    Levenshtein, without two edits of one letter)."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[-1] = min(row[-1], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """ " (did you mean all_reduce?)" for "allreduce" or "all_reudce", or nothing if no name is near:
    more than a third of the letters changed is another word. The rule of base/text/words.hpp."""

    def letters(text: str) -> str:
        return text.replace("-", "").replace("_", "").lower()

    ranked = [(edits_between(letters(word), letters(name)), name) for name in names]
    edits, nearest = min(ranked, key=lambda each: each[0], default=(1, ""))
    return f" (did you mean {nearest}?)" if edits <= len(letters(word)) // 3 else ""


def counted(count: int, thing: str) -> str:
    """ "1 step", "3 steps", "2 micro-batches"."""
    return f"{count} {thing}" + ("" if count == 1 else "es" if thing.endswith("ch") else "s")


# What goes to files and to the terminal.

JSON_OPTION = Option(
    "--json FILE",
    "Write the figures to this file; - writes them to standard "
    "output and the table to standard error",
)


def visible(text: str) -> str:
    """Without control characters of a file, which may move the cursor."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", text)


def text_beside(json_file: Optional[str]) -> TextIO:
    """Where a command prints its text: standard error if the JSON goes to standard output."""
    return sys.stderr if json_file == "-" else sys.stdout


def write_text(path: str, text: str) -> None:
    """Writes a file; "-" is standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RingsideError(f"cannot write {path}: {error.strerror}") from None


# Help, for people and as data.


def described(option: Option) -> Dict[str, Any]:
    """An option as `ringside help --as json` tells it."""
    first, _, rest = option.names.partition(" ")
    names = option.names if option.words else f"[{first}] {rest}".rstrip()
    return {"names": names, "text": option.text, "group": option.group, "words": option.words}


def command_as_data(command: Command) -> Dict[str, Any]:
    return {
        "name": command.name,
        "description": command.description,
        "footer": command.notes.strip("\n"),
        "options": [
            described(each) for each in (command.help_option, *command.options) if each.text
        ],
        "subcommands": [],
    }


def two_columns(left: str, right: str, width: int) -> str:
    """A line of the help: names, and beside them their text; below them, where they are long."""
    lines = [
        line
        for paragraph in right.split("\n")
        for line in textwrap.wrap(paragraph, width - LEFT, break_on_hyphens=False) or [""]
    ]
    first = f"  {left}"
    head = [first] if len(first) >= LEFT else [first.ljust(LEFT) + lines.pop(0)]
    return "\n".join(head + [" " * LEFT + line for line in lines])


def help_text(command: Command, width: int) -> str:
    arguments = [each for each in command.options if not each.words]
    usage = "".join(f" {each.key}" if each.required else f" [{each.key}]" for each in arguments)
    parts = [
        "\n".join(textwrap.wrap(command.description, width)),
        f"Usage: ringside {command.name} [OPTIONS]{usage}",
    ]
    groups: Dict[str, List[str]] = {}
    for each in [*arguments, command.help_option, *(o for o in command.options if o.words)]:
        if not each.text:
            continue
        names = each.names + (" (required)" if each.required else "")
        group = each.group if each.words else "Positionals"
        groups.setdefault(group, []).append(two_columns(names, each.text, width))
    parts += [f"{group}:\n" + "\n".join(lines) for group, lines in groups.items()]
    if command.notes:
        parts.append(command.notes.strip("\n"))
    return "\n\n".join(parts) + "\n"


def terminal_width() -> int:
    return max(60, min(100, shutil.get_terminal_size((80, 24)).columns))


# While a command works.


def with_progress(items: Sequence[Any], words: str) -> Iterator[Any]:
    """The items, one by one. Says on a terminal every few seconds how far it is: `words` has
    places for the items that are done and for all, as "read {} of {} records"."""
    said = began = time.monotonic()
    on_terminal = sys.stderr.isatty()
    for done, item in enumerate(items):
        now = time.monotonic()
        if on_terminal and done and now - said >= 8:
            said, left = now, round((now - began) * (len(items) - done) / done)
            text = f"{words.format(done, len(items))}, about {left // 60}:{left % 60:02} left"
            print(text, file=sys.stderr, flush=True)
        yield item


# Reading the command line.


class Counted(argparse.Action):
    """Stores a value, and counts how often the option is given."""

    def __call__(
        self,
        parser: Any,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        parser.given[option_string] = parser.given.get(option_string, 0) + 1


class Parser(argparse.ArgumentParser):
    """argparse, with the sentences of the C++ commands."""

    def __init__(self, command: Command):
        super().__init__(prog=f"ringside {command.name}", add_help=False, allow_abbrev=False)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # -3B is a value, and a wrong one
        self.command = command
        self.given: Dict[str, int] = {}  # how often each option is
        for option in command.options:
            self._add(option)

    def _add(self, option: Option) -> None:
        if isinstance(option, Flag):
            self.add_argument(*option.words, dest=option.key, action="store_true")
            return
        settings: Dict[str, Any] = {"default": option.default, "type": converter(option)}
        if option.value_name.endswith(",...") and option.default is None:
            settings["action"] = "extend"  # given twice, it has the values of both
        if isinstance(option, Words):
            where = {"dest": option.key} if option.words else {}
            self.add_argument(
                *(option.words or [option.key]),
                **where,
                nargs="+" if option.words else "*",
                type=converter(option),
                action="extend",
            )
        elif option.words:
            self.add_argument(
                *option.words,
                dest=option.key,
                required=option.required,
                **{"action": Counted, **settings},
            )
        elif option.value_name.endswith("..."):
            self.add_argument(option.key, nargs=argparse.REMAINDER, **settings)
        else:
            self.add_argument(option.key, nargs=None if option.required else "?", **settings)

    def error(self, message: str) -> NoReturn:
        message = message.replace("argument ", "", 1)
        names, _, what = message.partition(": ")
        if what.startswith("expected ") and what.endswith("argument"):
            named = [each for each in self.command.options if "/".join(each.words) == names]
            message = f"{names.split('/')[-1]} needs a value: {named[0].value_name}"
        elif what:
            message = f"{names.split('/')[-1]}: {what}"
        if message.startswith("the following arguments are required: "):
            first = message.partition(": ")[2].split(", ")[0].split("/")[-1]
            message = f"{first} is required"
        raise UsageError(message)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        given, strays = self.parse_known_args(list(words))
        for word, times in self.given.items():
            if times > 1:
                raise UsageError(f"{word} takes one value, not {times}")
        if strays:
            raise UsageError(self._about_stray(strays))
        return given

    def _about_stray(self, strays: Sequence[str]) -> str:
        option = next((each for each in strays if len(each) > 1 and each.startswith("-")), None)
        if option is None:
            return f"'{strays[0]}' is one argument too many"
        known = [word for each in self.command.options for word in each.words if len(word) > 2]
        return f"there is no option {option}{did_you_mean(option, known)}"


def converter(option: Option) -> Callable[[str], Any]:
    """The type that argparse calls: a check whose sentence it prints, or one for each value."""

    def convert(text: str) -> Any:
        try:
            if option.value_name.endswith(",..."):
                return [option.check(each) for each in text.split(",")]
            return option.check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def run_command(command: Command, words: Sequence[str]) -> int:
    """Runs a command with the words that follow its name. Returns the exit code."""
    own = words[: words.index("--")] if "--" in words else words
    try:
        if "-h" in own or "--help" in own:
            print(help_text(command, terminal_width()), end="")
        else:
            command.run(Parser(command).read(words))
        sys.stdout.flush()
        return 0
    except Exit as ended:
        return ended.code
    except UsageError as error:
        print(f"ringside: {error}\nTry: ringside {command.name} --help", file=sys.stderr)
        return 2
    except RingsideError as error:
        print(f"ringside: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # Ctrl-C ends it as it ends a program in C++
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        return 130
    except BrokenPipeError:  # as after `| head`: ends silently
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        place = f"use {error.filename}" if error.filename else "write to standard output"
        print(f"ringside: cannot {place}: {error.strerror}", file=sys.stderr)
        return 1
