"""The program and algorithms of one's own from Python, without torch."""

import json
import os
import pydoc
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import ringside
from notebook import run_notebook
from pages import drawn
from ringside import receive, send
from ringside.program import find_program, options_of, words_of

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = ROOT / "python/ring_to_ddp.ipynb"


def error_of(call):
    try:
        call()
    except ringside.RingsideError as error:
        return error
    raise AssertionError("expected a RingsideError")


def test_arguments_become_words():
    options = {
        "n": [2, 4],
        "max_size": 8,
        "mesh": {"dp": 2, "tp": 4},
        "slow": {5: 1.3},
        "bounds": True,
        "fit": False,
        "root": None,
        "html": Path("a/b.html"),
        "seed": 0,
    }
    assert list(words_of(options)) == [
        "-n",
        "2,4",
        "--max-size",
        "8",
        "--mesh",
        "dp=2,tp=4",
        "--slow",
        "5=1.3",
        "--bounds",
        "--html",
        "a/b.html",
        "--seed",
        "0",
    ]


def test_every_command_is_a_function():
    of_program = {word for word in options_of(()) if not word.startswith("-")}
    assert of_program - set(ringside.COMMANDS) == {"eval", "launch", "watch", "status", "help"}
    assert set(ringside.COMMANDS) <= of_program


def test_a_result_has_text_figures_and_a_page():
    ring = ringside.step("ring_all_reduce", n=3)
    assert ring.data["algorithm"] == "ring" and len(ring.data["steps"]) == 4
    assert str(ring).startswith("ring all_reduce on 3 ranks: 4 steps")
    assert repr(ring) == str(ring)
    page = ring._repr_html_()
    assert page.startswith("<iframe srcdoc='<!DOCTYPE html>") and page.endswith("</iframe>")
    assert page.count("'") == 6  # those of three attributes: none ends the page early
    assert '"algorithm":"ring"' in page.replace(" ", "")

    # A subcommand has other options; a command without a page is shown as text.
    pipeline = ringside.step("pipeline", "gpipe", n=2, micro_batches=3)
    assert pipeline.data["schedule"] == "gpipe" and pipeline.data["ranks"] == 2
    assert pipeline._repr_html_().startswith("<iframe")
    proof = ringside.prove("all_reduce", algorithm="ring", max_size=4)
    assert proof.data[0]["holds"] and proof.data[0]["cases"] == 4
    assert proof._repr_html_().startswith("<pre>  algorithm ")
    account = ringside.account(model="llama3-8b", mesh={"tp": 8})
    assert account.data["devices"] == 8 and "Memory of a rank" in str(account)
    assert ringside.account(list=True).data is None


def test_a_timeline_is_that_of_a_trace():
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        step = ringside.simulate(
            model="tiny", topology="laptop", mesh="pp=2", micro_batches=4, trace=trace
        )
        timeline = ringside.timeline(trace)
        assert [row["rank"] for row in timeline.data] == [0, 1]
        for row in timeline.data:  # each part of a step is either computing or waiting
            whole = row["computing_seconds"] + row["waiting_seconds"]
            assert abs(whole / step.data["step_seconds"] - 1) < 0.05, (row, step.data)
        assert "rank 1 (pp=1)" in timeline._repr_html_()


def test_errors_are_the_sentences_of_the_program():
    error = error_of(lambda: ringside.step(n=65))
    assert str(error) == (
        "--ranks: a number from 1 to 64 is expected, not 65\nTry: ringside step --help"
    )
    assert "there is no option --colour" in str(error_of(lambda: ringside.step(colour="red")))
    error = error_of(lambda: ringside.prove(algorithm="none.json"))
    assert "cannot read the algorithm none.json" in str(error)
    assert "Usage: ringside step" in pydoc.render_doc(ringside.step)
    assert "Usage: ringside account" in pydoc.render_doc(ringside.account)  # of another program


