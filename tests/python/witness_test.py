"""`ringside watch` over torch programs: right answers pass, wrong ones are named."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ringside.program import find_program

HERE = Path(__file__).resolve().parent


def watch(expected, *program, folder=None, fails=False):
    """The runs that `ringside watch` reports, and what it printed."""
    with tempfile.TemporaryDirectory() as own:
        figures = Path(own, "figures.json")
        words = ["--expect", expected] if expected else []
        words += ["--folder", folder] if folder else []
        done = subprocess.run(
            [find_program(), "watch", *words, "--json", figures, "--", *program],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "PYTHONPATH": os.environ["PYTHONPATH"] + os.pathsep + str(HERE)},
        )
        assert done.returncode == (1 if fails else 0), done.stdout + done.stderr
        return json.loads(figures.read_text()), done.stdout


def watch_case(expected, case, size):
    return watch(
        expected, sys.executable, str(HERE / "watched.py"), case, str(size), fails=case != expected
    )


def judged(expected, wrong):
    """The right answer passes. Each wrong one, whose weights are right, is told by its name."""
    for size in 2, 3:
        (run,), text = watch_case(expected, expected, size)
        assert run["findings"] == {expected: None} and f"{expected}: as expected\n" in text
        assert [rank["rank"] for rank in run["ranks"]] == list(range(size))
    for case, sentence in wrong.items():
        (run,), text = watch_case(expected, case, 2)
        assert run["findings"][expected].startswith(f"{case}: "), text
        assert sentence in text, text
    return run


def test_calls_that_do_not_overlap_are_named():
    judged(
        "overlap",
        {
            "sync-at-end": "all 60 calls that reduce gradients started after the last gradient of their "
            "backward was ready",
            "waits-in-hook": "backward stood still 54 times",
        },
    )


def test_an_optimizer_that_is_not_sharded_is_named():
    judged(
        "sharded-optimizer",
        {
            "plain-adamw": "each of 2 ranks keeps the optimizer's state of all parameters, 16 bytes for "
            "each; sharded, it keeps about 8",
            "state-for-all": "16 bytes for each",
            "by-count": "rank 0 keeps the optimizer's state of 95 % of the parameters",
        },
    )


def test_state_of_slices_and_of_wrapped_optimizers_is_counted_once():
    for case in "slices", "wrapped":
        program = sys.executable, str(HERE / "watched.py"), case, "2"
        (run,), text = watch("sharded-optimizer", *program)
        assert "sharded-optimizer: as expected\n" in text, text
        kept = sum(rank["models"][0]["with_state"] for rank in run["ranks"])
        assert kept == run["ranks"][0]["models"][0]["trained"], text


def test_a_gathered_weight_whose_memory_is_given_back_is_not_kept():
    program = sys.executable, str(HERE / "watched.py"), "resizes", "2"
    (run,), text = watch("fsdp", *program)
    assert "fsdp: as expected\n" in text, text
    assert [rank["models"][0]["kept"] for rank in run["ranks"]] == [0, 0], text


def test_parameters_that_are_not_sharded_are_named():
    judged(
        "fsdp",
        {
            "replicated": "each of 2 ranks keeps all parameters between two steps, and forward gathers "
            "none",
            "never-frees": "keeps all parameters between two steps, though forward gathers some",
        },
    )


def test_calls_bytes_and_labels_are_those_of_the_program():
    (run,), text = watch_case("overlap", "overlap", 3)
    elements = 4 * (24 * 24 + 24) + 2 * 24  # of 10 gradients in fp64, reduced in 3 steps
    for rank in run["ranks"]:
        assert rank["reductions"] == 30 and rank["early_reductions"] == 27
        assert rank["reduced_bytes"] == 3 * 8 * elements
        calls = {(call["collective"], call["label"]): call for call in rank["calls"]}
        assert calls["all_reduce", "gradient of layers.2.weight"] == {
            "collective": "all_reduce",
            "label": "gradient of layers.2.weight",
            "calls": 3,
            "bytes": 3 * 8 * 24 * 24,
        }
        assert len(calls) == 10
    # A ring sends 2 (n-1)/n of the bytes from each rank, an algorithm for few bytes n-1 times the
    # bytes; and when the group is made, rank 0 sends its costs.
    sent = sum(rank["bytes_sent"] for rank in run["ranks"])
    assert 2 * 2 * 3 * 8 * elements <= sent <= 3 * 2 * 3 * 8 * elements + 1000, sent
    assert "gradient of layers.2.weight" in text and "3 of 3 ranks over" in text


def test_torch_ddp_and_fsdp_are_as_expected():
    program = """
import sys, torch, torch.distributed as dist
sys.path.insert(0, {here!r})
from ranks import begin, on_ranks
def rank_of(rank, size, folder):
    begin(rank, size, folder, "gloo")
    if {fsdp}:
        from torch.distributed.fsdp import fully_shard
    net = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(6)))
    if {fsdp}:
        for layer in net: fully_shard(layer)
        fully_shard(net)
    else:
        net = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        net(torch.randn(4, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
import torch._dynamo
on_ranks(rank_of, 2)
"""
    for fsdp, expected in ((False, "overlap"), (True, "fsdp")):
        (run,), text = watch(
            expected, sys.executable, "-c", program.format(here=str(HERE), fsdp=fsdp)
        )
        assert run["findings"] == {expected: None}, text


def test_reports_of_an_earlier_run_and_errors():
    with tempfile.TemporaryDirectory() as folder:
        reports = f"{folder}/reports"
        watch(None, sys.executable, str(HERE / "watched.py"), "sync-at-end", "2", folder=reports)
        assert len(os.listdir(reports)) == 2

        def again(*words):
            return subprocess.run([find_program(), "watch", *words], capture_output=True, text=True)

        assert "2 of 2 ranks over" in again("--folder", reports).stdout
        assert again("--folder", reports, "--expect", "overlap").returncode == 1
        words = again("--folder", reports, "--expect", "overlap,fsdp", "--", "echo", "-m", "--x")
        assert words.returncode == 1 and words.stdout.startswith("-m --x\n"), words
        assert (
            "overlap, sharded-optimizer or fsdp is expected, not fast"
            in again("--expect", "fast", "--", "true").stderr
        )
        assert "no rank left a report" in again("--", "true").stderr
        assert "cannot run ./nothing: No such file" in again("--", "./nothing").stderr
        assert "name a program after --" in again().stderr
        assert again("--", "sh", "-c", "exit 7").returncode == 7
        Path(reports, "other.json").write_text("{}")
        error = again("--folder", reports)
        assert error.returncode == 1 and "other.json is not a rank's report" in error.stderr
