"""ZeRO's second stage: gradients are sharded, too. A bucket has memory from its first gradient until its reduce-scatter is done."""
import collections
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


class ShardedGradients(torch.nn.Module):
    """A module on every rank, of whose mean gradients each rank keeps 1/p: of each bucket, padded so that p divides it, one shard. A shard
    is a multiple of 64 bytes long, as in Ringside."""

    most_under_way = 2  # reduce-scatters at a time

    def __init__(self, module: torch.nn.Module, bucket_size_mb: float):
        """Makes the ranks equal, plans the buckets and shards, and adds a hook to each trained parameter."""
        super().__init__()
        self.module = module
        self.buckets = plan_buckets(module, bucket_size_mb)  # lists of parameters
        self.place = {}  # of each parameter: the number of its bucket, and where it begins in it
        self.padded = []  # numbers of each bucket, with padding
        size = dist.get_world_size()
        for number, bucket in enumerate(self.buckets):
            begin = 0
            for parameter in bucket:
                self.place[parameter] = number, begin
                begin += parameter.numel()
            unit = size * 64 // bucket[0].element_size()
            self.padded.append(-(-begin // unit) * unit)
        # This rank's shard of each bucket; shards[b][k] is number rank * padded[b] / p + k of the bucket.
        self.shards = [torch.zeros(padded // size, dtype=bucket[0].dtype) for padded, bucket in zip(self.padded, self.buckets)]
        self.flats = {}  # by number: buckets that are being filled
        self.under_way = collections.deque()  # number, the shard that comes, its work
        self.accumulated = [False] * len(self.buckets)  # whether the shard has a gradient of this step
        self.came = set()  # parameters whose gradient has come in this backward
        self.launched = set()  # buckets that have started in this backward
        self.seen = set()  # parameters that had a gradient in this step
        self.had_gradient = set()  # those of the step that finish_gradient_synchronization() has ended
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
        for parameter in self.place:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Around each backward of a step but the last: its gradients are reduce-scattered, too, and added up in the shards."""
        yield
        self.finish_backward(is_last=False)

    def on_gradient(self, parameter: torch.nn.Parameter) -> None:
        """In backward, when a gradient is complete: copies it into its bucket, takes it from the parameter, and launches all buckets whose
        turn has come, in the order of their numbers, which is the same on all ranks."""
        number, begin = self.place[parameter]
        self.allocate(number)
        self.flats[number][begin:begin + parameter.numel()] = parameter.grad.reshape(-1)
        parameter.grad = None
        self.came.add(parameter)
        while len(self.launched) < len(self.buckets) and self.came.issuperset(self.buckets[len(self.launched)]):
            self.launch(len(self.launched))

    def allocate(self, number: int) -> None:
        """Gives a bucket its memory, unless it has it: zeros, for the padding and for gradients that do not come."""
        if number not in self.flats:
            self.flats[number] = torch.zeros(self.padded[number], dtype=self.buckets[number][0].dtype)

    def launch(self, number: int) -> None:
        """Starts the reduce-scatter of a bucket, with at most most_under_way at a time. Its memory goes when the call has ended."""
        while len(self.under_way) >= self.most_under_way:
            self.finish_oldest()
        self.allocate(number)
        mean = torch.empty_like(self.shards[number])
        work = dist.reduce_scatter_tensor(mean, self.flats.pop(number), op=dist.ReduceOp.AVG, async_op=True)
        self.under_way.append((number, mean, work))
        self.launched.add(number)

    def finish_oldest(self) -> None:
        """Waits for the oldest call, and copies this rank's shard of the mean, or adds it to that of earlier backwards of this step."""
        number, mean, work = self.under_way.popleft()
        work.wait()
        if self.accumulated[number]:
            self.shards[number] += mean
        else:
            self.shards[number].copy_(mean)
        self.accumulated[number] = True

    def finish_backward(self, is_last: bool) -> None:
        """Launches the other buckets that this backward needs: those of which it has a gradient, and after the last backward of a step those
        of which no backward had one. Then starts over."""
        self.seen |= self.came
        for number, bucket in enumerate(self.buckets):
            if number not in self.launched and (self.came.intersection(bucket) or is_last and not self.seen.intersection(bucket)):
                self.launch(number)
        self.came, self.launched = set(), set()

    def finish_gradient_synchronization(self) -> None:
        """After the last backward of a step: waits until each shard is the mean over all ranks, of the sum of all backwards."""
        self.finish_backward(is_last=True)
        while self.under_way:
            self.finish_oldest()
        self.accumulated = [False] * len(self.buckets)
        self.had_gradient, self.seen = self.seen, set()
