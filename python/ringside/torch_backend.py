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
import math
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
from ringside.torch_tensors import (
    contiguous,
    copy_of_results,
    elements,
    flat,
    memory_for,
    moved,
    numbers,
    reduced,
    require_alike,
    require_cpu,
    require_length,
)

SLICE = 0.1  # seconds that a wait spends in C, before Python may run signal handlers
CALLBACKS_END = 30.0  # seconds that the end of a program waits for callbacks of futures
HAS_BACKENDS = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 15)
groups = weakref.WeakSet()  # those that the end of the program closes
completers = weakref.WeakSet()  # the threads that complete futures, for which it waits


def error_from(failure):
    text = str(failure)
    if "nothing came to rank" in text:  # programs look for the words of gloo
        text += "; the group's timeout is over: Timed out waiting for it"
    return dist.DistBackendError(text)


def check(status):
    """Raises the library's error as torch's programs expect it."""
    try:
        lib.check(status)
    except lib.RingsideError as failure:
        raise error_from(failure) from None


def seconds_of(timeout):
    """Of a timedelta; inf if it stands for the group's own."""
    return timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else math.inf


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
        end = time.monotonic() + limit
        while not self.has_ended:
            left = min(SLICE, max(0.0, end - time.monotonic()))
            if lib.library().ringside_work_wait(self.handle, left) != lib.TIMED_OUT:
                self._settle()
            elif time.monotonic() >= end:
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


