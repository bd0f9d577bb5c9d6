#!/usr/bin/env python3
"""torch's own DistributedTest, from its wheel, over Ringside beside gloo.

    PYTHONPATH=build/release/python tools/peers/torch_distributed_test.py --size 4 [WORD ...]

Runs each test whose name contains a WORD (all by default) over both, with 2, 3 or 4 ranks, and lists those that
gloo passes and Ringside does not. Exits with 1 if one of them is not in EXCLUDED, which docs/pytorch.md
explains. Needs pip install torch numpy pytest expecttest hypothesis.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

OLD = "before torch 2.15 it accepts backends in C++ only"
EXCLUDED = {
    "test_get_backend": "get_backend() says ringside",
    "test_sparse_all_reduce_sum": "Ringside reduces and moves dense tensors",
    "test_monitored_barrier_gloo": OLD, "test_monitored_barrier_gloo_subgroup": OLD,
}


def is_excluded(name):
    import torch
    new = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 15)
    return name in EXCLUDED and not (new and EXCLUDED[name] == OLD)


def run_here(words):
    """Runs the tests in this process; returns the outcome of each by name."""
    import torch
    import torch._dynamo  # DDP imports it: once here, not in each rank
    from torch.testing._internal.distributed import distributed_test as tests

    class OverThisBackend(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            # The ranks are forks, so that torch is imported once.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    suite = unittest.TestSuite(
        OverThisBackend(name) for name in unittest.TestLoader().getTestCaseNames(OverThisBackend)
        if not words or any(word in name for word in words))
    outcomes = {}

    class Outcomes(unittest.TextTestResult):
        def stopTest(self, test):
            name = test._testMethodName
            last = next((kind for kind, seen in (("failed", self.failures), ("failed", self.errors),
                                                 ("skipped", self.skipped))
                         if seen and seen[-1][0] is test), "passed")
            report = (self.failures + self.errors)[-1][1] if last == "failed" else ""
            outcomes[name] = [last, "".join(re.findall(r"^\w*(?:Error|Exception).*$", report, re.M)[-1:])]
            print(f"{last:8} {name}", file=sys.stderr, flush=True)
            super().stopTest(test)

    with open(os.devnull, "w") as nowhere:
        unittest.TextTestRunner(stream=nowhere, resultclass=Outcomes).run(suite)
    return outcomes


def run_over(backend, size, words):
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "outcomes.json")
        environment = {**os.environ, "BACKEND": "gloo", "WORLD_SIZE": str(size), "TEMP_DIR": folder,
                       "OMP_NUM_THREADS": "1", "RINGSIDE_AS_GLOO": "01"[backend == "ringside"]}
        subprocess.run([sys.executable, __file__, "--here", str(result), *words], env=environment,
                       check=True)
        return json.loads(result.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=4, help="ranks [4]")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    if args.here:
        Path(args.here).write_text(json.dumps(run_here(args.words)))
        os._exit(0)
    gloo = run_over("gloo", args.size, args.words)
    ours = run_over("ringside", args.size, args.words)
    for name, outcomes in (("gloo", gloo), ("ringside", ours)):
        kinds = [kind for kind, _ in outcomes.values()]
        print(f"{name:9} {args.size} ranks: " + ", ".join(
            f"{kinds.count(kind)} {kind}" for kind in ("passed", "skipped", "failed")))
    worse = {name: reason for name, (kind, reason) in ours.items()
             if kind == "failed" and gloo[name][0] == "passed"}
    for name, reason in worse.items():
        print(f"  {name}: {EXCLUDED[name] if is_excluded(name) else 'NOT EXPLAINED: ' + reason}")
    for name in sorted(name for name in ours if ours[name][0] == "passed" and gloo[name][0] == "failed"):
        print(f"  {name}: passes over Ringside, fails over gloo: {gloo[name][1]}")
    sys.exit(not all(map(is_excluded, worse)))


if __name__ == "__main__":
    main()
