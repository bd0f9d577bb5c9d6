"""`ringside watch` over the reports of ranks: what it shows and judges, without torch.

tests/python/witness_test.py watches programs that use torch.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

from ringside.__main__ import main


def model(name="Net", whole=1000, kept=1000, with_state=0, gathered=0, trained=1000, size=8):
    return {
        "model": name,
        "computing": whole,
        "resting": kept,
        "gathered": gathered,
        "kept": 0,
        "trained": trained,
        "with_state": with_state,
        "state_bytes": with_state * size,
    }


def report(rank, size=2, test="", models=(), began=0, **more):
    return {
        "test": test,
        "rank": rank,
        "size": size,
        "transport": "shm",
        "began_ns": began + (rank if isinstance(rank, int) else 0),
        "bytes_sent": 1_234_567,
        "waited_seconds": 0.0125,
        "calls": [
            {"collective": "all_reduce", "label": "gradient of w", "calls": 3, "bytes": 6000},
            {"collective": "barrier", "label": "", "calls": 1, "bytes": 0},
        ],
        "backwards": 3,
        "reductions": 3,
        "reduced_bytes": 6000,
        "early_reductions": 2,
        "early_bytes": 4000,
        "waits_in_backward": 0,
        "waited_in_backward_seconds": 0.0,
        "optimizers": ["SGD"],
        "models": list(models),
        **more,
    }


def watch(*words):
    """The exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["watch", *map(str, words)])
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def folder_of(reports):
    with tempfile.TemporaryDirectory() as folder:
        for i, each in enumerate(reports):
            Path(folder, f"{i}.json").write_text(
                each if isinstance(each, str) else json.dumps(each)
            )
        yield folder


def finding(expected, *reports):
    """What --expect finds in a run: None, or a sentence."""
    with folder_of(reports) as folder:
        code, out, err = watch(
            "--folder", folder, "--expect", expected, "--json", f"{folder}/figures"
        )
        found = json.loads(Path(folder, "figures").read_text())[0]["findings"][expected]
        assert err == "" and code == (0 if found is None else 1)
        assert f"\n  {expected}: {found or 'as expected'}\n" in out
        return found


def test_a_run_is_shown():
    shards = [model(kept=510, with_state=590), model(kept=490, with_state=410)]
    with folder_of(
        [report(1, models=[shards[1]], reduced_bytes=0), report(0, models=[shards[0]])]
    ) as folder:
        assert watch("--folder", folder) == (
            0,
            """
2 of 2 ranks over shm

  rank  calls   sent  waited  gradients    early         early  waits in
                (MB)    (ms)    (calls)  (calls)  (% of bytes)  backward
     0      4  1.235    12.5          3        2            67         0
     1      4  1.235    12.5          3        2                       0

  call of rank 0  data           times  MB in all
  all_reduce      gradient of w      3      0.006
  barrier                            1      0.000

  Net, 1000 parameters: 51 % on rank 0, 49 % on rank 1; optimizer's state: 59 % on rank 0, 41 % on rank 1
""",
            "",
        )


def test_reports_are_joined_to_runs():
    """Of each test and size one run; a rank that comes again begins another."""
    reports = [
        report(rank, 2, test, began=began)
        for rank in (1, 0)
        for test, began in (("a", 100), ("b", 200), ("a", 300))
    ] + [report(2, 3, "a", began=50)]
    with folder_of(reports) as folder:
        code, out, _ = watch("--folder", folder, "--json", f"{folder}/figures")
        runs = json.loads(Path(folder, "figures").read_text())
        assert code == 0
        assert [(run["test"], [rank["began_ns"] for rank in run["ranks"]]) for run in runs] == [
            ("a", [52]),
            ("a", [100, 101]),
            ("b", [200, 201]),
            ("a", [300, 301]),
        ]
        assert [run["findings"] for run in runs] == [{}] * 4
        assert "\na: 1 of 3 ranks over shm\n" in out and "\nb: 2 of 2 ranks over shm\n" in out
        text = watch("--folder", folder, "--json", "-")[1]
        assert json.loads(text[text.index("\n[\n") :]) == runs


def test_overlap_is_judged():
    assert finding("overlap", report(0), report(1)) is None
    late = {"early_reductions": 0}
    assert finding("overlap", report(0, **late), report(1, **late)) == (
        "sync-at-end: all 6 calls that reduce gradients started after the last gradient of their backward "
        "was ready, so nothing overlaps with it"
    )
    assert finding(
        "overlap", report(0), report(1, waits_in_backward=5, waited_in_backward_seconds=0.25)
    ) == (
        "waits-in-hook: backward stood still 5 times, 250.0 ms in all, while it waited for a call"
    )
    assert finding("overlap", report(0, reductions=0)) == (
        "no-calls: no call between backward and the optimizer's step reduces gradients"
    )


