#!/usr/bin/env python3
"""Compares the backends ringside and gloo of torch.distributed, in one run.

    tools/peers/torch_backends.py [-n 2,4] [--bytes 4,1000,64000,1000000,10000000,100000000]
                                  [--rounds 5] [--model tiny] [--backends shm,tcp]

Needs a Python with torch, and the package: PYTHONPATH=build/release/python. The same ranks have a
group of each backend and use them in turns, so that a slow phase of the machine affects all. Prints
medians over the rounds: of the time of a call, or of a step of DDP on the CPU (forward, backward
with overlap, AdamW), and of its ratio to gloo's in the same round.
"""
import argparse
import os
import statistics
import tempfile
import time

from llama import SIZES, adamw_options, make_llama, require_torch

require_torch()
import torch
import torch._dynamo  # DDP needs it: imported once, before the ranks are forked
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def time_calls(group, bytes):
    tensor = torch.zeros(max(1, bytes // 4))
    calls = max(3, min(1000, 20_000_000 // bytes))
    for _ in range(max(2, calls // 10)):
        dist.all_reduce(tensor, group=group)
    dist.barrier(group)
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - start) / calls


class Training:
    def __init__(self, group, model):
        self.net = DistributedDataParallel(make_llama(model, 4, 128), process_group=group)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), **adamw_options())
        self.tokens = torch.randint(SIZES[model][-1], (4, 128))

    def step(self):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(self.tokens).flatten(0, 1),
                                                 self.tokens.flatten())
        loss.backward()
        self.optimizer.step()

    def time(self, steps=5):
        self.step()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - start) / steps


def new_group(name):
    if name == "gloo":
        return dist.new_group(backend="gloo")
    os.environ["RINGSIDE_BACKEND"] = name
    return dist.new_group(backend="ringside")


def measure(rank, size, args, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    names = ["gloo", *args.backends.split(",")]
    groups = {name: new_group(name) for name in names}
    for bytes in map(int, args.bytes.split(",")):
        report(rank, size, f"{bytes} B", names, args.rounds,
               lambda name: time_calls(groups[name], bytes), 1e6, "us")
    training = {name: Training(group, args.model) for name, group in groups.items()}
    report(rank, size, f"step, {args.model}", names, args.rounds,
           lambda name: training[name].time(), 1e3, "ms")
    dist.destroy_process_group()


def report(rank, size, what, names, rounds, seconds_of, unit, text):
    times = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            dist.barrier()
            times[name].append(seconds_of(name))
    if rank != 0:
        return
    line = f"{size:>5}  {what:>12}  {unit * statistics.median(times['gloo']):>10.1f} {text}"
    for name in names[1:]:
        ratio = statistics.median(g / t for g, t in zip(times["gloo"], times[name]))
        line += f"  {unit * statistics.median(times[name]):>10.1f} {text}  {ratio:>5.2f}x"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", default="2,4")
    parser.add_argument("--bytes", default="4,1000,64000,1000000,10000000,100000000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="tiny", choices=SIZES)
    parser.add_argument("--backends", default="shm,tcp")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {os.cpu_count()} cores; all-reduce of fp32, and a step of DDP")
    print(f"ranks  {'':>12}  {'gloo':>13}" + "".join(
        f"  {'ringside ' + name:>13}  ratio" for name in args.backends.split(",")), flush=True)
    context = torch.multiprocessing.get_context("fork")
    for size in map(int, args.n.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [context.Process(target=measure, args=(rank, size, args, f"{folder}/store"))
                     for rank in range(size)]
            for each in ranks:
                each.start()
            for each in ranks:
                each.join()


if __name__ == "__main__":
    main()
