#!/usr/bin/env python3
"""Data parallelism and sharding of ours beside PyTorch's, in turn, on this machine.

    tools/peers/parallel_step.py [--ringside build/release/bin/ringside] [--backends shm,tcp] [--rounds 3] [--json FILE]

Needs a Python that has torch (any version from 1.13 on); the project itself does not. The same Llama, sizes, batch, clipping and AdamW on
both sides, fp32, so many processes on this machine, each on so many threads. PyTorch's ranks talk by Gloo over loopback:

    no communication    each rank for itself                  bench ddp, the same
    data parallel       DistributedDataParallel               bench ddp, bucketed
    ZeRO-1              the same, ZeroRedundancyOptimizer     bench zero, zero1
    FSDP                fully_shard of each block             bench zero, zero3

Each round starts ours once and PyTorch once, so that a machine that drifts does so for both, and on both sides the strategies take turns step by
step. A step's time is the slowest rank's; what is printed are medians over the steps, and of these over the rounds.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from llama import SIZES, make_llama, require_torch

STRATEGIES = {"none": "no communication", "bucketed": "data parallel", "zero1": "ZeRO-1", "zero3": "FSDP"}


def make_contender(strategy, said):
    """A model and its optimizer under one of STRATEGIES."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = make_llama(said.model, said.batch, said.sequence)
    options = {"lr": 1e-4, "weight_decay": 0.1}
    if strategy in ("bucketed", "zero1"):
        model = DistributedDataParallel(model, bucket_cap_mb=said.bucket_mb, gradient_as_bucket_view=True)
    if strategy == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=True, **options)
    if strategy == "zero3":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (said.ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), **options)


def contenders_of(said):
    """Those that this version of PyTorch can make, and why the others are missing."""
    contenders, missing = {}, {}
    for strategy in said.strategies.split(","):
        try:
            contenders[strategy] = make_contender(strategy, said)
        except Exception as error:  # whatever this version says
            missing[strategy] = f"{type(error).__name__}: {error}".splitlines()[0]
    return contenders, missing


def torch_rank(said):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    torch.set_num_threads(said.threads)
    torch.set_num_interop_threads(1)
    dist.init_process_group("gloo")
    vocabulary = SIZES[said.model][-1]
    contenders, missing = contenders_of(said)
    generator = torch.Generator().manual_seed(dist.get_rank())
    tokens, targets = (torch.randint(vocabulary, (said.batch, said.sequence), generator=generator) for _ in range(2))

    def step(strategy, model, optimizer):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=strategy not in ("bucketed", "zero1"))  # DDP's gradients are views into its buckets
        F.cross_entropy(model(tokens).view(-1, vocabulary), targets.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return float(seconds)

    times = {strategy: [] for strategy in contenders}
    for _ in range(2 + said.steps):
        for strategy, contender in contenders.items():
            times[strategy].append(step(strategy, *contender))
    if dist.get_rank() == 0:
        print(json.dumps({"version": torch.__version__, "missing": missing,
                          "step_ms": {strategy: statistics.median(seconds[2:]) * 1e3 for strategy, seconds in times.items()}}))
    dist.destroy_process_group()


def run_torch(said):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": str(said.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, *sys.argv, "--torch-rank"]
    ranks = [subprocess.Popen(command, env={**os.environ, **place, "RANK": str(r)}, stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL if r else None, text=True) for r in range(said.ranks)]
    answer = ranks[0].communicate()[0]
    if any(rank.wait() != 0 for rank in ranks):
        sys.exit("a rank of PyTorch failed: what it said stands above")
    return json.loads(answer.splitlines()[-1])


def run_ours(said, bench, more):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [said.ringside, "bench", bench, "-n", str(said.ranks), "--model", said.model, "--batch", str(said.batch), "--sequence",
                   str(said.sequence), "--threads", str(said.threads), "--steps", str(said.steps), "--json", file.name, *more]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(f"this failed: {' '.join(command)}")
        return json.load(file)


def one_round_of_ours(said):
    """(strategy, backend) -> milliseconds."""
    asked, rows = said.strategies.split(","), []
    figures = run_ours(said, "ddp", ["--backend", said.backends, "--strategies", "bucketed", "--buckets", str(said.bucket_mb)])
    for one in figures if isinstance(figures, list) else [figures]:
        rows += [(row["strategy"], row["backend"], row["step_ms"]) for row in one["rows"]]
    sharded = [strategy for strategy in asked if strategy.startswith("zero")]
    if sharded:
        figures = run_ours(said, "zero", ["--backend", said.backends, "--strategies", ",".join(sharded), "--bucket-mb", str(said.bucket_mb)])
        rows += [(row["strategy"], row["backend"], row["step_ms"]) for row in figures]
    return {(strategy, backend): ms for strategy, backend, ms in rows if strategy in asked}


def print_table(said, ours, theirs):
    backends = said.backends.split(",")
    print(f"  {'step (ms)':<18}" + "".join(f"{'ringside ' + b:>16}" for b in backends) + f"{'torch gloo':>14}" +
          "".join(f"{'torch / ' + b:>14}" for b in backends))
    for strategy, name in STRATEGIES.items():
        if strategy not in said.strategies.split(","):
            continue
        own = [ours[strategy, backend] for backend in backends]
        line = f"  {name:<18}" + "".join(f"{ms:>10.0f}{ms / ours['none', b]:>6.2f}" for ms, b in zip(own, backends))
        if strategy in theirs:
            line += f"{theirs[strategy]:>8.0f}{theirs[strategy] / theirs['none']:>6.2f}" + "".join(f"{theirs[strategy] / ms:>14.2f}" for ms in own)
        print(line)
    print("  beside each time its ratio to the step without communication")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringside", default="build/release/bin/ringside")
    parser.add_argument("--model", default="lab", choices=SIZES)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="sequences of each rank")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--backends", default="shm,tcp", help="of ours: shm, tcp, or both")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="some of these; none is what the others are held against")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--json", help="write the medians there")
    parser.add_argument("--torch-rank", action="store_true", help=argparse.SUPPRESS)
    said = parser.parse_args()
    require_torch()
    if "none" not in said.strategies.split(","):
        said.strategies = "none," + said.strategies
    if said.torch_rank:
        return torch_rank(said)

    ours, theirs, answer = {}, {}, {}
    for _ in range(said.rounds):
        for key, ms in one_round_of_ours(said).items():
            ours.setdefault(key, []).append(ms)
        answer = run_torch(said)
        for strategy, ms in answer["step_ms"].items():
            theirs.setdefault(strategy, []).append(ms)
    ours, theirs = ({key: statistics.median(ms) for key, ms in side.items()} for side in (ours, theirs))
    print(f"{said.model}, batch {said.batch} x {said.sequence} of each of {said.ranks} ranks, {said.threads} thread(s) each, fp32, AdamW; torch "
          f"{answer['version']}; medians of {said.rounds} rounds of {said.steps} steps")
    print_table(said, ours, theirs)
    for strategy, why in answer["missing"].items():
        print(f"  torch's {STRATEGIES[strategy]} is not here: {why}")
    if said.json:
        rows = [{"strategy": strategy, "library": f"ringside {backend}", "step_ms": ms} for (strategy, backend), ms in ours.items()]
        rows += [{"strategy": strategy, "library": f"torch {answer['version']} gloo", "step_ms": ms} for strategy, ms in theirs.items()]
        with open(said.json, "w") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
