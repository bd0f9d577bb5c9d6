"""Synthesis with z3: the rows of SCCL's table that the paper names, and small networks where the
answer can be counted by hand.
"""

import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import ringside
from ringside.__main__ import main
from ringside.lab.lockstep import faults_of
from ringside.lab.network import network_named
from ringside.lab.synthesize import NoAlgorithm, OutOfTime, Question, synthesize


def found(collective, name, size, chunks, steps, rounds, root=0):
    """The algorithm, proved, over links of the network only, and within the rounds."""
    network = network_named(name, size)
    question = Question(collective, root, chunks, steps, rounds, time_limit=200)
    algorithm, rounds_of_steps = synthesize(question, network)
    assert faults_of(algorithm) == []
    assert len(rounds_of_steps) == steps and sum(rounds_of_steps) <= rounds
    for rank, schedule in enumerate(algorithm["schedules"]):
        for step in schedule["steps"]:
            assert "send" not in step or (rank, step["send"]["to"]) in network.links
    return algorithm, rounds_of_steps


def none(*question, **more):
    """Why there is none."""
    try:
        found(*question, **more)
    except NoAlgorithm as why:
        return str(why)
    raise AssertionError("expected that there is none")


def test_rows_of_sccl_on_a_dgx1_with_the_fewest_steps_and_the_fewest_bytes():
    # Not all nodes are adjacent.
    assert none("all_gather", "dgx1", 8, 1, 1, 2) == "Z3 proved it"
    found("all_gather", "dgx1", 8, 1, 2, 2)
    found("all_gather", "dgx1", 8, 6, 3, 7)
    assert none("all_gather", "dgx1", 8, 6, 3, 6) == (
        "Counting proves it: rank 0 must receive 42 chunks, and its links carry 36"
    )


def test_rows_of_sccl_on_a_ring_of_four():
    found("all_gather", "ring", 4, 1, 2, 2)
    best, rounds = found("all_gather", "ring", 4, 2, 2, 3)
    assert sorted(rounds) == [1, 2] and best["schedules"][0]["chunks"] == 8
    assert none("all_gather", "ring", 4, 2, 2, 2).startswith("Counting")
    assert none("all_gather", "ring", 4, 1, 1, 2) == "Z3 proved it"


def test_every_collective_that_has_an_encoding_is_found():
    for size in (2, 3, 4):
        for root in (0, size - 1):
            for collective in ("broadcast", "reduce", "gather", "scatter"):
                found(collective, "line", size, 1, size - 1, 2 * size, root)
        found("reduce_scatter", "full", size, 2, 1, 2)
        found("all_reduce", "full", size, 1, 2, 2)
        found("all_reduce", "star", size, 1, 4, 2 * size)
    found("reduce_scatter", "dgx1", 8, 1, 3, 9)  # with more rounds than it needs
    assert none("broadcast", "line", 4, 1, 2, 2) == "Z3 proved it"
    found("broadcast", "line", 4, 1, 2, 2, root=1)


def test_links_of_one_direction_are_turned_round_for_a_sum():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "circle.json")
        file.write_text(json.dumps({"ranks": 3, "links": [[0, 1], [1, 2, 2], [2, 0]]}))
        for collective in "all_gather", "reduce_scatter":
            found(collective, str(file), None, 1, 2, 2)
        found("all_reduce", str(file), None, 1, 4, 4)
        assert none("all_gather", str(file), None, 1, 1, 2) == "Z3 proved it"


def test_a_time_limit_says_that_nobody_knows():
    try:
        synthesize(Question("all_gather", 0, 11, 3, 13, 0.05), network_named("dgx1"))
        raise AssertionError("expected no answer")
    except OutOfTime:
        pass
    err = io.StringIO()
    with redirect_stderr(err):
        assert (
            main(
                [
                    "synthesize",
                    "all_gather",
                    "--topology",
                    "dgx1",
                    "--chunks",
                    "11",
                    "--steps",
                    "3",
                    "--rounds",
                    "13",
                    "--time-limit",
                    "0.05",
                ]
            )
            == 1
        )
    assert err.getvalue() == (
        "ringside: Z3 has no answer after 0.05 s, so nobody knows whether there is this algorithm: "
        "all_gather with 11 chunks for each rank, 3 steps and 13 rounds on dgx1 (8 ranks); give it "
        "more --time-limit\n"
    )


def test_what_is_found_is_printed_and_is_a_file_that_the_program_reads():
    words = [
        "synthesize",
        "all_gather",
        "--topology",
        "ring",
        "-n",
        "4",
        "--chunks",
        "2",
        "--steps",
        "2",
        "--rounds",
        "3",
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        out = io.StringIO()
        with redirect_stdout(out):
            assert main([*words, "--json", str(file)]) == 0
        lines = out.getvalue().splitlines()
        assert lines[0] == (
            "Found: all_gather with 2 chunks for each rank, 2 steps and 3 rounds on ring (4 ranks)."
        )
        assert lines[1].startswith("Z3 took ")
        assert lines[1].split(" s. ")[1] in (
            "Rounds of each step: 1, 2.",
            "Rounds of each step: 2, 1.",
        )
        told = json.loads(file.read_text())
        assert list(told) == [
            "collective",
            "root",
            "network",
            "chunks_per_block",
            "steps",
            "rounds",
            "schedules",
        ]
        assert [told[key] for key in list(told)[:-1]] == ["all_gather", None, "ring", 2, 2, 3]
        steps = len(told["schedules"][0]["steps"])
        assert lines[2:] == [
            "As a schedule, where a rank sends and receives one message at a time: 8 chunks in "
            f"{steps} steps.",
            "Proved: rank c's chunk c is on every rank.",
        ]
        assert "4      -  proved" in str(ringside.prove(algorithm=file))
        measured = ringside.bench(
            "all_gather", n=4, backends="shm", algorithm=file, bytes="1KB", repeat=3
        )
        assert [row["wrong"] for row in measured.data] == [0]

        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            assert main([*words, "--json", "-"]) == 0
        assert json.loads(out.getvalue())["rounds"] == 3 and err.getvalue().startswith("Found: ")


def test_the_root_stands_in_the_file():
    algorithm, _ = found("reduce", "star", 3, 1, 1, 1, root=0)
    assert algorithm["root"] == 0
    algorithm, _ = found("broadcast", "line", 3, 2, 2, 4, root=2)
    assert algorithm["root"] == 2 and algorithm["schedules"][0]["chunks"] == 2
