"""`ringside synthesize` without z3: networks, questions without sense, and what counting proves."""

import io
import json
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import ringside
from ringside.__main__ import main
from ringside.lab.lockstep import Message
from ringside.lab.network import network_named
from ringside.lab.synthesize import Hop, messages_of
from ringside.library import RingsideError


def run(*words):
    """The exit code, standard output and standard error of `ringside synthesize`."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["synthesize", *words])
    return code, out.getvalue(), err.getvalue()


def refusal(*words):
    code, out, err = run(*words)
    assert code == 1 and out == "", (code, out, err)
    return err.replace("ringside: ", "", 1).strip()


def error_of(name, size=None):
    try:
        network_named(name, size)
    except RingsideError as error:
        return str(error)
    raise AssertionError("expected a RingsideError")


def test_networks_have_their_links():
    assert sorted(network_named("ring").links) == [
        (0, 1),
        (0, 3),
        (1, 0),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 0),
        (3, 2),
    ]
    assert sorted(network_named("ring", 2).links) == [(0, 1), (1, 0)]
    assert sorted(network_named("line", 3).links) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert sorted(network_named("star", 3).links) == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert len(network_named("full", 5).links) == 20
    dgx1 = network_named("dgx1")
    assert dgx1.size == 8 and len(dgx1.links) == 32
    for node in range(8):
        assert sum(width for link, width in dgx1.links.items() if link[0] == node) == 6
        assert sum(width for link, width in dgx1.links.items() if link[1] == node) == 6
    backwards = network_named("line", 3).backwards()
    assert backwards.links == network_named("line", 3).links


def test_a_network_that_is_not_there_has_a_sentence():
    assert error_of("dgx1", 4) == "the network dgx1 has 8 nodes, not 4: leave out -n"
    assert error_of("torus", 4) == (
        "there is no network 'torus': choose ring, line, star, full, dgx1 or a JSON file"
    )


def test_a_network_of_a_file():
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "own.json"))

        def written(text):
            Path(file).write_text(text if isinstance(text, str) else json.dumps(text))
            return file

        network = network_named(written({"ranks": 3, "links": [[0, 1], [1, 2, 2], [2, 0]]}))
        assert (network.name, network.size) == (file, 3)
        assert network.links == {(0, 1): 1, (1, 2): 2, (2, 0): 1}
        assert network.backwards().links == {(1, 0): 1, (2, 1): 2, (0, 2): 1}
        twice = network_named(written({"ranks": 2, "links": [[0, 1], [0, 1, 2]]}))
        assert twice.links == {(0, 1): 3}
        assert error_of(file, 3) == f"the network {file} has 2 nodes, not 3: leave out -n"

        cannot = f"the network {file} cannot be used: "
        form = cannot + 'expected {"ranks": N, "links": [[from, to], [from, to, width], ...]}'
        for text in [], {"links": []}, {"ranks": "3", "links": []}, {"ranks": 3, "links": 4}:
            assert error_of(written(text)) == form
        for link in [0], [0, 1, 2, 3], 5, [0, 1.5], [0, True]:
            assert error_of(written({"ranks": 3, "links": [link]})) == (
                cannot
                + "a link is [from, to] or [from, to, width], not "
                + json.dumps(link, separators=(",", ":"))
            )
        assert error_of(written('{"ranks": 3, "links": []}\0')).startswith(cannot + "Extra data: ")
        for link in [0, 3], [-1, 0], [1, 1], [0, 1, 0]:
            assert error_of(written({"ranks": 3, "links": [link]})) == (
                cannot
                + "the link "
                + json.dumps(link, separators=(",", ":"))
                + " needs two nodes of 0 to 2 and a width of at least 1"
            )
        assert error_of(written('{"ranks": 3')).startswith(cannot + "Expecting ")
        assert error_of(written("[" * 100000)).startswith(cannot)
        for ranks in 1, 65:
            assert error_of(written({"ranks": ranks, "links": []})) == (
                f"a network has 2 to 64 nodes, not {ranks}"
            )


def test_a_question_without_sense_has_a_sentence():
    choose = "choose all_gather, broadcast, gather, scatter, reduce_scatter, reduce or all_reduce"
    assert refusal("all_to_all", "--steps", "2") == f"there is no synthesis of all_to_all: {choose}"
    assert refusal("all_gathr", "--steps", "2") == (
        f"there is no synthesis of all_gathr (did you mean all_gather?): {choose}"
    )
    assert refusal("all_reduce", "--steps", "3", "--rounds", "4") == (
        "an all_reduce is a reduce_scatter and an all_gather: expected an even number of steps and "
        "of rounds, not 3 and 4"
    )
    assert refusal("all_gather", "--steps", "2", "--rounds", "1") == (
        "expected at least 1 chunk and 1 step, and as many rounds as steps: 1 chunks, 2 steps, 1 "
        "rounds"
    )
    assert refusal("broadcast", "--steps", "2", "--root", "4") == "the root must be one of 0 to 3"
    assert run("all_gather", "--steps", "2", "--root", "1") == (
        2,
        "",
        "ringside: all_gather has no root: leave out --root\nTry: ringside synthesize --help\n",
    )


def test_counting_proves_that_there_is_none():
    code, out, err = run("all_gather", "--topology", "dgx1", "--steps", "1")
    assert (code, err) == (1, "")
    assert out == (
        "There is no all_gather with 1 chunk for each rank, 1 step and 1 round on dgx1 (8 ranks).\n"
        "Counting proves it: rank 0 must receive 7 chunks, and its links carry 6 (0.0 s).\n"
    )
    code, out, err = run(
        "reduce_scatter",
        "--topology",
        "dgx1",
        "--chunks",
        "6",
        "--steps",
        "3",
        "--rounds",
        "6",
        "--json",
        "-",
    )
    assert (code, out) == (1, "")
    assert "rank 0 must receive 42 chunks, and its links carry 36 (" in err


def test_chunks_side_by_side_that_travel_together_are_one_message():
    hops = [Hop(1, 0, 0, 1), Hop(1, 1, 0, 1), Hop(1, 1, 0, 2), Hop(1, 3, 0, 1), Hop(2, 4, 0, 1)]
    assert messages_of(hops, "add") == [
        Message(0, 1, 0, 2, "add"),
        Message(0, 2, 1, 1, "add"),
        Message(0, 1, 3, 1, "add"),
        Message(0, 1, 4, 1, "add"),
    ]


def test_a_missing_package_is_named():
    there = sys.modules.get("z3")
    sys.modules["z3"] = None  # import z3 fails
    try:
        assert refusal("all_gather", "--steps", "2") == (
            f"`ringside synthesize` needs the Python package z3, which {sys.executable} does not "
            "have: install it (pip install z3-solver, or apt-get install python3-z3)"
        )
    finally:
        del sys.modules["z3"]
        if there:
            sys.modules["z3"] = there


def test_the_program_runs_it():
    try:
        ringside.synthesize("all_gather", topology="dgx1", steps=1)
        raise AssertionError("expected a CommandError")
    except ringside.CommandError as error:
        assert "Counting proves it" in str(error), error
