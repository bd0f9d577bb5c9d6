"""The five programs in Python, over Ringside in place of gloo."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
FOLDER = Path(__file__).resolve().parents[2] / "examples/python"

RING = "all_reduce=ring,reduce_scatter=ring,all_gather=ring"


def output_of(name, ranks, **variables):
    """What the program prints, without times; no rank may use gloo."""
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        + [FOLDER / f"{name}.py"],
        env={**os.environ, "RINGSIDE_AS_GLOO": "1", **variables},
        text=True,
        capture_output=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    assert "gloo" not in ended.stderr
    return ended.stdout


def test_collective_operations_prints_in_the_order_of_ranks():
    out = output_of("collective_operations", 3, RINGSIDE_ALGORITHM=RING)
    assert out.startswith(
        "rank 0  before all_reduce      [0.0, 1.0, 2.0]\n"
        "rank 1  before all_reduce      [1.0, 2.0, 3.0]\n"
        "rank 2  before all_reduce      [2.0, 3.0, 4.0]\n"
        "rank 0  after  all_reduce      [3.0, 6.0, 9.0]\n"
    )
    assert "rank 2  after  reduce_scatter  [9.0]\n" in out
    assert "rank 1  after  all_gather      [3.0, 6.0, 9.0]\n" in out
    assert out.count("all_reduce and its two halves differ by at most 0.0e+00\n") == 3


def test_bandwidth_measures_both_collectives():
    out = output_of("bandwidth", 2)
    for name in "all_reduce", "reduce_scatter":
        assert (
            len(re.findall(rf"rank \d  {name} +cold +[\d.]+ ms  warm +[\d.]+ ms +[\d.]+ GB/s", out))
            == 2
        )


def test_data_parallelism_agrees_with_one_process():
    out = output_of("data_parallelism", 3)
    for step in range(3):
        found = re.findall(
            rf"rank \d  step {step}  loss ([\d.]+)  sum of parameters (-?[\d.]+)", out
        )
        assert len({loss for loss, _ in found}) == 3
        assert len(found) == 3 and len({total for _, total in found}) == 1
    differences = re.findall(r"largest difference from one process (\S+)", out)
    assert len(differences) == 3 and all(float(each) < 1e-6 for each in differences)


def test_tensor_parallelism_agrees_with_one_process():
    out = output_of("tensor_parallelism", 3)
    for name in "all-gather", "pair":
        found = re.findall(
            rf"{name} +gradients differ from one process by (\S+) of their norm", out
        )
        assert len(found) == 3 and all(float(each) < 1e-6 for each in found)


def test_pipeline_parallelism_has_the_bits_of_one_process():
    out = output_of("pipeline_parallelism", 3)
    assert out.count("one call after the other  gradients with the same bits as one process\n") == 3
    assert len(re.findall(r"overlapped +gradients with the same bits as one process\n", out)) == 3
