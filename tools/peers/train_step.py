#!/usr/bin/env python3
"""Compares the time of a training step with PyTorch's on this machine.

    tools/peers/train_step.py [--ringside build/release/bin/ringside] [--threads 1,2] [--rounds 3]
                              [--contenders fp32,bf16,eager,compile,autocast,autocast_compile]
    tools/peers/train_step.py --device cuda --model small --batch 8 --sequence 1024 [--json FILE]
                              [--contenders bf16,eager,compile,cudnn_compile]

Needs a Python with torch 1.13 or newer (2.0 for `compile`); the project itself does not. All sides
run the same Llama model, sizes, batch, clipping and AdamW. On the CPU:

    fp32, bf16          ringside bench train --dtype fp32 and bf16
    eager               PyTorch in fp32, AdamW fused where this version has that
    compile             the same under torch.compile
    autocast            the same as eager, with matrix products in bf16
    autocast_compile    both

On a GPU, where weights, activations and gradients are bf16, and AdamW updates fp32 masters:

    bf16                ringside bench train --device cuda --dtype bf16
    eager               PyTorch, fused AdamW, SDPA with its flash kernel
    compile             the same under torch.compile: each block, and the head with the loss
    cudnn_compile       the same with cuDNN's kernel of SDPA

Each round takes every contender in turn, so that a slow phase of the machine affects all. Variables
that hold a library back (OPENBLAS_CORETYPE and the like) are removed. Prints medians over the
rounds: of the step, of its ratio to the first contender's step in the same round, and the peak
memory: resident on the CPU, of tensors on a GPU. On a GPU also the utilisation: the operations of the
model's matrix products and of causal attention, for each second of the step, as a share of the
speed of a square product that PyTorch measures in the same round.
"""
import argparse
import contextlib
import json
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from llama import SIZES, adamw_options, let_libraries_choose, make_llama, require_torch
from machine import machine

OURS = ("fp32", "bf16")
CONTENDERS = {"cpu": OURS + ("eager", "compile", "autocast", "autocast_compile"),
              "cuda": ("bf16", "eager", "compile", "cudnn_compile")}


class Masters:
    """AdamW on fp32 copies of bf16 parameters, which become the copies rounded to bf16."""

    def __init__(self, parameters, options):
        import torch

        self.parameters = list(parameters)
        self.masters = [p.detach().float() for p in self.parameters]
        for master in self.masters:
            master.grad = torch.empty_like(master)
        self.optimizer = torch.optim.AdamW(self.masters, **options)

    def zero_grad(self, set_to_none):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        import torch

        with torch.no_grad():
            torch._foreach_copy_([m.grad for m in self.masters], [p.grad for p in self.parameters])
            self.optimizer.step()
            torch._foreach_copy_(self.parameters, self.masters)


def product_tflops():
    """The speed of a bf16 product of square matrices on the GPU."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            a @ b
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 10)
    return 2 * 8192**3 / statistics.median(times[2:]) * 1e-12


def model_flops(args):
    """Operations of forward and backward: matrix products, and attention below the diagonal."""
    d, _, d_ff, layers, vocabulary = SIZES[args.model]
    tokens = args.batch * args.sequence
    products = 6 * tokens * (layers * (4 * d * d + 3 * d * d_ff) + vocabulary * d)
    return products + 6 * tokens * args.sequence * layers * d


def attention_of(contender, args):
    """The kernel of SDPA that this contender takes; on the CPU the choice is PyTorch's."""
    if args.device == "cpu":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION if "cudnn" in contender
                       else SDPBackend.FLASH_ATTENTION)


