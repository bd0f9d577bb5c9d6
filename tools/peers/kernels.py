#!/usr/bin/env python3
"""PyTorch's kernels for what `ringside bench kernels` measures, on a GPU.

    tools/peers/kernels.py [--size 256] [--width 1024] [--sequence 1024,4096,16384] [--json FILE]

Rows have the same names, sizes and columns as those of `ringside bench kernels --dtype bf16`, so the
two tables can be laid side by side: attention by SDPA's flash and cuDNN kernels, RMSNorm eager and
compiled, fused AdamW. Each row is printed, and written to FILE, as soon as it is measured; a kernel
that this PyTorch or this GPU lacks is a row with a reason instead of figures.
"""
import argparse
import json
import statistics
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256, help="of a tensor in MB")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--sequence", default="1024,4096,16384")
    parser.add_argument("--json")
    args = parser.parse_args()
    try:
        import torch
        import torch.nn.functional as F
    except ImportError as error:
        sys.exit(f"kernels.py: this Python has no torch: {error}")
    if not torch.cuda.is_available():
        sys.exit("kernels.py: torch found no GPU")
    rows = []

    def median_of(call):
        for _ in range(3):
            call()
        samples = []
        for _ in range(7):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(10):
                call()
            end.record()
            torch.cuda.synchronize()
            samples.append(begin.elapsed_time(end) * 1e-3 / 10)
        return statistics.median(samples)

    def take(kernel, by, make, bytes=0, flops=0):
        row = {"kernel": kernel, "by": by}
        try:
            seconds = median_of(make())
            row["time_us"] = seconds * 1e6
            if bytes:
                row |= {"bytes": bytes, "rate_gbps": bytes / seconds / 1e9}
            else:
                row |= {"flops": flops, "tflops": flops / seconds / 1e12}
        except Exception as error:  # the other rows are still worth having
            row["reason"] = f"{type(error).__name__}: {error}".splitlines()[0]
        torch.cuda.empty_cache()
        rows.append(row)
        print(json.dumps(row), flush=True)
        if args.json:
            facts = {"torch": torch.__version__, "cuda": torch.version.cuda,
                     "device": torch.cuda.get_device_name()}
            with open(args.json, "w") as file:
                json.dump([facts | row for row in rows], file, indent=1)

    def random(*shape, dtype=torch.bfloat16):
        return torch.randn(shape, device="cuda", dtype=dtype)

    elements = args.size * 10**6 // 2 // args.width * args.width
    tokens = elements // args.width

    warm = random(4096, 4096)
    median_of(lambda: warm @ warm)  # raises the clocks before the first row

    def copy():
        x, y = random(tokens, args.width), random(tokens, args.width)
        return lambda: y.copy_(x)

    take("copy", "copy_", copy, bytes=4 * elements)

    def rms_norm(compiled):
        x, weight = random(tokens, args.width), random(args.width)
        call = (lambda x, w: F.rms_norm(x, (args.width,), w, 1e-5))
        call = torch.compile(call) if compiled else call
        return lambda: call(x, weight)

    take("rms_norm", "eager", lambda: rms_norm(False), bytes=4 * elements)
    take("rms_norm", "compile", lambda: rms_norm(True), bytes=4 * elements)

    def adamw():
        parameter = random(elements, dtype=torch.float32).requires_grad_()
        parameter.grad = torch.randn_like(parameter)
        return torch.optim.AdamW([parameter], lr=1e-4, fused=True).step

    # Parameter, gradient, both moments in fp32: read, and all but the gradient written.
    take("adamw", "fused, fp32 gradient", adamw, bytes=28 * elements)

    def product():
        side = min(8192, tokens // 16 * 16)
        a, b = random(side, side), random(side, side)
        return lambda: a @ b.T

    side = min(8192, tokens // 16 * 16)
    take("matrix product", "cuBLAS", product, flops=2 * side**3)

    for sequence in (int(text) for text in args.sequence.split(",")):
        for head in (64, 128):
            batch, heads = max(1, min(16, tokens // sequence)), max(1, args.width // head)
            scores = batch * heads * sequence * (sequence + 1) / 2
            shape = f" T={sequence} D={head}"
            for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):

                def attention(backward, backend=backend):
                    from torch.nn.attention import SDPBackend, sdpa_kernel

                    q, k, v = (random(batch, heads, sequence, head).requires_grad_(backward)
                               for _ in range(3))

                    def forward():
                        with sdpa_kernel(getattr(SDPBackend, backend)):
                            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

                    if not backward:
                        return forward
                    y = forward()
                    dy = torch.randn_like(y)
                    return lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)

                take("attention" + shape, backend, lambda: attention(False), flops=4 * scores * head)
                take("attention backward" + shape, backend, lambda: attention(True),
                     flops=10 * scores * head)


if __name__ == "__main__":
    main()
