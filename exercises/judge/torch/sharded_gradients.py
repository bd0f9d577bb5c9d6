"""What the cases of sharded gradients do in a rank: the net and the steps of exercises/judge/zero/deep_net.cpp, in torch.

`make` is the student's class ShardedGradients(module, bucket_size_mb), or a function that calls it.
"""
import contextlib

import torch
import torch.distributed as dist
from data_parallel import as_json, backward, layer_of, register_hook, tensor_of
from ledger import Ledger
from torch.nn import functional

gather = dist.all_gather_into_tensor  # as it was before the student's code came
DEPTH, WIDTH = 20, 16
BUCKET = WIDTH * (WIDTH + 1) * 8  # bytes of a layer, which is a bucket


class DeepNet(torch.nn.Module):
    """Twenty layers of one size. `entered(number)` is called when backward enters a layer."""

    def __init__(self, witness, entered=None):
        super().__init__()
        self.entered = entered
        for each in witness.ask("deep", DEPTH, WIDTH):
            self.add_module(each["name"], layer_of(each))

    def forward(self, x):
        for number, layer in enumerate(self.children()):
            y = layer(x)
            if self.entered:
                register_hook(y, lambda _, number=number: self.entered(number))
            x = x + functional.silu(y)
        return x.sum()


def rows_of(witness, batch):
    return tensor_of(witness.ask("batch", batch, 4 * WIDTH)).view(4, WIDTH)


class WithWholeGradients:
    """The student's method as one of data parallelism: after a step parameter.grad is whole on every rank. The judge collects it."""

    def __init__(self, model):
        self.model, self.no_sync = model, model.no_sync

    def __call__(self, *inputs, **options):
        return self.model(*inputs, **options)

    def finish_gradient_synchronization(self):
        self.model.finish_gradient_synchronization()
        for bucket, shard in zip(self.model.buckets, self.model.shards):
            whole, begin = torch.empty(dist.get_world_size() * shard.numel(), dtype=shard.dtype), 0
            gather(whole, shard)
            for parameter in bucket:
                part = whole[begin:begin + parameter.numel()].view_as(parameter)
                parameter.grad = part.clone() if parameter in self.model.had_gradient else None
                begin += parameter.numel()


def step_of_deep_net(witness, make, size):
    """One step, whose calls reach the network only when backward waits, or has ended: without a limit every bucket would be filled first.
    Memory is what exists beyond that of a step without the student's method, at the same moment."""
    own_rows = rows_of(witness, 0)
    with Ledger() as ledger:
        plain, seen, big = [0] * DEPTH, [0] * DEPTH, [0]

        def note_plain(number):
            plain[number] = ledger.bytes() - sum(each.grad.nbytes for each in net.parameters() if each.grad is not None)

        net = DeepNet(witness, note_plain)
        backward(net(own_rows))
        net.zero_grad()
        at_rest = ledger.bytes()
        model = make(net, BUCKET / 1e6)

        def note(number):
            seen[number] = ledger.bytes() - plain[number]
            big.append(sum(each >= 0.9 * BUCKET for each in ledger.sizes(since)))

        net.entered = note
        witness.doing("a step of twenty layers")
        loss = model(own_rows)
        ledger.bytes()
        since = ledger.count
        witness.barrier()
        witness.mark("clear")
        witness.mark("hold")
        backward(loss)
        overlaps = witness.mark("overlaps")
        witness.mark("release", 0)
        del loss
        ledger.most = 0
        model.finish_gradient_synchronization()
        kept, peak = ledger.bytes() - at_rest, max(*seen, ledger.most - at_rest)
        shards = DEPTH * -(-BUCKET // size // 64) * 64
        return {"peak": peak, "kept": min(kept, shards) if kept < shards + 1000 else kept, "kept of all kinds": kept, "open": max(big),
                "open at the end": sum(each >= 0.9 * BUCKET for each in ledger.sizes(since)), "overlaps": overlaps,
                "calls": witness.mark("names"), "sent": witness.mark("sent")}


def micro_batches(witness, make):
    """The gradients of two steps of three micro-batches."""
    net = DeepNet(witness)
    model, seen = WithWholeGradients(make(net, BUCKET / 1e6)), []
    for step in range(2):
        net.zero_grad()
        for i in range(3):
            witness.doing(f"step {step}, micro-batch {i}")
            with model.no_sync() if i < 2 else contextlib.nullcontext():
                backward(model(rows_of(witness, i)))
        model.finish_gradient_synchronization()
        seen.append({name: as_json(each.grad) for name, each in net.named_parameters()})
    return seen
