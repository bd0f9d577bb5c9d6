"""`ringside timeline`: what it shows of a trace."""

import contextlib
import io
import json
import subprocess
import tempfile
from pathlib import Path

from pages import drawn, report_in, require_well_formed
from ringside.__main__ import main
from ringside.program import find_program


def event(rank, kind, name, begin, end, **args):
    """A span of a trace file, in ms."""
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": rank,
        "tid": 0,
        "ts": begin * 1e3,
        "dur": (end - begin) * 1e3,
        "args": args,
    }


def sample(coordinates=("", "")):
    """Two ranks and two steps. In step 1 rank 1 computes for 6 ms and rank 0 for 4, and waits 2 ms."""
    events = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}{where}"}}
        for rank, where in enumerate(coordinates)
    ]
    for rank, forward in ((0, 4), (1, 6)):
        events += [
            event(rank, "phase", "step 1", 0, 10),
            event(rank, "phase", "forward", 0, forward),
            event(rank, "op", "linear <w>", 1, 2),
            event(rank, "phase", "reduce", forward, 10),
            event(rank, "wait", "wait", 8 if rank else forward, 8 if rank else 6),
            event(rank, "call", "all_reduce", 7, 9, data="w", bytes=2_500_000, queued_us=6500.0),
            event(rank, "phase", "step 2", 10, 14),
            event(rank, "phase", "backward", 10, 14),
        ]
    for receiver, sender in ((1, 0), (0, 1)):
        events += [
            event(receiver, "step", "all_reduce step 3", 7, 8.5, from_rank=sender, bytes=1_000_000),
            {"ph": "s", "name": "all_reduce step 3", "pid": sender, "ts": 7200.0},
            {"ph": "f", "name": "all_reduce step 3", "pid": receiver, "ts": 8500.0},
        ]
    return {"traceEvents": events}


