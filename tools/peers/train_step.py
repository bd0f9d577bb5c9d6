#!/usr/bin/env python3
"""Compares the time of a training step with PyTorch's on this machine.

    tools/peers/train_step.py [--ringside build/release/bin/ringside] [--threads 1,2] [--rounds 3]
                              [--contenders fp32,bf16,eager,compile,autocast,autocast_compile]

Needs a Python with torch 1.13 or newer (2.0 for `compile`); the project itself does not. All sides
run the same Llama model, sizes, batch, clipping and AdamW:

    fp32, bf16          ringside bench train --dtype fp32 and bf16
    eager               PyTorch in fp32, AdamW fused where this version has that
    compile             the same under torch.compile
    autocast            the same as eager, with matrix products in bf16
    autocast_compile    both

Each round runs every contender once, so that a slow phase of the machine affects all. Variables
that hold a library back (OPENBLAS_CORETYPE and the like) are removed. Prints medians over the
rounds: of the step, of its ratio to the first contender's step in the same round, and the peak
resident memory.
"""
import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from llama import SIZES, adamw_options, let_libraries_choose, make_llama, require_torch

OURS = ("fp32", "bf16")
THEIRS = ("eager", "compile", "autocast", "autocast_compile")


def torch_step(contender, args, threads):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    vocabulary = SIZES[args.model][-1]
    model = make_llama(args.model, args.batch, args.sequence)
    optimizer = torch.optim.AdamW(model.parameters(), **adamw_options())
    run = torch.compile(model) if "compile" in contender else model
    tokens, targets = (torch.randint(vocabulary, (args.batch, args.sequence)) for _ in range(2))
    times = []
    for _ in range(3 + args.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with (torch.autocast("cpu", dtype=torch.bfloat16) if "autocast" in contender
              else contextlib.nullcontext()):
            logits = run(tokens)
        F.cross_entropy(logits.float().view(-1, vocabulary), targets.view(-1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - start)
    return {"step_ms": statistics.median(times[3:]) * 1e3, "version": torch.__version__,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def sizes_of(args):
    return ["--model", args.model, "--batch", str(args.batch), "--sequence", str(args.sequence),
            "--steps", str(args.steps)]


def run_ours(dtype, args, threads):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([args.ringside, "bench", "train", *sizes_of(args), "--dtype", dtype,
                        "--threads", threads, "--json", file.name], check=True,
                       stdout=subprocess.DEVNULL)
        row = json.load(file)[0]
    return {"step_ms": row["step_ms"], "alone_ms": row["gemm_alone_ms"],
            "peak_mb": row["peak_resident_bytes"] / 1e6,
            "version": f"{row['blas']} {row['blas_kernel']}; products of fp32: "
                       f"{row['fp32_products']}, of bf16: {row['bf16_products']}"}


def run_torch(contender, args, threads):
    answer = subprocess.run([sys.executable, __file__, *sizes_of(args), "--threads", threads,
                             "--torch-child", contender],
                            check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(answer.stdout.splitlines()[-1])


def measure(contenders, args, threads):
    """The answers of each contender, one for each round."""
    answers = {name: [] for name in contenders}
    for _ in range(args.rounds):
        for name in contenders:
            run = run_ours if name in OURS else run_torch
            answers[name].append(run(name, args, threads))
    return answers


def print_table(contenders, answers, threads):
    first = [answer["step_ms"] for answer in answers[contenders[0]]]
    print(f"  {threads} thread(s){'':<20}{'step':>10}{'to ' + contenders[0]:>10}{'memory':>12}")
    for name in contenders:
        steps = [answer["step_ms"] for answer in answers[name]]
        ratio = statistics.median(a / b for a, b in zip(steps, first))
        whose = "Ringside" if name in OURS else "PyTorch"
        line = (f"    {whose} {name:<20}{statistics.median(steps):>8.0f} ms{ratio:>10.2f}"
                f"{max(answer['peak_mb'] for answer in answers[name]):>9.0f} MB")
        if name in OURS:
            alone = statistics.median(a["step_ms"] / a["alone_ms"] for a in answers[name])
            line += f"   {alone:.2f} of its products alone"
        print(line)
    for whose, names in (("Ringside", OURS), ("PyTorch", THEIRS)):
        versions = {answer["version"] for name in names for answer in answers.get(name, [])}
        if versions:
            print(f"    {whose}: {'; '.join(sorted(versions))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringside", default="build/release/bin/ringside")
    parser.add_argument("--contenders", default=",".join(OURS + THEIRS))
    parser.add_argument("--model", default="lab", choices=SIZES)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--torch-child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    require_torch()
    if args.torch_child:
        return print(json.dumps(torch_step(args.torch_child, args, int(args.threads))))

    contenders = args.contenders.split(",")
    for name in contenders:
        if name not in OURS + THEIRS:
            parser.error(f"there is no contender '{name}': take {', '.join(OURS + THEIRS)}")
    let_libraries_choose()
    print(f"{args.model}, batch {args.batch} x {args.sequence}, AdamW; "
          f"medians of {args.rounds} rounds of {args.steps} steps")
    for threads in args.threads.split(","):
        print_table(contenders, measure(contenders, args, threads), threads)


if __name__ == "__main__":
    main()