def with_environment(call, **variables):
    before = dict(os.environ)
    try:
        os.environ.pop("RINGSIDE_PROGRAM", None)
        os.environ.update(variables)
        return call()
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_the_program_is_found_or_a_sentence_says_what_to_do():
    assert os.path.samefile(find_program(), ringside.step("all_reduce")._run().args[0])
    error = with_environment(lambda: error_of(ringside.prove), RINGSIDE_PROGRAM="/nowhere/ringside")
    for shown in ringside, ringside.step:  # help() says it as well
        text = with_environment(
            lambda: pydoc.plain(pydoc.render_doc(shown)), RINGSIDE_PROGRAM="/nowhere/ringside"
        )
        assert "cannot run /nowhere/ringside" in text
    assert str(error) == (
        "cannot run /nowhere/ringside: No such file or directory. Name the "
        "program ringside in RINGSIDE_PROGRAM"
    )
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "a/b/c/lib/libringside.so")  # no bin beside it
        alone = {"RINGSIDE_LIBRARY": str(package), "PATH": folder}
        error = with_environment(lambda: error_of(find_program), **alone)
        assert "neither in a folder bin beside" in str(error) and "RINGSIDE_PROGRAM" in str(error)
        os.symlink(find_program(), Path(folder, "ringside"))
        assert with_environment(find_program, **alone) == f"{folder}/ringside"
        installed = Path(folder, "a/b/bin/ringside")
        installed.parent.mkdir(parents=True)
        os.symlink(find_program(), installed)
        assert os.path.samefile(
            Path(with_environment(find_program, **alone)).parent, installed.parent
        )