@contextlib.contextmanager
def trace_file(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        yield path


def timeline(*words):
    """The exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["timeline", *map(str, words)])
    return code, out.getvalue(), err.getvalue()


TEXT = """\
trace    {}

What the ranks did in step 1
  rank  computing (ms)  waiting (ms)  calls  in calls (ms)
     0            8.00          2.00      1           2.00
     1           10.00          0.00      1           2.00
  10 % of the step was waiting for other ranks and the network; rank 1 computed
  longest, 10.00 ms, and the fastest rank 8.00 ms.

What the ranks did in step 2
  rank  computing (ms)  waiting (ms)  calls  in calls (ms)
     0            4.00          0.00      0           0.00
     1            4.00          0.00      0           0.00
  0 % of the step was waiting for other ranks and the network; rank 0 computed
  longest, 4.00 ms, and the fastest rank 4.00 ms.
"""


def test_each_step_is_shown():
    with trace_file(sample()) as path:
        assert timeline(path) == (0, TEXT.format(path), "")
        code, out, err = timeline(path, "--json", "-")
        assert code == 0 and err == TEXT.format(path)
        rows = json.loads(out)
        assert [(row["step"], row["rank"], row["calls"]) for row in rows] == [
            ("step 1", 0, 1),
            ("step 1", 1, 1),
            ("step 2", 0, 0),
            ("step 2", 1, 0),
        ]
        seconds = [
            rows[0][key] for key in ("computing_seconds", "waiting_seconds", "in_calls_seconds")
        ]
        assert all(abs(a - b) < 1e-12 for a, b in zip(seconds, (0.008, 0.002, 0.002)))
    alone = {"traceEvents": [each for each in sample()["traceEvents"] if each["pid"] == 0]}
    with trace_file(alone) as path:
        assert "  10.00 ms; 20 % of it was waiting for calls.\n" in timeline(path)[1]


def page_of(content):
    with trace_file(content) as path:
        page = path.with_name("page.html")
        code, out, _ = timeline(path, "--html", page)
        assert code == 0 and out.endswith(f"report, to open in a browser: {page}\n")
        return page.read_text()


def tracks_in(page):
    """The tracks of each figure."""
    return [figure["drawing"] for figure in report_in(page)["figures"]]


def test_the_page_has_the_tracks():
    page = page_of(sample())
    require_well_formed(page)
    assert [figure["choice"] for figure in report_in(page)["figures"]] == ["step 1", "step 2"]
    first, second = tracks_in(page)
    assert first["scale"] == 10 and second["scale"] == 4
    assert first["ranks"][1] == {
        "rank": 1,
        "name": "rank 1",
        "spans": [
            ["phase", "forward", "", 0.0, 6.0],
            ["op", "linear <w>", "", 1.0, 2.0],
            ["phase", "reduce", "", 6.0, 10.0],
            ["wait", "wait", "", 8.0, 8.0],
            ["call", "all_reduce", "w", 7.0, 9.0, 2.5, 0.5],
        ],
        "steps": [[3, 0, 7.2, 7.0, 8.5, 1.0, 0]],
    }
    spans = [["phase", "backward", "", 0.0, 4.0]]
    assert [(rank["spans"], rank["steps"]) for rank in second["ranks"]] == [(spans, [])] * 2


def test_a_browser_draws_the_tracks():
    page = drawn(page_of(sample()))
    assert '<figure class="wide" data-choice="step 1" hidden="">' in page
    assert 'aria-label="Rank 0: forward, 4.00 ms, from 0.00 to 4.00 ms"' in page
    assert (
        'aria-label="Rank 1: all_reduce (w), 2.00 ms, from 7.00 to 9.00 ms; 2.5 MB, queued for 0.50 ms '
        'before"'
    ) in page


def test_the_name_of_a_phase_stands_where_no_wait_is_drawn_over_it():
    events = [
        event(0, "phase", "step 1", 0, 20),
        event(0, "phase", "forward", 0, 20),
        event(0, "wait", "wait", 5, 20),
    ]
    page = drawn(page_of({"traceEvents": events}))
    assert 'x="12.500%" y="18" aria-hidden="true">forward</text>' in " ".join(page.split())


def test_a_mesh_has_names_and_no_steps_of_calls():
    ranks = [
        rank
        for tracks in tracks_in(page_of(sample((" (pp=0)", " (pp=1)"))))
        for rank in tracks["ranks"]
    ]
    assert [rank["name"] for rank in ranks] == ["rank 0 (pp=0)", "rank 1 (pp=1)"] * 2
    assert all(rank["steps"] == [] for rank in ranks)


def test_what_is_no_trace_is_refused_with_its_place():
    def error_of(content):
        with trace_file(content) as path:
            code, out, err = timeline(path)
            assert code == 1 and out == ""
            return err.replace(f"{path.parent}/", "")

    assert (
        error_of("step 1\nstep 2\n")
        == "ringside: trace.json is not JSON: the error is in line 1, column 1\n"
    )
    assert error_of("{}") == "ringside: trace.json: traceEvents is missing\n"
    assert error_of("[1]") == "ringside: trace.json is [1], but an object {...} is expected\n"
    span = event(0, "phase", "forward", 0, 1)
    assert error_of({"traceEvents": [{**span, "ts": -1}]}) == (
        "ringside: trace.json: traceEvents[0].ts is -1, but a number of at least 0 is expected\n"
    )
    assert error_of({"traceEvents": [span]}) == (
        "ringside: trace.json has no training step: expected a file of `ringside train --trace` or of "
        "`ringside simulate --model ... --trace`\n"
    )
    assert timeline("none.json") == (
        1,
        "",
        "ringside: cannot read none.json: No such file or directory\n",
    )
    assert timeline() == (2, "", "ringside: TRACE is required\nTry: ringside timeline --help\n")


def test_a_traced_run_is_shown():
    """Every step of a call in the file is in the page."""
    with tempfile.TemporaryDirectory() as folder:
        trace, page = f"{folder}/trace.json", f"{folder}/page.html"
        subprocess.run(
            [
                find_program(),
                "train",
                "-n",
                "3",
                "--batch",
                "3",
                "--sequence",
                "16",
                "--steps",
                "2",
                "--trace",
                trace,
            ],
            check=True,
            capture_output=True,
        )
        done = subprocess.run(
            [find_program(), "timeline", trace, "--html", page],
            check=True,
            capture_output=True,
            text=True,
        )
        assert "What the ranks did in step 2\n" in done.stdout
        recorded = {
            (
                each["pid"],
                int(each["name"].rpartition(" ")[2]),
                each["args"]["from_rank"],
                each["args"]["bytes"],
            )
            for each in json.loads(Path(trace).read_text())["traceEvents"]
            if each.get("cat") == "step"
        }
        shown, ops = set(), 0
        for tracks in tracks_in(Path(page).read_text()):
            for rank in tracks["ranks"]:
                ops += sum(kind == "op" for kind, *_ in rank["spans"])
                for number, sender, sent, began, arrived, size, _ in rank["steps"]:
                    assert sent <= arrived and began <= arrived
                    shown.add((rank["rank"], number, sender, round(size * 1e6)))
        assert shown == recorded and len(shown) > 20 and ops > 100
