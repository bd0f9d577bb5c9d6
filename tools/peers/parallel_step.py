#!/usr/bin/env python3
"""Compares data parallelism and ZeRO with PyTorch's on this machine.

    tools/peers/parallel_step.py [--ringside build/release/bin/ringside] [--backends shm,tcp]
                                 [--contenders fp32,bf16,eager,compile,autocast] [--rounds 3]
                                 [--json FILE]

PyTorch's contenders need a Python with torch 1.13 or newer (2.0 for `compile`). All sides run the
same Llama model, sizes, batch, clipping and AdamW, with the same number of processes and threads.
PyTorch's ranks communicate through Gloo over loopback:

    no communication    each rank alone                       bench ddp, none
    data parallel       DistributedDataParallel               bench ddp, bucketed
    ZeRO-1              DDP and ZeroRedundancyOptimizer       bench zero, zero1
    FSDP                fully_shard of each block             bench zero, zero3

Contenders are fp32 and bf16 (Ringside; bench zero has fp32 only), and PyTorch eager in fp32, under
torch.compile, or with autocast to bf16. Each round runs every contender once, so that a slow phase
of the machine affects all. Within a contender the strategies take turns, one step each. The time of
a step is that of the slowest rank. Variables that hold a library back (OPENBLAS_CORETYPE and the
like) are removed. Prints medians over the rounds of the medians over the steps.
"""
import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from llama import SIZES, adamw_options, let_libraries_choose, make_llama, require_torch
from machine import machine

STRATEGIES = {"none": "no communication", "bucketed": "data parallel", "zero1": "ZeRO-1",
              "zero3": "FSDP"}
OURS = ("fp32", "bf16")
THEIRS = ("eager", "compile", "autocast")


