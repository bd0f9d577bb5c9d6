"""`python3 -m ringside COMMAND ...`: the commands that are Python, without a build. A command of
the program `ringside` is handed to it, where it is built."""

import importlib
import json
import os
import sys
from typing import Dict, List, Sequence

if not __package__:  # `python3 FOLDER`, as programs run it: its files are a package, not modules
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from ringside import command_line
from ringside.library import RingsideError
from ringside.program import find_program

# The commands that are Python, in the order of the help, and the module that declares each.
COMMANDS: Dict[str, str] = {
    "synthesize": "synthesize",
    "msccl": "msccl",
    "compare": "compare",
    "timeline": "timeline",
    "nccl": "nccl",
    "tokenize": "tokenize",
    "account": "account",
    "simulate": "simulate",
    "watch": "watch",
    "postmortem": "postmortem",
    "course": "course",
}


BATCH = "RINGSIDE_TRAIN_BATCH"  # with --against, where the options of `train` are right


def command_named(name: str) -> command_line.Command:
    return importlib.import_module(f"ringside.lab.{COMMANDS[name]}").COMMAND


def commands_as_json() -> str:
    """What the program `ringside` asks for, to make its manual and completions complete."""
    commands = [command_line.command_as_data(command_named(name)) for name in COMMANDS]
    return json.dumps(
        {
            "name": "ringside",
            "description": "",
            "footer": "",
            "options": [],
            "subcommands": commands,
        },
        indent=1,
    )


def words_of_options(name: str) -> str:
    """What a shell completes after a command."""
    options = command_line.command_as_data(command_named(name))["options"]
    lines = [f"{word}\t{option['text']}" for option in options for word in option["words"]]
    return "".join(line.replace("\n", " ") + "\n" for line in lines)


def list_of_commands(width: int) -> str:
    lines = [
        command_line.two_columns(name, command_named(name).description, width) for name in COMMANDS
    ]
    return (
        "Usage: python3 -m ringside COMMAND ...\n\nCommands that need no build:\n"
        + "\n".join(lines)
        + "\n\nHelp for a command: python3 -m ringside COMMAND --help\n"
        "Any other command of Ringside runs in the program `ringside`, where it is built.\n"
    )


def become_program(words: Sequence[str]) -> int:
    """Replaces this process by the program `ringside`, which has every other command."""
    try:
        program = find_program()
        os.execv(program, [program, *words])
    except RingsideError as error:
        known = command_line.did_you_mean(words[0], COMMANDS)
        print(
            f"ringside: '{words[0]}' is no command that runs without a build{known}: {error}",
            file=sys.stderr,
        )
    except OSError as error:
        print(f"ringside: cannot run {program}: {error.strerror}", file=sys.stderr)
    return 1


def main(words: List[str]) -> int:
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        print(list_of_commands(command_line.terminal_width()), end="")
        return 0
    if words == ["help", "--as", "json"]:
        print(commands_as_json())
        return 0
    if words == ["draw"]:  # what --svg of the program asks for
        from ringside.lab.svg import svg_of

        print(svg_of(json.load(sys.stdin)), end="")
        return 0
    named = [word for word in words[1:] if word in COMMANDS] if words[0] == "help" else []
    if named and words[1:3] == ["--as", "words"]:
        print(words_of_options(named[0]), end="")
        return 0
    if named:
        words = [named[0], "--help"]
    if words[0] == "generate":
        from ringside.lab.generate import generate

        return generate(words[1:])
    if words[0] == "train" and BATCH in os.environ:  # the program calls, for --against
        from ringside.lab.against import train

        return train(words[1:], os.environ.pop(BATCH))
    if words[0] not in COMMANDS:
        return become_program(words)
    return command_line.run_command(command_named(words[0]), words[1:])


def script() -> int:
    """The `ringside` that pip puts on PATH, of a wheel: its package has the program (tools/build-wheel)."""
    # The program starts python3 for the commands that are Python: let it be the one with the package.
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    os.environ["PATH"] = os.pathsep.join(folders)
    words = sys.argv[1:]
    return main(words) if words and words[0] in COMMANDS else become_program(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
