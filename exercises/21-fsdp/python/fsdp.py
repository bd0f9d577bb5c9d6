"""ZeRO's third stage, which PyTorch calls FSDP: parameters are sharded, too. A unit is gathered just before it runs, in forward and
again in backward, and freed right after; while it runs, the next one is gathered."""
from __future__ import annotations

import collections
import dataclasses

import torch
import torch.distributed as dist


class Flat:
    """The parameters of one type of one unit, end to end, then padding. Each rank keeps its part; the whole exists for a moment."""

    def __init__(self, unit: str, parameters: list, dtype: torch.dtype):
        self.unit, self.parameters = unit, parameters
        size, rank = dist.get_world_size(), dist.get_rank()
        numbers = sum(each.numel() for each in parameters)
        part = -(-numbers // (size * 64 // dtype.itemsize)) * 64 // dtype.itemsize  # a multiple of 64 bytes, as in Ringside
        padding = torch.zeros(part * size - numbers, dtype=parameters[0].dtype)
        all_numbers = torch.cat([*(each.detach().reshape(-1) for each in parameters), padding])
        # What this rank keeps, in the type that the parameters had: an optimizer updates it.
        self.shard = torch.nn.Parameter(all_numbers[rank * part:(rank + 1) * part].clone())
        self.whole = torch.empty(part * size, dtype=dtype)  # in the type in which the unit computes
        self.part = self.whole[rank * part:(rank + 1) * part]  # this rank's part of the whole: a view
        self.all_gather = None  # the work under way
        begin = 0
        for each in parameters:
            each.data = self.whole[begin:begin + each.numel()].view_as(each)
            begin += each.numel()
        self.free()

    def in_memory(self) -> bool:
        return self.whole.untyped_storage().nbytes() > 0

    def allocate(self) -> None:
        """Gives the whole its memory, with any numbers. The parameters are views of it."""
        self.whole.untyped_storage().resize_(self.whole.numel() * self.whole.itemsize)

    def free(self) -> None:
        self.whole.untyped_storage().resize_(0)


@dataclasses.dataclass
class Use:
    """A module whose forward reads parameters."""

    module: torch.nn.Module
    needs: set  # numbers of the flats that it reads
    outer: set  # those of the modules around it, which stay when it is left

    def backward_reads(self) -> bool:
        return not isinstance(self.module, torch.nn.Embedding)


class FSDP(torch.nn.Module):
    """A module whose parameters, gradients and optimizer state are sharded. parameters() has the shards."""

    def __init__(self, module: torch.nn.Module, compute_dtype: torch.dtype | None = None):
        """Makes the ranks equal, divides the parameters into units, and adds the hooks. Linear layers and embeddings compute in
        compute_dtype; their shards keep the type of the module."""
        super().__init__()
        self.wrapped = (module,)  # in a tuple: its parameters are not those of this class
        self.backward_runs = False
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0)
        self.names = dict(module.named_parameters())
        self.flats = self.divided_into_flats(module, compute_dtype)  # in the order of backward
        self.uses = self.found_uses(module)  # in the order of forward
        self.shards = torch.nn.ParameterList(flat.shard for flat in self.flats)
        for number, use in enumerate(self.uses):
            use.module.register_forward_pre_hook(lambda *_, number=number: self.enter_forward(number))
            use.module.register_forward_hook(lambda _, inputs, output, number=number: self.leave_forward(number, output))
        self.missing = {flat: set(flat.parameters) for flat in self.flats}  # whose gradient has not come in this backward
        self.reducing = collections.deque()  # flat, its part of the mean gradient that comes, and the work
        for flat in self.flats:
            for parameter in flat.parameters:
                parameter.register_post_accumulate_grad_hook(lambda parameter, flat=flat: self.on_gradient(flat, parameter))

    # ---- Units: the elements of lists and embeddings, each with all that is in it; the root has the rest

    def unit_around(self, name: str) -> str:
        module, names = self.wrapped[0], name.split(".")
        for i in range(1, len(names) + 1):
            outer = ".".join(names[:i])
            if names[i - 1].isdigit() or isinstance(module.get_submodule(outer) if i < len(names) else None, torch.nn.Embedding):
                return outer
        return "root"

    def divided_into_flats(self, module, compute_dtype):
        units, places = {}, collections.defaultdict(set)
        for name, parameter in module.named_parameters(remove_duplicate=False):
            places[parameter].add(self.unit_around(name))
        computes = {each for layer in module.modules() if isinstance(layer, (torch.nn.Linear, torch.nn.Embedding)) for each in layer.parameters()}
        for parameter in module.parameters():  # what several units share belongs to the root
            unit = places[parameter].pop() if len(places[parameter]) == 1 else "root"
            dtype = compute_dtype if compute_dtype and parameter in computes else parameter.dtype
            units.setdefault(unit, {}).setdefault(dtype, []).append(parameter)
        return [Flat(unit, parameters, dtype) for unit in reversed(units) for dtype, parameters in units[unit].items()]

    def found_uses(self, module):
        flat_of = {parameter: number for number, flat in enumerate(self.flats) for parameter in flat.parameters}
        uses, around = [], []  # the second: names of modules with parameters that contain the one at hand, and what they need
        for name, each in module.named_modules():
            while around and not (name + ".").startswith(around[-1][0]):
                around.pop()
            unit = self.unit_around(name + ".") if not isinstance(each, torch.nn.Embedding) else name
            if unit not in ("root", name):
                continue  # gathered together with its unit
            own = {flat_of[parameter] for parameter in each.parameters(recurse=unit == name)}
            if own:
                outer = around[-1][1] if around else set()
                uses.append(Use(each, own | outer, outer))
                around.append((name + "." if name else "", own | outer))
        return uses

    # ---- A unit is entered and left

    def forward(self, *inputs, **kwargs):
        self.backward_runs = False
        output = self.wrapped[0](*inputs, **kwargs)
        if output.requires_grad:
            output.register_hook(self.begin_backward)
        return output

    def begin_backward(self, gradient):
        self.backward_runs = True

    def enter_forward(self, number: int) -> None:
        """Before the forward of self.uses[number]. With activation checkpointing it runs again in backward (self.backward_runs): then the
        block below is next."""
        self.enter(number, self.uses[number].needs, -1 if self.backward_runs else 1)

    def leave_forward(self, number: int, output: torch.Tensor) -> None:
        """After it: backward is to enter through a hook on the output; what neither this module's outer ones nor the next one needs is
        freed. What was computed again is about to be used, and backward begins with the last one."""
        use, is_last = self.uses[number], number + 1 == len(self.uses)
        if output.requires_grad:
            output.register_hook(lambda _: self.enter_backward(number))
        if self.backward_runs or is_last and output.requires_grad:
            return
        for flat in use.needs - use.outer - (set() if is_last else self.uses[number + 1].needs):
            self.reshard(self.flats[flat])

    def enter_backward(self, number: int) -> None:
        """When backward reaches the output. The backward of an embedding reads no parameters."""
        use = self.uses[number]
        self.enter(number, use.needs if use.backward_reads() else use.outer, -1)

    def enter(self, number: int, needs: set, direction: int) -> None:
        """Frees all flats but those in `needs` and those that come next, waits for `needs`, and starts to gather the next ones.
        `direction` is 1 in forward, -1 in backward."""
        following = self.needed_next(number, needs, direction)
        for flat in range(len(self.flats)):
            if flat not in needs | following:
                self.reshard(self.flats[flat])
        for flat in sorted(needs):
            self.unshard(self.flats[flat])
        for flat in sorted(following):
            self.start_unshard(self.flats[flat])

    def needed_next(self, number: int, needs: set, direction: int) -> set:
        """What the nearest use in this direction needs beyond `needs`. Uses that need no more are passed over, and in backward those that
        read no parameters."""
        others = self.uses[number + 1:] if direction > 0 else self.uses[:number][::-1]
        wanted = (use.needs - needs for use in others if direction > 0 or use.backward_reads())
        return next(filter(None, wanted), set())

    def start_unshard(self, flat: Flat) -> None:
        """Starts the all-gather of a flat, unless it is in memory: rounds the shard into flat.part, and sends that."""
        if not flat.in_memory():
            flat.allocate()
            flat.part.copy_(flat.shard.detach())
            flat.all_gather = dist.all_gather_into_tensor(flat.whole, flat.part, async_op=True)

    def unshard(self, flat: Flat) -> None:
        """Starts it, if needed, and waits."""
        self.start_unshard(flat)
        if flat.all_gather:
            flat.all_gather.wait()
            flat.all_gather = None

    def reshard(self, flat: Flat) -> None:
        """Frees a flat, but never while the network writes it."""
        if flat.all_gather:
            flat.all_gather.wait()
            flat.all_gather = None
        flat.free()

    # ---- Gradients: a reduce-scatter for each flat, as in exercise 20

    def on_gradient(self, flat, parameter):
        self.missing[flat].discard(parameter)
        if not self.missing[flat]:
            self.reduce(flat)

    def reduce(self, flat):
        while len(self.reducing) > 1:
            self.finish_oldest()
        gradients = [torch.zeros(each.numel(), dtype=flat.whole.dtype) if each.grad is None else each.grad.reshape(-1) for each in flat.parameters]
        padding = torch.zeros(flat.whole.numel() - sum(each.numel() for each in gradients), dtype=flat.whole.dtype)
        mean = torch.empty_like(flat.shard, dtype=flat.whole.dtype, requires_grad=False)
        work = dist.reduce_scatter_tensor(mean, torch.cat([*gradients, padding]), op=dist.ReduceOp.AVG, async_op=True)
        self.reducing.append((flat, mean, work))
        for each in flat.parameters:
            each.grad = None
        self.missing[flat] = set()

    def finish_oldest(self):
        flat, mean, work = self.reducing.popleft()
        work.wait()
        mean = mean.to(flat.shard.dtype)
        flat.shard.grad = mean if flat.shard.grad is None else flat.shard.grad + mean

    def finish_gradient_synchronization(self):
        """After backward: waits until the gradient of each shard is the mean over all ranks, and frees what is whole."""
        for flat in self.flats:
            if self.missing[flat]:
                self.reduce(flat)
        while self.reducing:
            self.finish_oldest()
        self.missing = {flat: set(flat.parameters) for flat in self.flats}
        for flat in self.flats:
            self.reshard(flat)

    # ---- Whole tensors, on every rank

    def gather_full(self, shards):
        wholes = {}
        for flat, shard in zip(self.flats, shards):
            whole, begin = torch.empty(dist.get_world_size() * shard.numel(), dtype=shard.dtype), 0
            dist.all_gather_into_tensor(whole, shard.detach())
            for each in flat.parameters:
                wholes[each] = whole[begin:begin + each.numel()].view_as(each)
                begin += each.numel()
        return {name: wholes[parameter] for name, parameter in self.names.items()}

    def gather_full_params(self) -> dict:
        return self.gather_full([flat.shard for flat in self.flats])

    def gather_full_gradients(self) -> dict:
        return self.gather_full([flat.shard.grad for flat in self.flats])
