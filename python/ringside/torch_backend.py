"""The backend "ringside" of torch.distributed, for tensors on the CPU.

A group is a ProcessGroup of torch whose calls go to libringside.so. A call that the program waits
for at once (async_op=False) runs on the caller's own thread. Others run on the group's thread in
the library, one after the other.

Who owns a handle of the library. ctypes releases the interpreter's lock in each call, so two
threads may be inside of the library with one handle.

    a work's handle     the Work owns it, never changes it, and frees it when it dies itself. That
                        the call has ended is a flag beside it.
    a group's handle    the library.Group owns it, until close().

So a handle that a method has read stands for its object until the method returns. Where a program
closes a group beside a call, the library refuses the handle with a sentence.
"""

import atexit
import contextlib
import functools
import inspect
import ipaddress
import os
import re
import secrets
import socket
import sys
import threading
import time
import weakref
from collections import deque
from ctypes import byref, c_void_p
from datetime import timedelta
from queue import SimpleQueue

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import Backend

from ringside import library as lib

SLICE = 0.1  # seconds that a wait spends in C, before Python may run signal handlers
CALLBACKS_END = 30.0  # seconds that the end of a program waits for callbacks of futures
TYPES = {
    torch.float32: lib.FP32,
    torch.float64: lib.FP64,
    torch.int32: lib.INT32,
    torch.int64: lib.INT64,
    torch.float16: lib.FP16,
    torch.bfloat16: lib.BF16,
    torch.uint8: lib.UINT8,
    torch.int8: lib.INT8,
    torch.int16: lib.INT16,
    torch.bool: lib.BOOL,
}
RedOp = dist.ReduceOp.RedOpType
OPS = {
    RedOp.SUM: lib.SUM,
    RedOp.PRODUCT: lib.PRODUCT,
    RedOp.MIN: lib.MIN,
    RedOp.MAX: lib.MAX,
    RedOp.AVG: lib.AVG,
    RedOp.BAND: lib.BIT_AND,
    RedOp.BOR: lib.BIT_OR,
    RedOp.BXOR: lib.BIT_XOR,
    RedOp.PREMUL_SUM: lib.SUM,
}
HAS_BACKENDS = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 15)
FORWARDED = [
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "gather",
    "scatter",
    "all_to_all_single",
    "alltoall",
    "barrier",
    "send",
    "recv",
    "recv_anysource",
    "monitored_barrier",
    "getBackendName",
    "setTimeout",
    "getSequenceNumberForGroup",
    "setSequenceNumberForGroup",
]
groups = weakref.WeakSet()  # those that the end of the program closes
completers = weakref.WeakSet()  # the threads that complete futures, for which it waits


def error_from(failure):
    text = str(failure)
    if "nothing came to rank" in text:  # programs look for the words of gloo
        text += "; the group's timeout is over: Timed out waiting for it"
    return dist.DistBackendError(text)


def seconds_of(timeout):
    """Of a timedelta; None if it stands for the group's own."""
    return timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else None


