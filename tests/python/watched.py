"""Programs that `ringside watch` judges: watched.py CASE SIZE. Right answers, and wrong ones whose
weights are right, as students write them."""

import sys

import torch
import torch.distributed as dist
from ranks import begin, on_ranks


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(24, 24) for _ in range(4))
        self.norm = torch.nn.LayerNorm(24)
        self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.norm(x)


def trained(parameters):
    return [p for p in parameters if p.requires_grad]


# ---- Data parallel: how the gradients are averaged


class Overlap:
    """Each gradient starts when it is ready."""

    waits = False

    def __init__(self, net):
        self.works = []
        for parameter in trained(net.parameters()):
            parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        work = dist.all_reduce(parameter.grad, async_op=True)
        if self.waits:
            work.wait()
        self.works.append((work, parameter))

    def finish(self):
        for work, parameter in self.works:
            work.wait()
            parameter.grad /= dist.get_world_size()
        self.works.clear()


class WaitsInHook(Overlap):
    waits = True


class SyncAtEnd:
    def __init__(self, net):
        self.net = net

    def finish(self):
        works = [dist.all_reduce(p.grad, async_op=True) for p in trained(self.net.parameters())]
        for work in works:
            work.wait()
        for parameter in trained(self.net.parameters()):
            parameter.grad /= dist.get_world_size()


# ---- Sharded optimizer: who keeps which state


class Sharded:
    whole = False

    def __init__(self, parameters):
        self.parameters = trained(parameters)
        self.owners = self.owners_of(self.parameters, dist.get_world_size())
        self.adamw = torch.optim.AdamW(
            [
                p
                for p, owner in zip(self.parameters, self.owners)
                if self.whole or owner == dist.get_rank()
            ],
            lr=0.01,
        )

    def owners_of(self, parameters, size):
        held, owners = [0] * size, {}
        for parameter in sorted(parameters, key=torch.numel, reverse=True):
            owners[parameter] = held.index(min(held))
            held[owners[parameter]] += parameter.numel()
        return [owners[parameter] for parameter in parameters]

    def step(self):
        self.adamw.step()
        for parameter, owner in zip(self.parameters, self.owners):
            dist.broadcast(parameter.data, owner)


class StateForAll(Sharded):
    whole = True


class ByCount(Sharded):
    def owners_of(self, parameters, size):
        return [i % 2 for i in range(len(parameters))]  # all weights are rank 0's


class Slices:
    """The parameters lie in one buffer, and each rank updates a slice of it."""

    def __init__(self, parameters):
        self.parameters = trained(parameters)
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        for p, part in zip(self.parameters, self.flat.split([p.numel() for p in self.parameters])):
            p.data = part.view_as(p)
        self.mine = self.slice_of(self.flat)
        self.adamw = torch.optim.AdamW([self.mine], lr=0.01)

    def slice_of(self, flat):
        return flat.chunk(dist.get_world_size())[dist.get_rank()]

    def step(self):
        self.mine.grad = self.slice_of(torch.cat([p.grad.reshape(-1) for p in self.parameters]))
        self.adamw.step()
        dist.all_gather_into_tensor(self.flat, self.mine.clone())


class Wrapped(torch.optim.Optimizer):
    """Shows the state of the optimizer that it wraps as its own."""

    def __init__(self, parameters):
        self.sharded = Sharded(parameters)
        super().__init__(self.sharded.parameters, {})
        self.state = self.sharded.adamw.state

    def step(self):
        self.sharded.step()


class PlainAdamW:
    def __init__(self, parameters):
        self.step = torch.optim.AdamW(trained(parameters), lr=0.01).step


# ---- Sharded parameters