def torch_child(contender, args, threads):
    """Answers each line of its input with the figures of a few steps."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    cuda = args.device == "cuda"
    vocabulary = SIZES[args.model][-1]
    model = make_llama(args.model, args.batch, args.sequence, args.device,
                       torch.bfloat16 if cuda else None)
    options = adamw_options(args.device)
    optimizer = (Masters(model.parameters(), options) if cuda
                 else torch.optim.AdamW(model.parameters(), **options))
    tokens, targets = (torch.randint(vocabulary, (args.batch, args.sequence), device=args.device)
                       for _ in range(2))

    def head(hidden, targets):
        logits = model.head(model.norm(hidden))
        return F.cross_entropy(logits.float().view(-1, vocabulary), targets.view(-1))

    def loss_of(tokens, targets):
        with (torch.autocast("cpu", dtype=torch.bfloat16) if "autocast" in contender
              else contextlib.nullcontext()):
            return head(model.hidden(tokens), targets)

    run = loss_of
    if "compile" in contender and cuda:
        # The blocks are alike, so it compiles one. All of them as one graph would take minutes.
        for block in model.blocks:
            block.compile()
        head = torch.compile(head)
    elif "compile" in contender:
        run = torch.compile(loss_of)

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = run(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()  # ours reads the loss in each step, too
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    for _ in sys.stdin:
        with attention_of(contender, args):
            times = [step() for _ in range(3 + args.steps)]
        answer = {"step_ms": statistics.median(times[3:]) * 1e3, "version": torch.__version__,
                  "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}
        if cuda:
            answer |= {"peak_mb": torch.cuda.max_memory_allocated() / 1e6,
                       "version": f"{torch.__version__} on {torch.cuda.get_device_name()}",
                       "product_tflops": product_tflops()}
            torch.cuda.reset_peak_memory_stats()
        print(json.dumps(answer), flush=True)


def sizes_of(args):
    return ["--model", args.model, "--batch", str(args.batch), "--sequence", str(args.sequence),
            "--steps", str(args.steps), "--device", args.device]


def run_ours(dtype, args, threads):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([*shlex.split(args.ringside), "bench", "train", *sizes_of(args), "--dtype", dtype,
                        "--threads", threads, "--json", file.name], check=True,
                       stdout=subprocess.DEVNULL)
        row = json.load(file)[0]
    cuda = args.device == "cuda"
    return {"step_ms": row["step_ms"], "alone_ms": row["gemm_alone_ms"],
            "peak_mb": row["peak_tensor_bytes" if cuda else "peak_resident_bytes"] / 1e6,
            "version": "cuBLAS" if cuda else f"{row['blas']} {row['blas_kernel']}; products of fp32: "
                       f"{row['fp32_products']}, of bf16: {row['bf16_products']}"}


class TorchChild:
    """A process with one of PyTorch's contenders."""

    def __init__(self, contender, args, threads):
        self.name = contender
        self.process = subprocess.Popen(
            [sys.executable, __file__, *sizes_of(args), "--threads", threads,
             "--torch-child", contender],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise subprocess.CalledProcessError(self.process.wait(), self.name)
        return json.loads(line)

    def close(self):
        with contextlib.suppress(BrokenPipeError):  # it has failed
            self.process.stdin.close()
        self.process.wait()


def run_torch(contender, args, threads):
    child = TorchChild(contender, args, threads)
    child.ask()
    answer = child.answer()
    child.close()
    return answer


def measure(contenders, args, threads, see):
    """Calls see(answers), the answers of each contender, after each of them; contenders that failed
    are left out. On a GPU a contender of PyTorch is compiled once, in a process that waits for its
    turns: compiling takes longer than all steps."""
    answers = {name: [] for name in contenders}
    children = {}

    def take(name, run):
        try:
            return run()
        except (subprocess.CalledProcessError, BrokenPipeError) as error:
            print(f"    {name} failed and is left out: {error}", flush=True)
            answers.pop(name, None)

    if args.device == "cuda":
        children = {name: TorchChild(name, args, threads) for name in contenders
                    if name not in OURS}
        for child in children.values():
            take(child.name, child.ask)
        for child in children.values():
            take(child.name, child.answer)  # not counted: the others compile beside it
    for _ in range(args.rounds):
        for name in list(answers):
            def run():
                if name not in children:
                    return (run_ours if name in OURS else run_torch)(name, args, threads)
                children[name].ask()
                return children[name].answer()

            answer = take(name, run)
            if answer:
                answers[name].append(answer)
                see({each: all for each, all in answers.items() if all})
    for child in children.values():
        child.close()
    if not answers:
        sys.exit(f"{sys.argv[0]}: every contender failed: see the messages above")
    return answers


def rows_of(answers, args):
    """The figures of each contender."""
    first = [answer["step_ms"] for answer in next(iter(answers.values()))]
    speeds = [answer["product_tflops"] for all in answers.values() for answer in all
              if "product_tflops" in answer]
    rows = []
    for name in answers:
        steps = [answer["step_ms"] for answer in answers[name]]
        step = statistics.median(steps)
        row = {"contender": name, "by": "Ringside" if name in OURS else "PyTorch",
               "version": answers[name][0]["version"], "model": args.model, "batch": args.batch,
               "sequence": args.sequence, "device": args.device, "step_ms": step,
               "steps_ms": steps, "ratio": statistics.median(a / b for a, b in zip(steps, first)),
               "tokens_per_second": args.batch * args.sequence / step * 1e3,
               "peak_mb": max(answer["peak_mb"] for answer in answers[name])}
        if speeds:
            row |= {"product_tflops": statistics.median(speeds),
                    "utilisation": model_flops(args) / step * 1e-9 / statistics.median(speeds)}
        rows.append(row)
    return rows


def print_table(answers, args, threads):
    rows = rows_of(answers, args)
    print(f"  {threads} thread(s){'':<20}{'step':>10}{'to ' + rows[0]['contender']:>10}{'memory':>12}")
    digits = 2 if args.device == "cuda" else 0
    for row in rows:
        name = row["contender"]
        line = (f"    {row['by']:<8} {name:<20}{row['step_ms']:>8.{digits}f} ms{row['ratio']:>10.2f}"
                f"{row['peak_mb']:>9.0f} MB")
        if "utilisation" in row:
            line += f"{100 * row['utilisation']:>6.1f} % of {row['product_tflops']:.0f} TFLOP/s"
        if name in OURS:
            alone = statistics.median(a["step_ms"] / a["alone_ms"] for a in answers[name])
            line += f"   {alone:.2f} of its products alone"
        print(line)
    for whose in ("Ringside", "PyTorch"):
        versions = {row["version"] for row in rows if row["by"] == whose}
        if versions:
            print(f"    {whose}: {'; '.join(sorted(versions))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringside", metavar="COMMAND", default="build/release/bin/ringside")
    parser.add_argument("--device", default="cpu", choices=CONTENDERS)
    parser.add_argument("--contenders")
    parser.add_argument("--model", default="lab", choices=SIZES)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--threads", help="on the CPU [1,2]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="[7; on a GPU 20]")
    parser.add_argument("--json", help="write the figures of the last number of threads to this file")
    parser.add_argument("--torch-child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.steps = args.steps or (7 if args.device == "cpu" else 20)
    require_torch()
    if args.torch_child:
        return torch_child(args.torch_child, args, int(args.threads))

    contenders = args.contenders.split(",") if args.contenders else CONTENDERS[args.device]
    for name in contenders:
        if name not in CONTENDERS[args.device]:
            parser.error(f"there is no contender '{name}' on {args.device}: take "
                         f"{', '.join(CONTENDERS[args.device])}")
    let_libraries_choose()
    print(machine())
    print(f"{args.model}, batch {args.batch} x {args.sequence}, AdamW, on {args.device}; "
          f"medians of {args.rounds} rounds of {args.steps} steps")

    def keep(answers):
        if args.json:
            with open(args.json, "w") as file:
                json.dump(rows_of(answers, args), file, indent=1)

    for threads in (args.threads or ("1,2" if args.device == "cpu" else "1")).split(","):
        print_table(measure(contenders, args, threads, keep), args, threads)


if __name__ == "__main__":
    main()