class Work(dist.Work):
    """A call of a group. `handle` is the library's work; None of a call that ended in its caller."""

    def __init__(self, group, name, handle, tensors, finish, result):
        super().__init__()
        self.group, self.name, self.handle = group, name, handle
        self.tensors = tensors  # until it has ended: the library uses their memory
        self.finish = finish  # copies results out of memory that was made for the call
        self.results = result
        self.failure = None
        self.has_ended = handle is None  # and its results and its failure are there
        self.lock = threading.Lock()
        self.completed = self.future = None  # futures: the second follows the first
        self.source = -1

    def is_completed(self):
        if not self.has_ended and lib.library().ringside_work_done(self.handle):
            self._settle()
        return self.has_ended

    def is_success(self):
        return self.is_completed() and self.failure is None

    def exception(self):
        return self.failure

    def result(self):
        return self.results

    def source_rank(self):
        return self.source

    _source_rank = source_rank

    def wait(self, timeout=None):
        limit = seconds_of(timeout)
        end = None if limit is None else time.monotonic() + limit
        while not self.has_ended:
            left = SLICE if end is None else min(SLICE, max(0.0, end - time.monotonic()))
            if lib.library().ringside_work_wait(self.handle, left) != lib.TIMED_OUT:
                self._settle()
            elif end is not None and time.monotonic() >= end:
                raise dist.DistBackendError(
                    f"Timed out waiting {1000 * limit:g}ms for {self.name} of group "
                    f'"{self.group.group_name}" on rank {self.group.rank()}. The call runs on; '
                    "destroy the group if the other ranks do not come"
                )
        self.group._forget_ended()  # calls before this one have ended too
        if self.failure is not None:
            raise self.failure
        return True

    synchronize = wait

    def get_future(self):
        with self.lock:
            made = self.future is None
            if made:
                self.completed = torch.futures.Future()
                self.future = self.completed.then(self._outcome)
        if made:
            self.group._complete_later(self)
        return self.future

    def _settle(self):
        """The call has ended in the library: takes its status, once."""
        with self.lock:
            if self.has_ended:
                return
            try:
                self.source = lib.library().ringside_work_source(self.handle)
                lib.check(lib.library().ringside_work_wait(self.handle, 0.0))
                if self.finish:
                    self.finish()
            except Exception as failure:
                self.failure = error_from(failure)
            self.tensors = self.finish = None
            self.has_ended = True

    def _complete_future(self):
        try:
            self.wait()
        except Exception as failure:
            self.failure = failure
        self.completed.set_result(None)

    def _outcome(self, _):
        # An error of a callback is one in C++ too. That of set_exception() is not: DDP would take
        # the exception for its tensors.
        if self.failure is not None:
            raise self.failure
        return self.results

    def __del__(self):
        # The group keeps each work, and so its tensors, until it has ended.
        if self.handle is not None and os.getpid() == self.group.process:
            lib.library().ringside_work_free(self.handle)