class FullySharded:
    """The weight of each layer is whole only while the layer computes."""

    shards, frees = True, True

    def __init__(self, net):
        self.size, self.rank = dist.get_world_size(), dist.get_rank()
        for layer in net.layers:
            layer.shape = layer.weight.shape
            layer.shard = layer.weight.data.reshape(self.size, -1)[self.rank].clone()
            layer.register_forward_pre_hook(self.gather)
            layer.register_forward_hook(self.free)
            layer.register_full_backward_pre_hook(self.gather)
            layer.weight.register_post_accumulate_grad_hook(
                lambda weight, layer=layer: self.reduce(layer)
            )
            if self.shards:
                layer.weight.data = layer.shard
        self.net = net

    def gather(self, layer, *_):
        if self.shards and layer.weight.shape != layer.shape:
            flat = torch.empty(layer.shape.numel())
            dist.all_gather_into_tensor(flat, layer.shard)
            layer.weight.data = flat.view(layer.shape)

    def free(self, layer, *_):
        if self.shards and self.frees:
            layer.weight.data = layer.shard

    def reduce(self, layer):
        shard = torch.empty_like(layer.shard)
        dist.reduce_scatter_tensor(shard, layer.weight.grad.reshape(-1))
        layer.gradient, layer.weight.grad = shard, None
        self.free(layer)

    def finish(self):
        for layer in self.net.layers:
            whole = layer.weight.numel() > layer.shard.numel()
            flat = torch.zeros(layer.weight.numel())
            if whole:
                dist.all_gather_into_tensor(flat, layer.gradient)
            layer.weight.grad = (flat if whole else layer.gradient).view(layer.weight.shape)
        for parameter in trained(self.net.parameters()):
            if all(parameter is not layer.weight for layer in self.net.layers):
                dist.all_reduce(parameter.grad)
        for parameter in trained(self.net.parameters()):
            parameter.grad /= self.size


class Resizes(FullySharded):
    """Keeps the tensor of a whole weight, without its memory."""

    def gather(self, layer, *_):
        if layer.weight.shape != layer.shape:
            layer.flat = getattr(layer, "flat", None)
            if layer.flat is None:
                layer.flat = torch.empty(layer.shape.numel())
            layer.flat.untyped_storage().resize_(layer.flat.numel() * layer.flat.element_size())
            dist.all_gather_into_tensor(layer.flat, layer.shard)
            layer.weight.data = layer.flat.view(layer.shape)

    def free(self, layer, *_):
        layer.weight.data = layer.shard
        if hasattr(layer, "flat"):
            layer.flat.untyped_storage().resize_(0)


class Replicated(FullySharded):
    shards = False


class NeverFrees(FullySharded):
    frees = False


CASES = {
    "overlap": (Overlap, torch.optim.SGD),
    "waits-in-hook": (WaitsInHook, torch.optim.SGD),
    "sync-at-end": (SyncAtEnd, torch.optim.SGD),
    "sharded-optimizer": (SyncAtEnd, Sharded),
    "slices": (SyncAtEnd, Slices),
    "wrapped": (SyncAtEnd, Wrapped),
    "plain-adamw": (SyncAtEnd, PlainAdamW),
    "state-for-all": (SyncAtEnd, StateForAll),
    "by-count": (SyncAtEnd, ByCount),
    "fsdp": (FullySharded, torch.optim.SGD),
    "resizes": (Resizes, torch.optim.SGD),
    "replicated": (Replicated, torch.optim.SGD),
    "never-frees": (NeverFrees, torch.optim.SGD),
}


def rank_of(rank, size, folder, case):
    begin(rank, size, folder, "gloo")  # which `ringside watch` replaces
    parallel, optimize = CASES[case]
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    net, alone = Net(), Net()
    alone.load_state_dict(net.state_dict())
    ddp, reference = parallel(net), torch.optim.AdamW(alone.parameters(), lr=0.01)
    if optimize is torch.optim.SGD:
        optimizer, reference = (
            optimize(net.parameters(), lr=0.1),
            optimize(alone.parameters(), lr=0.1),
        )
    else:
        optimizer = optimize(net.parameters())
    data = torch.Generator().manual_seed(1)
    for _ in range(3):
        everything = torch.randn(size, 6, 24, generator=data)
        for parameter in (*net.parameters(), *alone.parameters()):
            parameter.grad = None
        loss = torch.nn.MSELoss()  # a module without parameters
        loss(net(everything[rank]), torch.zeros(6, 24)).backward()
        ddp.finish()
        optimizer.step()
        alone(everything.flatten(0, 1)).square().mean().backward()
        reference.step()
    for (name, ours), theirs in zip(net.named_parameters(), alone.parameters()):
        if ours.shape != theirs.shape:
            theirs = theirs.reshape(size, -1)[rank]
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9, msg=name)
    dist.destroy_process_group()


if __name__ == "__main__":
    on_ranks(rank_of, int(sys.argv[2]), sys.argv[1])