class ProcessGroup(dist.ProcessGroup):
    """The methods without a docstring are those of torch.distributed.ProcessGroup."""

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

    def _call(self, name, arguments, opts, memory, outputs, copies=True):
        """Calls ringside_<name>, which uses the memory of some tensors and writes to the last one.
        With `copies`, the results go from there to `outputs`."""
        finish = copy_of_results(memory, outputs) if copies else None
        waits = opts is not None and not getattr(opts, "asyncOp", True)
        limit = seconds_of(getattr(opts, "timeout", None))
        with self.lock:
            ranks = self.ranks
            function = ranks.function(name)
            self.made += 1
            self._forget_ended()
            alone = waits and limit == math.inf and not self.pending
            alone = alone and threading.current_thread() is threading.main_thread()
            if not alone:
                work = self._started(name, arguments, memory, finish, outputs)
                self.pending.append(work)
        if not alone:
            if waits:
                work.wait(opts.timeout)
            return work
        check(function(ranks.handle, *arguments, None))
        if finish:
            finish()
        return Work(self, name, None, None, None, outputs)

    def _message(self, name, tensor, peer, tag, outputs):
        """Calls ringside_send or ringside_recv."""
        require_cpu(tensor)
        memory = [contiguous(tensor)]
        finish = copy_of_results(memory, outputs) if name == "recv" else None
        with self.lock:
            self.made += 1
            self._forget_ended()
            work = self._started(name, (*moved(memory[0]), peer, tag), memory, finish, outputs)
            self.messages.append(work)
        return work

    def _started(self, name, arguments, memory, finish, outputs):
        handle = c_void_p()
        check(self.ranks.function(name)(self.ranks.handle, *arguments, byref(handle)))
        return Work(self, name, handle, memory, finish, outputs)

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

    # ---- Calls: what torch asks for, as arguments of the library (CALLS of library.py)

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        (tensor,) = tensors
        used, op = reduced(tensor, opts.reduceOp)
        return self._call("all_reduce", (*numbers(used), op), opts, [used], tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        """One call for the tensors of each type."""
        opts = opts or dist.AllreduceCoalescedOptions()
        of_type = {}
        for tensor in tensors:
            require_cpu(tensor)
            of_type.setdefault(tensor.dtype, []).append(tensor)
        # All are accepted before the first is sent.
        flats = [reduced(flat(group), opts.reduceOp) for group in of_type.values()]
        works = [
            self._call("all_reduce", (*numbers(used), op), opts, [used], group)
            for (used, op), group in zip(flats, of_type.values())
        ]
        return works[0] if len(works) == 1 else All(self, works, tensors)

    def broadcast(self, tensors, opts=None):
        opts = opts or dist.BroadcastOptions()
        (tensor,) = tensors
        require_cpu(tensor)
        used = contiguous(tensor)
        return self._call("broadcast", (*moved(used), opts.rootRank), opts, [used], tensors)

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        (tensor,) = tensors
        is_root = opts.rootRank == self.rank()
        used, op = reduced(tensor, opts.reduceOp, only_read=not is_root)
        arguments = (*numbers(used), op, opts.rootRank)
        return self._call("reduce", arguments, opts, [used], tensors, copies=is_root)

    def all_gather_single(self, output, input, opts=None):
        require_alike([output], [input])
        require_length("all_gather", output, input.numel() * self.size())
        return self._all_gather(input, contiguous(output), None, opts, [output])

    def allgather(self, outputs, inputs, opts=None):
        (input,), (blocks,) = inputs, outputs
        self._require_blocks("all_gather", blocks)
        require_alike(blocks, [input])
        require_length("all_gather", blocks[self.rank()], input.numel())
        counts = lib.counts([moved(block)[1] for block in blocks])
        return self._all_gather(input, memory_for(blocks), counts, opts, blocks)

    def _all_gather(self, input, used, counts, opts, outputs):
        source = contiguous(input)
        address, count, type = moved(source)
        arguments = address, used.data_ptr(), count, counts, type
        return self._call("all_gather", arguments, opts, [source, used], outputs)

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        works = [
            self.allgather([[outputs[i] for outputs in output_lists]], [input], opts)
            for i, input in enumerate(inputs)
        ]
        return All(self, works, output_lists)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        works = [self.all_gather_single(*each, opts) for each in zip(outputs, inputs)]
        return All(self, works, outputs)

    def reduce_scatter_single(self, output, input, opts=None):
        require_alike([output], [input])
        require_length("reduce_scatter", input, output.numel() * self.size())
        return self._reduce_scatter(output, input, None, opts)

    def reduce_scatter(self, outputs, inputs, opts=None):
        (output,), (blocks,) = outputs, inputs
        self._require_blocks("reduce_scatter", blocks)
        require_alike([output], blocks)
        require_length("reduce_scatter", blocks[self.rank()], output.numel())
        counts = lib.counts([elements(block) for block in blocks])
        return self._reduce_scatter(output, flat(blocks), counts, opts)

    def _reduce_scatter(self, output, input, counts, opts):
        opts = opts or dist.ReduceScatterOptions()
        source, op = reduced(input, opts.reduceOp, only_read=True)
        used = contiguous(output)
        address, count, type = numbers(used)
        arguments = source.data_ptr(), address, count, counts, type, op
        return self._call("reduce_scatter", arguments, opts, [source, used], [output])

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        works = [self.reduce_scatter_single(*each, opts) for each in zip(outputs, inputs)]
        return All(self, works, outputs)

    def gather(self, outputs, inputs, opts=None):
        opts = opts or dist.GatherOptions()
        (input,) = inputs
        blocks = outputs[0] if outputs else []  # none but on the root
        self._require_blocks("gather", *outputs)
        require_alike(blocks, [input])
        for block in blocks:
            require_length("gather", block, input.numel())
        source = contiguous(input)
        used = memory_for(blocks) if blocks else source
        address, count, type = moved(source)
        arguments = address, used.data_ptr(), count, type, opts.rootRank
        return self._call("gather", arguments, opts, [source, used], blocks)

    def scatter(self, outputs, inputs, opts=None):
        opts = opts or dist.ScatterOptions()
        (output,) = outputs
        blocks = inputs[0] if inputs else []  # none but on the root
        self._require_blocks("scatter", *inputs)
        require_alike([output], blocks)
        for block in blocks:
            require_length("scatter", block, output.numel())
        used = contiguous(output)
        source = flat(blocks) if blocks else used
        arguments = source.data_ptr(), *moved(used), opts.rootRank
        return self._call("scatter", arguments, opts, [source, used], outputs)

    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None):
        require_alike([output], [input])
        received = self._block_lengths(output, output_splits, "output")
        sent = self._block_lengths(input, input_splits, "input")
        # Blocks that are told may be equal on this rank and not on others.
        equal = not output_splits and not input_splits and sent == received
        memory = [contiguous(input), contiguous(output)]
        return self._all_to_all(memory, sent, received, equal, opts, [output])

    def alltoall(self, outputs, inputs, opts=None):
        self._require_blocks("all_to_all", outputs, inputs)
        require_alike(outputs, inputs)
        sent, received = ([each.numel() for each in tensors] for tensors in (inputs, outputs))
        memory = [flat(inputs), memory_for(outputs)]
        return self._all_to_all(memory, sent, received, False, opts, outputs)

    def _all_to_all(self, memory, sent, received, equal, opts, outputs):
        """`sent` and `received`: the elements of the block for, and from, each rank. `equal`: all
        blocks of all ranks are."""
        source, used = memory
        address, count, type = moved(source)
        width = max(1, count // max(1, source.numel()))  # bytes of an unknown type
        lists = None, None
        if not equal:
            lists = [lib.list_of(n * width for n in lengths) for lengths in (sent, received)]
        arguments = address, used.data_ptr(), sent[0] * width, *lists, type
        return self._call("all_to_all", arguments, opts, memory, outputs)

    def _require_blocks(self, name, *lists):
        for tensors in lists:
            if len(tensors) != self.size():
                raise RuntimeError(f"{name}: expected {self.size()} tensors, got {len(tensors)}")

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
        if len(splits) != self.size() or sum(splits) != rows or min(splits) < 0:
            raise RuntimeError(
                f"all_to_all: expected {self.size()} split sizes that add up to the "
                f"{rows} rows of the {which} tensor, got {splits}"
            )
        return [split * (tensor.numel() // rows if rows else 0) for split in splits]

    def barrier(self, opts=None):
        return self._call("barrier", (), opts, [], [])

    def send(self, tensors, to, tag):
        (tensor,) = tensors
        return self._message("send", tensor, to, tag, tensors)

    def recv(self, tensors, source, tag):
        (tensor,) = tensors
        return self._message("recv", tensor, source, tag, tensors)

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


FORWARDED = """allreduce allreduce_coalesced broadcast reduce allgather allgather_coalesced
    all_gather_single all_gather_single_coalesced reduce_scatter reduce_scatter_single
    reduce_scatter_single_coalesced gather scatter all_to_all_single alltoall barrier send recv
    recv_anysource monitored_barrier getBackendName setTimeout getSequenceNumberForGroup
    setSequenceNumberForGroup"""


class Inner(Backend):
    """The backend of a group, for what torch asks of backends and not of groups (from 2.15 on, where
    Python may derive from Backend)."""

    def __init__(self, group):
        super().__init__(group.rank(), group.size())
        self.group = weakref.ref(group)

    supports_splitting = supports_coalescing = False


def forwarded(name):
    return lambda self, *args, **kwargs: getattr(self.group(), name)(*args, **kwargs)


for each in FORWARDED.split():
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
        end = time.monotonic() + seconds_of(timeout)
        for work in self.works:
            if end < math.inf:
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