def test_the_source_finds_the_build_of_its_tree():
    """As for who types in the folder python, where `-m ringside` is the source."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT / "python/ringside", tree / "python/ringside")
        alone = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "RINGSIDE_PROGRAM", "RINGSIDE_LIBRARY")
        }

        def typed(*words):
            return subprocess.run(
                [sys.executable, *words],
                cwd=tree / "python",
                env={**alone, "PATH": folder},
                capture_output=True,
                text=True,
            )

        account = typed("-m", "ringside", "account", "--model", "tiny")  # needs no build
        assert account.returncode == 0 and "Memory of a rank" in account.stdout, account.stderr
        without = typed("-m", "ringside", "step", "all_reduce")
        assert without.returncode == 1 and without.stderr.startswith(
            "ringside: 'step' is no command that runs without a build: the program ringside is "
            f"neither in a folder bin beside {tree}/python/ringside nor on PATH: build it (cmake "
        ), without.stderr
        found = "import ringside.library as l; print(l.find_library())"
        assert typed("-c", found).stdout == "libringside.so.1\n"

        program = tree / "build/release/bin/ringside"
        program.parent.mkdir(parents=True)
        os.symlink(find_program(), program)
        shown = typed("-m", "ringside", "step", "all_reduce", "-n", "2")
        assert shown.returncode == 0 and "step 0" in shown.stdout, shown.stderr
        place = tree / "build/release/python/ringside/libringside.so"
        place.parent.mkdir(parents=True)
        place.write_bytes(b"")
        assert typed("-c", found).stdout == f"{place}\n"


@ringside.algorithm("all_reduce")
def ring(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for s in range(size - 1):
        yield send(right, (rank - 1 - s) % size) | receive(left, (rank - 2 - s) % size)
    for s in range(size - 1):
        yield (
            send(right, (rank - s) % size)
            | receive(left, (rank - 1 - s) % size, action="overwrite")
        )


def test_a_function_is_an_algorithm():
    # The same steps as Ringside's own ring, for every number of ranks.
    assert [len(case["schedules"]) for case in ring.cases()] == [2, 3, 4, 5, 6, 7, 8]
    for size in 2, 3, 4:
        ours = ringside.step("ring_all_reduce", n=size).data["schedules"]
        assert ring.schedules(size) == ours
    (proof,) = ringside.prove(algorithm=ring).data
    assert proof["holds"] and proof["cases"] == 7 and proof["algorithm"] == "ring.json"
    # As a file of --algorithm it is drawn, measured beside others and trained with.
    assert ringside.step(algorithm=ring, n=4)._repr_html_().startswith("<svg")
    rows = ringside.bench(
        "all_reduce", n=3, algorithm=[ring, "ring"], backends="threads", bytes="4KB", repeat=2
    ).data
    rows = rows["results"] if isinstance(rows, dict) else rows
    assert [row["algorithm"] for row in rows] == ["ring.json", "ring"]
    with tempfile.TemporaryDirectory() as folder:
        kept = shutil.copy(ring, folder)
        assert json.loads(Path(kept).read_text()) == ring.cases()


def test_ranks_chunks_and_root_of_an_algorithm():
    @ringside.algorithm("broadcast", sizes=[3], chunks=1, root=2)
    def chain(rank, size):
        if rank == 2:
            yield send(0, 0)
        if rank == 0:
            yield receive(2, 0, action="overwrite")
            yield send(1, 0)
        if rank == 1:
            yield {}  # while rank 0 receives
            yield receive(0, 0, action="overwrite")

    assert [schedule["steps"][1] for schedule in chain.schedules(3)] == [
        {"send": {"to": 1, "first": 0, "count": 1}},
        {"receive": {"from": 0, "first": 0, "count": 1, "action": "overwrite"}},
        {},
    ]
    assert ringside.prove(algorithm=chain).data[0]["holds"]

    @ringside.algorithm("all_to_all", sizes=[2], chunks=lambda size: 2 * size)
    def swap(rank, size):
        yield send(1 - rank, 2 * (1 - rank), 2) | receive(1 - rank, 2 * (1 - rank), 2, "overwrite")

    assert {schedule["chunks"] for schedule in swap.schedules(2)} == {4}


def test_a_wrong_algorithm_is_refused_and_still_drawn():
    @ringside.algorithm("all_reduce", sizes=[3], chunks=1)
    def once(rank, size):
        yield send((rank + 1) % size, 0) | receive((rank - 1) % size, 0)

    error = error_of(lambda: ringside.step(algorithm=once))
    assert "at the end chunk 0 on rank 0 lacks rank 1" in str(error)
    assert "step 0" in str(error.result) and "[0+2]" in repr(error.result)
    assert len(error.result.data["findings"]) == 3
    error = error_of(lambda: ringside.prove(algorithm=once))
    assert str(error).startswith("once.json all_reduce, 3 ranks: at the end chunk 0 on rank 0 ")
    assert str(error).endswith("\n1 of 1 algorithms are wrong: see the findings above")
    assert not error.result.data[0]["holds"]


def test_a_page_plays_in_the_frame_of_a_notebook():
    page = (
        "<!DOCTYPE html><meta charset='utf-8'><body>"
        + ringside.step("ring_all_reduce", n=4)._repr_html_()
        + "</body>"
    )
    seen = drawn(
        page,
        """onload = () => {
             const frame = document.querySelector('iframe').contentWindow;
             const key = {key: 'ArrowRight', cancelable: true};
             frame.dispatchEvent(new KeyboardEvent('keydown', key));
             document.body.append('shown: ' + frame.document.getElementById('says').textContent);
           };""",
    )
    assert "shown: Step 0" in seen, seen[-300:]


def test_no_torch_is_needed():
    assert "torch" not in sys.modules


def test_the_notebook_runs():
    run_notebook(NOTEBOOK)


def test_the_notebook_starts_in_each_documented_way():
    """docs/python.md: opened where it lies, with PYTHONPATH or without; a copy with PYTHONPATH.
    Jupyter runs it in its own folder, which stands first on the path of its Python, as with -c."""
    build = Path(ringside.__file__).resolve().parents[2]
    if not (build / "bin/ringside").exists():
        pytest.skip("needs the package of a build, which has its program two folders above")
    with tempfile.TemporaryDirectory() as folder:
        tree, elsewhere = Path(folder, "tree"), Path(folder, "elsewhere")
        for here in tree / "python", tree / "build", elsewhere:
            here.mkdir(parents=True)
            shutil.copy(NOTEBOOK, here)
        os.symlink(ROOT / "python/ringside", tree / "python/ringside")  # hides the build
        os.symlink(build, tree / "build/release")
        for start, path in (
            (tree / "python", None),
            (tree / "python", "build/release/python"),  # of the folder where Jupyter was started
            (tree / "python", str(tree / "build/release/python")),
            (elsewhere, str(tree / "build/release/python")),
        ):
            environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
            environment.pop("RINGSIDE_PROGRAM", None)
            if path is not None:
                environment["PYTHONPATH"] = path
            seen = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
                    "from notebook import run_cells\n"
                    f"run_cells({NOTEBOOK.name!r}, before='What you see is also data')\n"
                    "import ringside; ringside.simulate('all_reduce', n=3, algorithm='naive')\n"
                    "print(ringside.__file__, ringside.library.find_library())",
                ],
                cwd=start,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert seen.returncode == 0, (start, path, seen.stderr)
            package, library = map(Path, seen.stdout.split())
            assert package.samefile(ringside.__file__), (start, path, package)
            assert library.name == "libringside.so" and library.exists(), (start, path, library)
