"""The commands that are Python: their arguments, their help, and what goes wrong, without a build."""

import io
import json
import sys
import time
from contextlib import redirect_stderr, redirect_stdout

from ringside.__main__ import COMMANDS, commands_as_json, main
from ringside.command_line import (
    Command,
    Exit,
    Flag,
    Option,
    UsageError,
    Words,
    at_least_one,
    described,
    help_text,
    in_range,
    number,
    one_of,
    run_command,
    with_progress,
)
from ringside.library import RingsideError

seen = []
DRAW = Command(
    "draw",
    "Draw an algorithm, step by step",
    seen.append,
    [
        Option("algorithm NAME", "ring or tree", one_of(["ring", "tree"]), required=True),
        Option("-n,--ranks N", "Number of ranks, 1 to 64 [4]", in_range(1, 64), default=4),
        Option("--time-limit SECONDS", "Give up after so long [300]", in_range(0, 1e9, number)),
        Option("--bytes SIZE,...", "Sizes", at_least_one("byte"), group="Sizes"),
        Flag("--list", "A table instead of the picture"),
    ],
    notes="A picture.\n\nExamples:\n  ringside draw ring\n      the ring\n",
)


def run(*words, command=DRAW):
    """The exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_command(command, words)
    return code, out.getvalue(), err.getvalue()


def sentence(*words):
    code, out, err = run(*words)
    assert code == 2 and out == "" and err.endswith("\nTry: ringside draw --help\n"), (code, err)
    return err.splitlines()[0].replace("ringside: ", "", 1)


def test_arguments_reach_the_command():
    del seen[:]
    assert run("ring", "--bytes", "4,8", "-n", "8", "--time-limit=2.5", "--list") == (0, "", "")
    args = seen[0]
    assert args.algorithm == "ring" and args.ranks == 8 and args.time_limit == 2.5
    assert args.bytes == [4, 8] and args.list is True
    assert run("tree")[0] == 0 and seen[1].ranks == 4 and seen[1].list is False


def test_lists_of_words():
    takes = Command(
        "take", "Take words", seen.append, [Words("text TEXT", "Any"), Words("--data PATH", "Some")]
    )
    for words, text, data in (
        ((), [], None),
        (("a", "b"), ["a", "b"], None),
        (("a", "--data", "x", "y", "--data", "z"), ["a"], ["x", "y", "z"]),
    ):
        del seen[:]
        assert run(*words, command=takes) == (0, "", "")
        assert (seen[0].text, seen[0].data) == (text, data)
    assert "--data needs a value: PATH" in run("--data", command=takes)[2]


def test_wrong_arguments_are_sentences():
    assert sentence("rinq") == "algorithm: expected ring, tree, got 'rinq' (did you mean ring?)"
    assert sentence() == "algorithm is required"
    assert sentence("ring", "-n", "65") == "--ranks: a number from 1 to 64 is expected, not 65"
    assert sentence("ring", "-n", "two") == "--ranks: a number is expected, not two"
    assert sentence("ring", "-n", "1.5") == "--ranks: a whole number is expected, not 1.5"
    assert sentence("ring", "--bytes", "4,0") == "--bytes: at least 1 byte is needed, not 0"
    assert sentence("ring", "--time-limit") == "--time-limit needs a value: SECONDS"
    assert sentence("ring", "--rank", "2") == "there is no option --rank (did you mean --ranks?)"
    assert sentence("ring", "more") == "'more' is one argument too many"


def test_errors_have_an_exit_code():
    def command(error):
        def fail(_):
            raise error

        return Command("fail", "Fails", fail)

    assert run(command=command(RingsideError("no file x"))) == (1, "", "ringside: no file x\n")
    assert run(command=command(Exit(3))) == (3, "", "")
    assert run(command=command(UsageError("no"))) == (
        2,
        "",
        "ringside: no\nTry: ringside fail --help\n",
    )


def test_help_has_all_options():
    code, out, err = run("--help")
    assert code == 0 and err == ""
    assert out == help_text(DRAW, 80)
    assert out.startswith(
        "Draw an algorithm, step by step\n\n"
        "Usage: ringside draw [OPTIONS] algorithm\n\nPositionals:\n"
        "  algorithm NAME (required) ring or tree\n\nOptions:\n"
    )
    assert "\n  -n,--ranks N              Number of ranks, 1 to 64 [4]\n" in out
    assert "\nSizes:\n  --bytes SIZE,...          Sizes\n" in out
    assert out.endswith("\nExamples:\n  ringside draw ring\n      the ring\n")
    assert all(len(line) <= 60 for line in help_text(DRAW, 60).splitlines())


def test_options_are_data():
    assert described(DRAW.options[0]) == {
        "names": "[algorithm] NAME",
        "text": "ring or tree",
        "group": "Options",
        "words": [],
    }
    assert described(Option("TRACE", "A file"))["names"] == "[TRACE]"
    assert described(DRAW.options[1]) == {
        "names": "-n,--ranks N",
        "text": "Number of ranks, 1 to 64 [4]",
        "group": "Options",
        "words": ["-n", "--ranks"],
    }


def test_every_command_tells_itself():
    told = json.loads(commands_as_json())["subcommands"]
    assert [each["name"] for each in told] == list(COMMANDS)
    for each in told:
        assert each["description"] and each["options"][0]["words"] == ["-h", "--help"]
        assert not each["description"].endswith(".")
        out = io.StringIO()
        with redirect_stdout(out):
            assert main(["help", each["name"]]) == 0
        assert out.getvalue().startswith(each["description"][:50])


def test_completions_learn_the_options_of_a_command():
    for name in COMMANDS:  # with and without an argument after it
        for words in [name], [name, "something"]:
            out = io.StringIO()
            with redirect_stdout(out):
                assert main(["help", "--as", "words", "--", *words]) == 0
            assert "--help\tPrint this help message and exit" in out.getvalue().splitlines()
            with redirect_stdout(io.StringIO()):
                assert main(["help", *words]) == 0  # here, and not by the program


def test_work_that_takes_long_says_how_far_it_is(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    def worked(seconds):
        said = []
        for item in with_progress(range(8), "read {} of {} records"):
            now[0] += seconds
            said.append(capsys.readouterr().err)
            assert item == len(said) - 1
        return said

    assert worked(1) == [""] * 8
    assert worked(30)[:2] == ["", "read 1 of 8 records, about 3:30 left\n"]
    assert worked(6) == [
        *("", ""),
        "read 2 of 8 records, about 0:36 left\n",
        "",
        "read 4 of 8 records, about 0:24 left\n",
        "",
        "read 6 of 8 records, about 0:12 left\n",
        "",
    ]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert worked(30) == [""] * 8