def plain(tensor):
    """Whether the library can use the tensor's own memory."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def require_cpu(tensor):
    if tensor.layout != torch.strided:
        raise NotImplementedError(
            f"ringside reduces and moves dense tensors, not {tensor.layout}: call to_dense() first"
        )
    if tensor.device.type != "cpu":
        raise RuntimeError(
            f"ringside moves tensors on the CPU, not on {tensor.device}: give the "
            'GPU a group of its own, new_group(backend="nccl")'
        )


class ProcessGroup(dist.ProcessGroup):
    def __init__(self, ranks, store, timeout):
        super().__init__(ranks.rank, ranks.size)
        self.ranks, self.store, self.timeout = ranks, store, timeout
        self.process = ranks.process  # that may call the library
        self.name = self.desc = ""
        self.pending = deque()  # works in the order of their calls, until they have ended
        self.messages = []  # that have not arrived yet
        self.lock = threading.RLock()
        self.completing = None  # works whose futures a thread completes
        self.completer = None
        self.made = self.monitored = 0  # calls, monitored barriers
        groups.add(self)
        if HAS_BACKENDS:
            self.inner = Inner(self)
            self._set_default_backend(ProcessGroup.BackendType.CUSTOM)
            self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, self.inner)

    # ---- What torch asks of a group besides calls

    def getBackendName(self):
        return "ringside"

    def setGroupName(self, name):
        self.name = name

    def getGroupName(self):
        return self.name

    def setGroupDesc(self, desc):
        self.desc = desc

    def getGroupDesc(self):
        return self.desc

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    _get_backend_name = name_of_backend = getBackendName
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def setTimeout(self, timeout):
        self.timeout = timeout

    set_timeout = _set_default_timeout = setTimeout

    def getSequenceNumberForGroup(self):
        return self.made

    def setSequenceNumberForGroup(self):
        pass

    _get_sequence_number_for_group = getSequenceNumberForGroup
    _set_sequence_number_for_group = setSequenceNumberForGroup

    def split_group(self, *_args, **_kwargs):
        raise NotImplementedError("ringside makes groups with new_group(ranks), not by splitting")

    def abort(self):
        self.ranks.abort(f"rank {self.rank()} aborted the group")

    def shutdown(self):
        """destroy_process_group() comes here. Calls that have not ended fail on all ranks."""
        with self.lock:
            ranks, self.ranks = self.ranks, Closed(self.ranks)
            self._forget_ended()
            if self.pending or self.messages:
                ranks.abort(f"rank {self.rank()} destroyed the group before its calls had ended")
            if self.completing is not None:
                self.completing.put(None)
                self.completing = None
        ranks.close()  # until then the library uses the tensors of calls under way
        self._forget_ended()

    # ---- How a call is made

    def _forget_ended(self):
        with self.lock:
            while self.pending and self.pending[0].is_completed():
                self.pending.popleft()
            if self.messages:
                self.messages = [work for work in self.messages if not work.is_completed()]

    def _call(self, name, arguments, opts, tensors, result, finish=None):
        """Calls ringside_<name>. `tensors` own the memory of the arguments. `finish` runs when the
        call has ended."""
        waits = opts is not None and not getattr(opts, "asyncOp", True)
        limit = seconds_of(getattr(opts, "timeout", None))
        with self.lock:
            ranks = self.ranks
            function = ranks.function(name)
            self.made += 1
            self._forget_ended()
            alone = waits and limit is None and not self.pending
            if not alone or threading.current_thread() is not threading.main_thread():
                handle = c_void_p()
                self._check(function(ranks.handle, *arguments, byref(handle)))
                work = Work(self, name, handle, tensors, finish, result)
                self.pending.append(work)
                alone = False
        if not alone:
            if waits:
                work.wait(opts.timeout)
            return work
        self._check(function(ranks.handle, *arguments, None))
        if finish:
            finish()
        return Work(self, name, None, None, None, result)

    @staticmethod
    def _check(status):
        try:
            lib.check(status)
        except lib.RingsideError as failure:
            raise error_from(failure) from None

    def _complete_later(self, work):
        """Sets the future of the work when it has ended, on a thread of the group."""
        with self.lock:
            # A callback of a future may wait for the future of another call: not on its own thread.
            later = not work.has_ended and threading.current_thread() is not self.completer
            if later:
                if self.completing is None:
                    self.completing = SimpleQueue()
                    self.completer = threading.Thread(
                        target=complete_futures,
                        daemon=True,
                        args=(self.completing,),
                        name="ringside futures",
                    )
                    completers.add(self.completer)
                    self.completer.start()
                self.completing.put(work)
        if not later:
            work._complete_future()  # runs callbacks, which may need the lock on other threads

    def _message(self, name, tensors, peer, tag, result, finish=None):
        used = tensors[0]
        with self.lock:
            self.made += 1
            self._forget_ended()
            handle = c_void_p()
            self._check(
                self.ranks.function(name)(
                    self.ranks.handle, *self._moved(used), peer, tag, byref(handle)
                )
            )
            work = Work(self, name, handle, tensors, finish, result)
            self.messages.append(work)
        return work

    # ---- Buffers: what the library reads and writes, and how the result comes back

    def _moved(self, tensor):
        """(address, elements, type) of a contiguous tensor that is moved, not reduced."""
        type = TYPES.get(tensor.dtype)
        if type is None:
            return tensor.data_ptr(), tensor.numel() * tensor.element_size(), lib.UINT8
        return tensor.data_ptr(), tensor.numel(), type

    def _reduced(self, tensor, reduce_op, copy=False):
        """A contiguous tensor to reduce in place of `tensor`, and the library's operation. If it is
        another tensor, the reduction goes back by copy_(). With `copy`, `tensor` is only read."""
        require_cpu(tensor)
        op = OPS.get(reduce_op.op if hasattr(reduce_op, "op") else reduce_op)
        if op is None:
            raise NotImplementedError(f"ringside has no {reduce_op}: use another operation")
        scaled = getattr(reduce_op, "op", None) == RedOp.PREMUL_SUM
        if tensor.is_complex():
            if op not in (lib.SUM, lib.AVG):
                raise NotImplementedError("ringside adds and averages complex numbers only")
        elif tensor.dtype not in TYPES:
            raise NotImplementedError(f"ringside does not reduce {tensor.dtype}: convert it first")
        used = tensor
        if scaled and copy or not plain(tensor):
            used = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        if scaled:
            used.mul_(reduce_op.__getstate__()[1])  # the factor, by a way that torch 2.11 has
        return used, op

    @staticmethod
    def _numbers(tensor):
        """(address, elements, type) of a tensor that is reduced; a complex number is two."""
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        return tensor.data_ptr(), tensor.numel(), TYPES[tensor.dtype]

    @staticmethod
    def _elements(tensor):
        return tensor.numel() * (2 if tensor.is_complex() else 1)

    # ---- Calls

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        (tensor,) = tensors
        used, op = self._reduced(tensor, opts.reduceOp)
        return self._call(
            "all_reduce",
            (*self._numbers(used), op),
            opts,
            used,
            tensors,
            None if used is tensor else lambda: tensor.copy_(used),
        )

    def allreduce_coalesced(self, tensors, opts=None):
        """One call for the tensors of each type."""
        opts = opts or dist.AllreduceCoalescedOptions()
        of_type = {}
        for tensor in tensors:
            require_cpu(tensor)
            of_type.setdefault(tensor.dtype, []).append(tensor)
        flats = [
            self._reduced(torch.cat([tensor.reshape(-1) for tensor in group]), opts.reduceOp)
            for group in of_type.values()
        ]  # all are accepted before the first is sent
        works = [
            self._call(
                "all_reduce",
                (*self._numbers(used), op),
                opts,
                used,
                group,
                functools.partial(split_into, group, used),
            )
            for (used, op), group in zip(flats, of_type.values())
        ]
        return works[0] if len(works) == 1 else All(self, works, tensors)

    def broadcast(self, tensors, opts=None):
        opts = opts or dist.BroadcastOptions()
        (tensor,) = tensors
        require_cpu(tensor)
        used = tensor if plain(tensor) else contiguous(tensor)
        return self._call(
            "broadcast",
            (*self._moved(used), opts.rootRank),
            opts,
            used,
            tensors,
            None if used is tensor else lambda: tensor.copy_(used),
        )

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        (tensor,) = tensors
        used, op = self._reduced(tensor, opts.reduceOp)
        is_root = opts.rootRank == self.rank()
        return self._call(
            "reduce",
            (*self._numbers(used), op, opts.rootRank),
            opts,
            used,
            tensors,
            (lambda: tensor.copy_(used)) if is_root and used is not tensor else None,
        )

    def all_gather_single(self, output, input, opts=None):
        require_cpu(output)
        require_cpu(input)
        require_types(output, input)
        require_length("all_gather", output, input.numel() * self.size())
        used = output if plain(output) else contiguous(output)
        source = contiguous(input)
        address, count, type = self._moved(source)
        return self._call(
            "all_gather",
            (address, used.data_ptr(), count, None, type),
            opts,
            (source, used),
            [output],
            None if used is output else lambda: output.copy_(used),
        )

    def allgather(self, outputs, inputs, opts=None):
        (input,), (blocks,) = inputs, outputs
        require_cpu(input)
        for block in blocks:
            require_types(block, input)
        require_length("all_gather", blocks[self.rank()], input.numel())
        flat, source = flat_for(blocks), contiguous(input)
        address, count, type = self._moved(source)
        counts = lib.counts([self._moved(block)[1] for block in blocks])
        return self._call(
            "all_gather",
            (address, flat.data_ptr(), count, counts, type),
            opts,
            (source, flat),
            blocks,
            lambda: split_into(blocks, flat),
        )

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        works = [
            self.allgather([[outputs[i] for outputs in output_lists]], [input], opts)
            for i, input in enumerate(inputs)
        ]
        return All(self, works, output_lists)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return All(
            self,
            [self.all_gather_single(output, input, opts) for output, input in zip(outputs, inputs)],
            outputs,
        )

    def reduce_scatter_single(self, output, input, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        require_cpu(output)
        require_types(output, input)
        require_length("reduce_scatter", input, output.numel() * self.size())
        return self._reduce_blocks(output, input, None, opts)

    def _reduce_blocks(self, output, input, counts, opts):
        used, op = self._reduced(input, opts.reduceOp, copy=True)
        result = output if plain(output) else contiguous(output)
        address, _, type = self._numbers(used)
        to, count, _ = self._numbers(result)
        return self._call(
            "reduce_scatter",
            (address, to, count, counts, type, op),
            opts,
            (used, result),
            [output],
            None if result is output else lambda: output.copy_(result),
        )

    def reduce_scatter(self, outputs, inputs, opts=None):
        (output,), (blocks,) = outputs, inputs
        require_cpu(output)
        for block in blocks:
            require_types(output, block)
        require_length("reduce_scatter", blocks[self.rank()], output.numel())
        return self._reduce_blocks(
            output,
            torch.cat([block.reshape(-1) for block in blocks]),
            lib.counts([self._elements(block) for block in blocks]),
            opts or dist.ReduceScatterOptions(),
        )

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return All(
            self,
            [
                self.reduce_scatter_single(output, input, opts)
                for output, input in zip(outputs, inputs)
            ],
            outputs,
        )

    def gather(self, outputs, inputs, opts=None):
        opts = opts or dist.GatherOptions()
        (input,) = inputs
        blocks = outputs[0] if outputs else []
        require_cpu(input)
        for block in blocks:
            require_types(block, input)
            require_length("gather", block, input.numel())
        flat, source = flat_for(blocks) if blocks else input, contiguous(input)
        address, count, type = self._moved(source)
        return self._call(
            "gather",
            (address, flat.data_ptr(), count, type, opts.rootRank),
            opts,
            (source, flat),
            blocks,
            lambda: split_into(blocks, flat),
        )

    def scatter(self, outputs, inputs, opts=None):
        opts = opts or dist.ScatterOptions()
        (output,) = outputs
        require_cpu(output)
        blocks = inputs[0] if inputs else []
        for block in blocks:
            require_types(output, block)
            require_length("scatter", block, output.numel())
        source = torch.cat([b.reshape(-1) for b in blocks]) if blocks else output
        used = output if plain(output) else contiguous(output)
        address, count, type = self._moved(used)
        return self._call(
            "scatter",
            (source.data_ptr(), address, count, type, opts.rootRank),
            opts,
            (source, used),
            outputs,
            None if used is output else lambda: output.copy_(used),
        )

    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None):
        require_cpu(output)
        require_types(output, input)
        received = self._block_lengths(output, output_splits, "output")
        sent = self._block_lengths(input, input_splits, "input")
        used = output if plain(output) else contiguous(output)
        return self._exchange(
            used,
            contiguous(input),
            sent,
            received,
            opts,
            [output],
            None if used is output else lambda: output.copy_(used),
        )

    def _block_lengths(self, tensor, splits, which):
        """The elements of each rank's block; splits count rows."""
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits:
            if rows % self.size():
                raise RuntimeError(
                    f"all_to_all: {rows} rows of the {which} tensor do not divide "
                    f"equally across group size {self.size()}"
                )
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows:
            raise RuntimeError(
                f"all_to_all: expected {self.size()} split sizes that add up to the "
                f"{rows} rows of the {which} tensor, got {splits}"
            )
        return [split * (tensor.numel() // rows if rows else 0) for split in splits]

    def _exchange(self, output, input, sent, received, opts, result, finish):
        width = max(1, self._moved(input)[1] // max(1, input.numel()))  # bytes of an unknown type
        equal = len(set(sent + received)) <= 1
        lists = (
            (None, None)
            if equal
            else (lib.list_of(n * width for n in sent), lib.list_of(n * width for n in received))
        )
        return self._call(
            "all_to_all",
            (input.data_ptr(), output.data_ptr(), sent[0] * width, *lists, self._moved(input)[2]),
            opts,
            (input, output),
            result,
            finish,
        )

    def alltoall(self, outputs, inputs, opts=None):
        for tensor in (*outputs, *inputs):
            require_cpu(tensor)
            require_types(outputs[0], tensor)
        flat = flat_for(outputs)
        return self._exchange(
            flat,
            torch.cat([input.reshape(-1) for input in inputs]),
            [input.numel() for input in inputs],
            [output.numel() for output in outputs],
            opts,
            outputs,
            lambda: split_into(outputs, flat),
        )

    def barrier(self, opts=None):
        return self._call("barrier", (), opts, None, [])

    def send(self, tensors, to, tag):
        (tensor,) = tensors
        require_cpu(tensor)
        return self._message("send", [contiguous(tensor)], to, tag, tensors)

    def recv(self, tensors, source, tag):
        (tensor,) = tensors
        require_cpu(tensor)
        used = tensor if plain(tensor) else contiguous(tensor)
        return self._message(
            "recv",
            [used, tensor],
            source,
            tag,
            tensors,
            None if used is tensor else lambda: tensor.copy_(used),
        )

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, -1, tag)

    recvAnysource = recv_anysource

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier over the store, which knows who has come. The words are those of gloo."""
        timeout = self.timeout if timeout is None else timeout
        if timeout <= timedelta(0):
            raise dist.DistBackendError(
                f"Rank {self.rank()} timed out in monitoredBarrier: "
                f"expected a timeout of more than 0 ms, got {timeout}"
            )
        self.monitored += 1
        keys = [f"ringside/barrier/{self.monitored}/{r}" for r in range(self.size())]
        self.store.set(keys[self.rank()], "here")
        try:
            self.store.wait(keys, timeout)
        except Exception:
            missing = [str(r) for r in range(self.size()) if not self.store.check([keys[r]])]
            late = missing if wait_all_ranks else missing[:1]
            failed = (
                f"Rank{'s' * (len(late) > 1)} {', '.join(late)} failed to pass "
                f"monitoredBarrier in {1000 * timeout.total_seconds():g} ms"
            )
            raise dist.DistBackendError(
                failed
                if self.rank() == 0
                else (
                    f"Rank {self.rank()} successfully reached monitoredBarrier, but received errors "
                    f"while waiting for send/recv from rank 0, which waits as well: {failed}"
                )
            ) from None

    # Names of torch before 2.12
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


class Inner(Backend):
    """The backend of a group, for what torch asks of backends and not of groups (from 2.15 on, where
    Python may derive from Backend)."""

    def __init__(self, group):
        super().__init__(group.rank(), group.size())
        self.group = weakref.ref(group)

    supports_splitting = supports_coalescing = False


def forwarded(name):
    return lambda self, *args, **kwargs: getattr(self.group(), name)(*args, **kwargs)


for each in FORWARDED:
    setattr(Inner, each, forwarded(each))


class All(Work):
    """Several calls as one work."""

    def __init__(self, group, works, result):
        super().__init__(group, "several calls", None, None, None, result)
        self.works, self.has_ended = works, False

    def is_completed(self):
        if all([work.is_completed() for work in self.works]):
            self._settle()
        return self.has_ended

    def wait(self, timeout=None):
        limit = seconds_of(timeout)
        end = None if limit is None else time.monotonic() + limit
        for work in self.works:
            if end is not None:
                timeout = timedelta(seconds=max(1e-6, end - time.monotonic()))
            try:
                work.wait(timeout)
            except Exception:
                if not work.has_ended:
                    raise  # this wait is over, not the call
        self._settle()
        if self.failure is not None:
            raise self.failure
        return True

    synchronize = wait

    def _settle(self):
        self.failure = next((work.failure for work in self.works if work.failure), None)
        self.has_ended = True


class Closed:
    """In place of the ranks of a group that was destroyed."""

    handle = None

    def __init__(self, ranks):
        self.process = ranks.process

    def function(self, name):
        raise dist.DistBackendError(
            f"{name}: the process group was destroyed, and its connections are closed"
        )

    def abort(self, cause):
        pass

    def close(self):
        pass


def complete_futures(works):
    while (work := works.get()) is not None:
        work._complete_future()


def contiguous(tensor):
    return tensor.resolve_conj().resolve_neg().contiguous()


def flat_for(tensors):
    """Memory for the blocks of all ranks, one after the other."""
    for tensor in tensors:
        require_cpu(tensor)
    return torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)


def split_into(tensors, flat):
    begin = 0
    for tensor in tensors:
        end = begin + tensor.numel()
        tensor.copy_(flat[begin:end].view(tensor.shape))
        begin = end


def require_types(output, input):
    if output.dtype != input.dtype:
        raise TypeError(f"expected tensors of one type, got {input.dtype} and {output.dtype}")


def require_length(name, tensor, elements):
    if tensor.numel() != elements:
        raise ValueError(
            f"{name}: expected a tensor of {elements} elements, got "
            f"{tensor.numel()}, shape {tuple(tensor.shape)}"
        )


# ---- How a group is made


def hosts_of(store):
    """This host as the host of the store reaches it, and that host as this one does: addresses."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    name = getattr(store, "host", None)
    if not name:
        return "127.0.0.1", "127.0.0.1"  # a store in a file: of ranks on one host
    try:  # a name may have several addresses, and one that leads nowhere
        with socket.create_connection((name, store.port), timeout=5) as route:
            return route.getsockname()[0], route.getpeername()[0]
    except OSError as error:
        raise dist.DistBackendError(
            f"the store at {name}:{store.port}, where the ranks meet, cannot be reached ({error})"
        ) from None


def is_loopback(address):
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


def create(opts, _backend_options=None):
    """What torch calls for each new group, on its members."""
    store, rank, size = opts.store, opts.group_rank, opts.group_size

    # A second group may use the same store under the same name, after the first was destroyed.
    turn = (store.add("ringside/arrived", 1) - 1) // size

    def gather(what):
        keys = [f"ringside/{turn}/{what}/{r}" for r in range(size)]
        try:
            store.wait(keys, opts.timeout)
        except Exception as error:
            missing = [r for r in range(size) if not store.check([keys[r]])]
            raise dist.DistBackendError(
                f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {size} never "
                f"came to the process group within {opts.timeout.total_seconds():g} s (Timed out: "
                f"{str(error).splitlines()[0]})"
            ) from None
        return [store.get(key) for key in keys]

    def exchange(contact):
        store.set(f"ringside/{turn}/contact/{rank}", contact)
        return gather("contact")

    def own_address():
        """By which the other ranks reach this one. The store's own host may know itself by a
        loopback address only: as 127.0.1.1 in /etc/hosts. Then ranks of other hosts tell."""
        here, there = hosts_of(store)
        store.set(f"ringside/{turn}/store/{rank}", there)
        if not is_loopback(here):
            return here
        told = [address.decode() for address in gather("store")]
        return next((address for address in told if not is_loopback(address)), here)

    members = list(opts.global_ranks_in_group)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"group{opts.group_id}")
    try:
        ranks = lib.Group(
            rank,
            size,
            own_address(),
            exchange,
            os.environ.get("RINGSIDE_JOB_KEY") or secrets.token_hex(16),
            f"{name}@{','.join(map(str, members))}" if members else "",
            opts.timeout.total_seconds(),
        )
    except lib.RingsideError as failure:
        raise error_from(failure) from None
    return ProcessGroup(ranks, store, opts.timeout)


def use_for_gloo():
    """RINGSIDE_AS_GLOO=1: a program that asks for gloo gets ringside, whichever way it asks: torch
    makes each group in one function, and reads the name of its backend by one table."""
    make = c10d._new_process_group_helper
    signature = inspect.signature(make)

    def replaced(backend):
        asked = c10d.BackendConfig(dist.Backend(str(backend))).get_device_backend_map()
        here = {
            name for device, name in asked.items() if device == "cpu" or torch.cuda.is_available()
        }
        # torch makes no other backend beside ours: a group with one for the GPU stays as it is.
        return "ringside" if here == {"gloo"} else backend

    @functools.wraps(make)
    def make_group(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        call.arguments["backend"] = replaced(call.arguments["backend"])
        return make(*call.args, **call.kwargs)

    c10d._new_process_group_helper = make_group
    if dist.is_gloo_available():
        count_groups_over_gloo()


def count_groups_over_gloo():
    """Says at the end of the program that some of its groups ran over gloo all the same."""
    init = dist.ProcessGroupGloo.__init__
    made = []

    def counted(group, *args, **kwargs):
        init(group, *args, **kwargs)
        made.append(os.getpid())

    @atexit.register
    def tell():
        if count := made.count(os.getpid()):
            print(
                f"ringside: RINGSIDE_AS_GLOO=1 is set, but this rank made {count} "
                f"group{'s' * (count > 1)} over gloo. A group that also has a backend for the "
                "GPU is not replaced: give the CPU a group of its own, new_group(backend="
                '"ringside")',
                file=sys.stderr,
            )

    dist.ProcessGroupGloo.__init__ = counted


def refuse_mixed_operations():
    """torch collects the reductions of a `with _coalescing_manager()` and passes on the operation
    of the first. Refuses others where their list is, before anything is sent."""
    collecting = c10d._coalescing_manager.__closure__[0]  # where every importer's name leads
    collect = contextlib.contextmanager(collecting.cell_contents)

    def checked(group=None, *args, **kwargs):
        group = group or c10d._get_default_group()
        with collect(group, *args, **kwargs) as manager:
            yield manager
            calls = c10d._world.pg_coalesce_state[group]
            operations = {str(call.redop) for call in calls}
            if isinstance(group, ProcessGroup) and len(operations) > 1:
                del c10d._world.pg_coalesce_state[group]
                raise ValueError(
                    "expected one operation for all reductions that are coalesced, "
                    f"got {', '.join(sorted(operations))}: coalesce those of each "
                    "operation apart"
                )

    collecting.cell_contents = checked


@atexit.register
def close_all():
    for group in list(groups):
        if group.ranks.process == os.getpid():
            group.shutdown()
    # A thread that came back to Python after the interpreter's end would be ended inside of torch's
    # C++, which calls abort(). A callback that takes longer is the program's own.
    for thread in list(completers):
        thread.join(CALLBACKS_END)


def register():
    """Called by torch when it is imported, where the package is installed."""
    if not dist.is_available() or "ringside" in dist.Backend.backend_list:
        return
    dist.Backend.register_backend("ringside", create, extended_api=True, devices=["cpu"])
    refuse_mixed_operations()
    if os.environ.get("RINGSIDE_AS_GLOO") == "1":
        use_for_gloo()
    if os.environ.get("RINGSIDE_WATCH"):
        from ringside.witness import watch

        watch(os.environ["RINGSIDE_WATCH"], ProcessGroup, Work)
