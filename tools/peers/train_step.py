#!/usr/bin/env python3
"""Compares the time of a training step with PyTorch's on this machine.

    tools/peers/train_step.py [--ringside build/release/bin/ringside] [--threads 1,2] [--rounds 3]

Needs a Python with torch 1.13 or newer; the project itself does not. Both sides run the same Llama
model, sizes, batch, clipping and AdamW in fp32. Each round runs `ringside bench train` once and
PyTorch once, so that a slow phase of the machine affects both. Prints the medians over the rounds,
and the peak resident memory of each process.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from llama import SIZES, make_llama, require_torch


def torch_step(model_name, batch, sequence, threads, steps):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    vocabulary = SIZES[model_name][-1]
    model = make_llama(model_name, batch, sequence)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    tokens, targets = (torch.randint(vocabulary, (batch, sequence)) for _ in range(2))
    times = []
    for _ in range(2 + steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(tokens).view(-1, vocabulary), targets.view(-1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - start)
    return {"step_ms": statistics.median(times[2:]) * 1e3, "version": torch.__version__,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def child(command):
    """Runs the command and returns its peak resident memory in MB."""
    pid = os.posix_spawnp(command[0], command, os.environ,
                          file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"the command failed: {' '.join(command)}")
    return usage.ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringside", default="build/release/bin/ringside")
    parser.add_argument("--model", default="lab", choices=SIZES)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--torch-child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    require_torch()
    if args.torch_child:
        return print(json.dumps(torch_step(args.model, args.batch, args.sequence, args.torch_child,
                                           args.steps)))

    sizes = ["--model", args.model, "--batch", str(args.batch), "--sequence", str(args.sequence),
             "--steps", str(args.steps)]
    print(f"{args.model}, batch {args.batch} x {args.sequence}, fp32, AdamW; "
          f"medians of {args.rounds} rounds of {args.steps} steps")
    for threads in args.threads.split(","):
        ours, theirs, alone, our_peak, their_peak, version = [], [], [], [], [], ""
        for _ in range(args.rounds):
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                our_peak.append(child([args.ringside, "bench", "train", *sizes,
                                       "--threads", threads, "--json", file.name]))
                row = json.load(file)[0]
            ours.append(row["step_ms"])
            alone.append(row["gemm_alone_ms"])
            answer = subprocess.run([sys.executable, __file__, *sizes, "--torch-child", threads],
                                    check=True, capture_output=True, text=True)
            row = json.loads(answer.stdout.splitlines()[-1])
            theirs.append(row["step_ms"])
            their_peak.append(row["peak_mb"])
            version = row["version"]
        a, b, c = (statistics.median(x) for x in (ours, theirs, alone))
        print(f"  {threads} thread(s)   ringside {a:.0f} ms, {max(our_peak):.0f} MB   "
              f"torch {version} {b:.0f} ms, {max(their_peak):.0f} MB   "
              f"torch/ringside {b / a:.2f}   ringside / its matrix products only {a / c:.2f}")


if __name__ == "__main__":
    main()