def make_contender(strategy, args):
    """The model and its optimizer under one of STRATEGIES."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = make_llama(args.model, args.batch, args.sequence)
    options = adamw_options()
    if strategy in ("bucketed", "zero1"):
        model = DistributedDataParallel(model, bucket_cap_mb=args.bucket_mb,
                                        gradient_as_bucket_view=True)
    if strategy == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW,
                                              parameters_as_bucket_view=True, **options)
    if strategy == "zero3":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (args.ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), **options)


def contenders_of(args):
    """The contenders that this version of PyTorch supports, and why it lacks the others."""
    contenders, missing = {}, {}
    for strategy in args.strategies.split(","):
        try:
            model, optimizer = make_contender(strategy, args)
            if args.torch_rank == "compile":
                model.compile()
            contenders[strategy] = model, optimizer
        except Exception as error:  # any error: the strategy is not supported
            missing[strategy] = f"{type(error).__name__}: {error}".splitlines()[0]
    return contenders, missing


def torch_rank(args):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    dist.init_process_group("gloo")
    vocabulary = SIZES[args.model][-1]
    contenders, missing = contenders_of(args)
    wide = contextlib.nullcontext()
    narrow = torch.autocast("cpu", dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(dist.get_rank())
    tokens, targets = (torch.randint(vocabulary, (args.batch, args.sequence), generator=generator)
                       for _ in range(2))

    def step(strategy, model, optimizer):
        dist.barrier()
        start = time.perf_counter()
        # DDP's gradients are views into its buckets.
        optimizer.zero_grad(set_to_none=strategy not in ("bucketed", "zero1"))
        with narrow if args.torch_rank == "autocast" else wide:
            logits = model(tokens)
        F.cross_entropy(logits.float().view(-1, vocabulary), targets.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return float(seconds)

    times = {strategy: [] for strategy in contenders}
    for _ in range(2 + args.steps):
        for strategy, contender in contenders.items():
            times[strategy].append(step(strategy, *contender))
    if dist.get_rank() == 0:
        step_ms = {strategy: statistics.median(seconds[2:]) * 1e3
                   for strategy, seconds in times.items()}
        print(json.dumps({"version": torch.__version__, "missing": missing, "step_ms": step_ms}))
    dist.destroy_process_group()


def run_torch(contender, args):
    """strategy -> milliseconds, and more: what rank 0 prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A graph that PyTorch 2.15 finds in its cache, compiled without DistributedDataParallel, fails
    # under it ("Cannot access data pointer of Tensor").
    environment = {**os.environ, "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
                   "WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, *sys.argv, "--torch-rank", contender]
    ranks = [subprocess.Popen(command, env={**environment, "RANK": str(r)}, text=True,
                              stdout=subprocess.DEVNULL if r else subprocess.PIPE,
                              stderr=subprocess.DEVNULL if r else None)
             for r in range(args.ranks)]
    answer = ranks[0].communicate()[0]
    if any(rank.wait() != 0 for rank in ranks):
        sys.exit("a rank of PyTorch failed: its message is above")
    return json.loads(answer.splitlines()[-1])


def run_ringside(args, bench, more):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [args.ringside, "bench", bench, "-n", str(args.ranks), "--model", args.model,
                   "--batch", str(args.batch), "--sequence", str(args.sequence),
                   "--threads", str(args.threads), "--steps", str(args.steps),
                   "--json", file.name, *more]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(f"the command failed: {' '.join(command)}")
        return json.load(file)


def run_ours(dtype, args):
    """backend -> strategy -> milliseconds."""
    asked, rows = args.strategies.split(","), []
    figures = run_ringside(args, "ddp", ["--backend", args.backends, "--strategies", "bucketed",
                                         "--buckets", str(args.bucket_mb), "--dtype", dtype])
    for one in figures if isinstance(figures, list) else [figures]:
        rows += one["rows"]
    sharded = [strategy for strategy in asked if strategy.startswith("zero")]
    if sharded and dtype == "fp32":
        rows += run_ringside(args, "zero", ["--backend", args.backends,
                                            "--strategies", ",".join(sharded),
                                            "--bucket-mb", str(args.bucket_mb)])
    times = {backend: {} for backend in args.backends.split(",")}
    for row in rows:
        if row["strategy"] in asked:
            times[row["backend"]][row["strategy"]] = row["step_ms"]
    return times


def measure(args):
    """Row of the table -> strategy -> median milliseconds; and what PyTorch said last."""
    rounds, answer = {}, {"missing": {}, "version": "not measured"}

    def note(row, times):
        for strategy, ms in times.items():
            rounds.setdefault(row, {}).setdefault(strategy, []).append(ms)

    for _ in range(args.rounds):
        for contender in args.contenders.split(","):
            if contender in OURS:
                for backend, times in run_ours(contender, args).items():
                    note(f"Ringside {contender}, {backend}", times)
            else:
                answer = run_torch(contender, args)
                note(f"PyTorch {contender}, Gloo", answer["step_ms"])
    medians = {row: {strategy: statistics.median(ms) for strategy, ms in times.items()}
               for row, times in rounds.items()}
    return medians, answer


def print_table(args, medians):
    asked = [strategy for strategy in STRATEGIES if strategy in args.strategies.split(",")]
    print(f"  {'step, ms':<24}" + "".join(f"{STRATEGIES[strategy]:>19}" for strategy in asked))
    first = {}  # time of the first row that has the strategy
    for times in medians.values():
        first = {**times, **first}
    for row, times in medians.items():
        line = f"  {row:<24}"
        for strategy in asked:
            ms = times.get(strategy)
            line += (f"{ms:>7.0f}{ms / times['none']:>6.2f}{ms / first[strategy]:>6.2f}" if ms
                     else f"{'-':>7}{'':>12}")
        print(line.rstrip())
    print("  beside each time: its ratio to the same row's step without communication, and to the "
          "first")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringside", default="build/release/bin/ringside")
    parser.add_argument("--model", default="lab", choices=SIZES)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="sequences per rank")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1, help="threads per rank")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--backends", default="shm,tcp",
                        help="Ringside's backends: shm, tcp, or both")
    parser.add_argument("--contenders", default=",".join(OURS + THEIRS))
    parser.add_argument("--strategies", default=",".join(STRATEGIES),
                        help="some of these; none is the baseline")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--json", help="write the medians to this file")
    parser.add_argument("--torch-rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if set(args.contenders.split(",")) & set(THEIRS):
        require_torch()
    let_libraries_choose()
    if "none" not in args.strategies.split(","):
        args.strategies = "none," + args.strategies
    if args.torch_rank:
        return torch_rank(args)

    for name in args.contenders.split(","):
        if name not in OURS + THEIRS:
            parser.error(f"there is no contender '{name}': take {', '.join(OURS + THEIRS)}")
    medians, answer = measure(args)
    print(machine())
    print(f"{args.model}, batch {args.batch} x {args.sequence} of each of {args.ranks} ranks, "
          f"{args.threads} thread(s) each, AdamW; PyTorch {answer['version']}; "
          f"medians of {args.rounds} rounds of {args.steps} steps")
    print_table(args, medians)
    for strategy, why in answer["missing"].items():
        print(f"  PyTorch's {STRATEGIES[strategy]} is not available: {why}")
    if args.json:
        rows = [{"contender": row, "strategy": strategy, "step_ms": ms}
                for row, times in medians.items() for strategy, ms in times.items()]
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