def test_a_sharded_optimizer_is_judged():
    def found(*of_ranks, **more):
        return finding(
            "sharded-optimizer",
            *(report(rank, models=each, **more) for rank, each in enumerate(of_ranks)),
        )

    whole, none = model(with_state=1000), model()
    assert found([model(with_state=600)], [model(with_state=400)]) is None
    assert found([none, model(with_state=600)], [none, model(with_state=400)]) is None
    assert found([whole], [whole]) == (
        "plain-adamw: each of 2 ranks keeps the optimizer's state of all parameters, 8 bytes for each; "
        "sharded, it keeps about 4"
    )
    share = [{"collective": "broadcast", "label": "", "calls": 1, "bytes": 8}]
    assert found([whole], [whole], calls=share).startswith("state-for-all: each of 2 ranks")
    assert found([model(with_state=40)], [model(with_state=960)]) == (
        "by-count: rank 1 keeps the optimizer's state of 96 % of the parameters: give each parameter to "
        "the rank that has fewest elements so far"
    )
    assert (
        found([none], [none]) == "no-state: no optimizer has made a step, or none keeps any state"
    )
    assert found([], []).startswith("no-state: ")


def test_sharded_parameters_are_judged():
    def found(*of_ranks):
        return finding("fsdp", *(report(rank, models=each) for rank, each in enumerate(of_ranks)))

    assert found([model(), model(kept=500)], [model(), model(kept=500)]) is None
    assert found([model()], [model()]) == (
        "replicated: each of 2 ranks keeps all parameters between two steps, and forward gathers none"
    )
    assert found([model(gathered=900)], [model(gathered=900)]) == (
        "never-frees: each of 2 ranks keeps all parameters between two steps, though forward gathers some"
    )
    assert found([], []) == "no-model: no module has run forward"


def test_several_expectations_and_the_code_of_the_program():
    with folder_of([report(0), report(1)]) as folder:
        code, out, _ = watch("--folder", folder, "--expect", "overlap,fsdp")
        assert code == 1 and out.endswith(
            "  overlap: as expected\n  fsdp: no-model: no module has run forward\n"
        )
        assert watch("--folder", folder, "--expect", "fsdp", "--expect", "overlap")[1].endswith(
            "  fsdp: no-model: no module has run forward\n  overlap: as expected\n"
        )
        words = [
            sys.executable,
            "-c",
            "import os, sys; assert os.environ['RINGSIDE_AS_GLOO'] == '1'; "
            "assert os.path.isdir(os.environ['RINGSIDE_WATCH']); sys.exit(int(sys.argv[1]))",
        ]
        assert watch("--folder", folder, "--", *words, "0")[0] == 0
        assert watch("--folder", folder, "--expect", "fsdp", "--", *words, "7")[0] == 7
        assert watch("--folder", folder, *words, "3")[0] == 3
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]
    assert watch("--", *killed) == (143, "", "")
    assert not [
        name
        for name in os.listdir(tempfile.gettempdir())
        if name == f"ringside-watch-{os.getpid()}"
    ]


def test_wrong_arguments_and_reports_are_sentences():
    assert watch("--expect", "fast", "--", "true") == (
        2,
        "",
        "ringside: --expect: overlap, sharded-optimizer or fsdp is expected, not fast\n"
        "Try: ringside watch --help\n",
    )
    assert watch() == (
        2,
        "",
        "ringside: name a program after --, or the folder of earlier reports with "
        "--folder\nTry: ringside watch --help\n",
    )
    assert watch("--", "./nothing") == (
        1,
        "",
        "ringside: cannot run ./nothing: No such file or directory\n",
    )
    assert watch("--folder", "/nowhere") == (
        1,
        "",
        "ringside: /nowhere is not a folder: name the one that RINGSIDE_WATCH named\n",
    )
    nothing = (
        "ringside: no rank left a report: the program makes no process group over ringside or gloo, or "
        "its Python lacks the package: pip install build/release/python\n"
    )
    assert watch("--", "true") == (1, "", nothing)
    assert watch("--", "false") == (1, "", "")
    lacking = report(0)
    del lacking["early_bytes"]
    for content, why in (
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "the report is no object {...}"),
        (lacking, "early_bytes of the report is missing or of another type"),
        (report(0, models=[{}]), "model of a model is missing or of another type"),
        (report("0"), "rank of the report is missing or of another type"),
    ):
        with folder_of([content]) as folder:
            assert watch("--folder", folder) == (
                1,
                "",
                f"ringside: {folder}/0.json is not a rank's report of ringside watch: {why}\n",
            ), content
