"""Data parallelism, fourth version: gradients travel in buckets, which start while backward runs."""
import contextlib

import torch
import torch.distributed as dist


def plan_buckets(module: torch.nn.Module, bucket_size_mb: float) -> list:
    """The trained parameters in buckets of at most this size, the last layers first: exercise 16. The first bucket has at most 1 MB."""
    buckets, room = [], 0
    for parameter in reversed([each for each in module.parameters() if each.requires_grad]):
        size = parameter.numel() * parameter.element_size()
        if not buckets or size > room or parameter.dtype != buckets[-1][0].dtype:
            buckets.append([])
            limit = int(bucket_size_mb * 1e6) + 1
            room = min(limit, 1_000_000) if len(buckets) == 1 else limit
        buckets[-1].append(parameter)
        room -= size
    return buckets


class DDP(torch.nn.Module):
    """A module on every rank, whose gradients are averaged over the ranks in buckets, while backward runs."""

    def __init__(self, module: torch.nn.Module, bucket_size_mb: float):
        """Makes the ranks equal, plans the buckets, and adds a hook to each trained parameter."""
        super().__init__()
        self.module = module
        self.synchronizing = True
        self.buckets = plan_buckets(module, bucket_size_mb)  # lists of parameters
        self.names = {parameter: name for name, parameter in module.named_parameters()}
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
        for parameter in (each for bucket in self.buckets for each in bucket):
            parameter.register_post_accumulate_grad_hook(self.on_gradient)
        self.start_over()

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Inside of it backward only adds gradients up on this rank."""
        self.synchronizing = False
        try:
            yield
        finally:
            self.synchronizing = True

    def start_over(self) -> None:
        """Before the first step, and after each: no gradient has come, and no bucket has started."""
        self.has_gradient = set()  # parameters whose gradient has come, under no_sync() too
        self.ready = set()  # those whose gradient has come outside of it: it is complete
        self.under_way = {}  # by the number of the bucket: what is sent, and its work

    def on_gradient(self, parameter: torch.nn.Parameter) -> None:
        """In backward, when the gradient of a parameter is complete: starts the calls of all buckets whose turn has come. They start in
        the order of their numbers, which is the same on all ranks. Under no_sync() none does."""
        self.has_gradient.add(parameter)
        if not self.synchronizing:
            return
        self.ready.add(parameter)
        while len(self.under_way) < len(self.buckets) and self.ready.issuperset(self.buckets[len(self.under_way)]):
            self.launch(len(self.under_way))

    def launch(self, number: int) -> None:
        """Starts the all-reduce of a bucket, and returns at once. A gradient that this rank lacks is sent as zeros; behind the gradients
        stands for each of them whether this rank has it, 1 or 0."""
        bucket = self.buckets[number]
        parts = [each.grad.reshape(-1) if each in self.has_gradient else torch.zeros(each.numel(), dtype=each.dtype) for each in bucket]
        has = torch.tensor([each in self.has_gradient for each in bucket], dtype=bucket[0].dtype)
        flat = torch.cat([*parts, has]) / dist.get_world_size()
        self.under_way[number] = flat, dist.all_reduce(flat, async_op=True)

    def finish_gradient_synchronization(self) -> None:
        """After backward: starts the calls of the other buckets, and waits until each gradient is the mean over all ranks. A parameter
        without a gradient on every rank has none. If only some ranks have it, raises RuntimeError with the parameter's name."""
        for number in range(len(self.under_way), len(self.buckets)):
            self.launch(number)
        for number, (flat, work) in self.under_way.items():
            work.wait()
            begin, bucket = 0, self.buckets[number]
            for parameter, share in zip(bucket, flat[-len(bucket):].tolist()):
                ranks = round(share * dist.get_world_size())  # that have this gradient
                if 0 < ranks < dist.get_world_size():
                    raise RuntimeError(f"{ranks} of {dist.get_world_size()} ranks have a gradient of {self.names[parameter]}")
                mean = flat[begin:begin + parameter.numel()].view_as(parameter)
                parameter.grad = mean if ranks else None
                begin += parameter.numel()
        self.start_over()
