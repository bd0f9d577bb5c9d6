"""What a torch program does over Ringside, for `ringside watch`: RINGSIDE_WATCH=FOLDER.

Each rank leaves a file when its process group ends: its calls, which gradients were ready when each
started, what waited inside of backward, and how many elements of each model's parameters and of
their optimizer's state this rank keeps. torch tells all of it through hooks of its own:

    forward     before and after each module    parameters while they compute, calls that gather
    backward    before a gradient is written    a call that starts before the last one overlaps
    step        after each optimizer's step     parameters and state that stay on this rank
"""

import json
import multiprocessing.util
import os
import threading
import time
import weakref
from pathlib import Path

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

REDUCTIONS = "all_reduce", "reduce_scatter", "reduce"
GATHERS = "all_gather", "broadcast"


def local(tensor):
    """What this rank has of a tensor; a DTensor has a part."""
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def storage_of(tensor):
    """The address by which tensors that share memory are known."""
    return local(tensor).untyped_storage().data_ptr()


def has_memory(storage):
    """Whether a storage is there that is known by a StorageWeakRef; one may be resized to 0."""
    found = torch.UntypedStorage._new_with_weak_ptr(storage.cdata)
    return found is not None and found.nbytes() > 0


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


class Model:
    """A module whose forward was called by the program, not by another module."""

    def __init__(self, module):
        self.module = weakref.ref(module)
        self.name = type(module).__name__
        self.names = {}  # id of a parameter -> its name: one that two modules share has one
        self.parameters = []
        self.computing = {}  # (module, name) -> the most elements of a parameter in forward
        self.owners = {}  # id of a parameter -> the first (module, name): some modules share one
        self.gathered = self.most_gathered = 0  # elements, in a forward
        self.outputs = []  # (storage, elements) of what the last forward gathered
        # Elements: parameters, and gathered ones that still lie in memory.
        self.resting = self.kept = 0
        self.trained = self.with_state = 0  # elements of those that are trained; that have state
        self.state = 0  # bytes

    def begin_forward(self):
        """Learns the parameters: since the last forward, a wrapper may have replaced some."""
        for name, parameter in self.module().named_parameters():
            if id(parameter) not in self.names:
                self.names[id(parameter)] = name.removeprefix("module.")  # of DDP and its kin
                self.parameters.append(parameter)
        self.gathered, self.outputs = 0, []

    def measure(self):
        """What this rank keeps of the model between two steps."""
        module = self.module()
        if module is not None:
            self.resting = sum(local(p).numel() for p in module.parameters())
        self.kept = sum(elements for storage, elements in self.outputs if has_memory(storage))
        self.most_gathered = max(self.most_gathered, self.gathered)

    def measure_state(self, optimizers):
        """Adds what optimizers keep of the model's parameters, or of slices of them. One that wraps
        another may show the same state."""
        mine = {id(each) for each in self.parameters}
        storages = {storage_of(each) for each in self.parameters} - {0}
        kept = {id(part): (part, state) for o in optimizers for part, state in o.state.items()}
        for part, state in kept.values():
            tensors = [local(e) for e in state.values() if torch.is_tensor(e) and e.numel() > 1]
            if tensors and (id(part) in mine or storage_of(part) in storages):
                self.with_state += local(part).numel()
                self.state += sum(map(bytes_of, tensors))

    def report(self):
        """As `ringside watch` reads it (KEYS_OF_MODEL in lab/watch.py)."""
        return {
            "model": self.name,
            "resting": self.resting,
            "gathered": self.most_gathered,
            "computing": sum(self.computing.values()),
            "kept": self.kept,
            "trained": self.trained,
            "with_state": self.with_state,
            "state_bytes": self.state,
        }


class Backward:
    """What happened from the begin of a backward to the optimizer's step."""

    def __init__(self):
        self.ready = 0  # gradients so far
        self.calls = []  # (bytes of a reduction, gradients that were ready when it started)
        self.waits = []  # (seconds, gradients that were ready when it ended)


class Witness:
    """Sees what this process does while its first group is there."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.group = None
        self.reset()

    def reset(self):
        self.models = {}  # id of a module -> Model
        self.model = None  # the one whose forward began last
        self.depth = 0  # of modules whose forward runs
        self.backward = None  # while it runs
        self.reducing = None  # the last backward, until the optimizer's step
        self.backwards = []
        self.optimizers = {}
        self.calls = {}  # (collective, label) -> [calls, bytes]
        self.waited = 0.0
        self.watched = WeakIdKeyDictionary()  # parameters with a hook

    # ---- Groups and calls

    def begin(self, group):
        if self.group is None:
            self.reset()
            self.group = weakref.ref(group)
            self.began = time.time_ns()
            # A child of multiprocessing runs no functions of atexit.
            multiprocessing.util.Finalize(None, self.finish, exitpriority=10)
            self.test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]

    def labels(self):
        found = {}
        for model in self.models.values():
            for parameter in model.parameters:
                name = model.names[id(parameter)]
                if local(parameter).numel():
                    found[storage_of(parameter)] = name
                if parameter.grad is not None and local(parameter.grad).numel():
                    found.setdefault(storage_of(parameter.grad), "gradient of " + name)
        return found

    def call(self, collective, tensors, outputs, waited):
        """`tensors` are read or written by a call that has started; a barrier has none. `waited`:
        seconds in which it blocked its caller."""
        bytes = max(map(bytes_of, tensors), default=0)
        names = self.labels() if tensors else {}
        label = next((names[key] for key in map(storage_of, tensors) if key in names), "")
        entry = self.calls.setdefault((collective, label), [0, 0])
        entry[0] += 1
        entry[1] += bytes
        if self.reducing is not None and collective in REDUCTIONS and bytes > 0:
            self.reducing.calls.append((bytes, self.reducing.ready))
        # A model that gathers does so in forward, before a module computes.
        if collective in GATHERS and self.depth > 0 and self.backward is None and self.model:
            for output in outputs:
                elements = local(output).numel()
                self.model.gathered += elements
                self.model.outputs.append(
                    (StorageWeakRef(local(output).untyped_storage()), elements)
                )
        self.wait(waited)

    def wait(self, seconds):
        self.waited += seconds
        if self.backward is not None and seconds > 0:
            self.backward.waits.append((seconds, self.backward.ready))

    # ---- Forward, backward and step

    def before_forward(self, module, _arguments):
        is_outermost = self.depth == 0 and self.backward is None and self.group is not None
        if is_outermost and next(module.parameters(), None) is not None:  # a loss has none
            model = self.models.get(id(module))
            if model is None or model.module() is not module:
                model = self.models[id(module)] = Model(module)
            self.model = model
            model.measure()  # what the last forward left
            model.begin_forward()
            for parameter in model.parameters:
                if parameter.requires_grad and parameter not in self.watched:
                    self.watched[parameter] = True
                    parameter.register_hook(self.gradient_is_ready)
        self.depth += 1

    def after_forward(self, module, _arguments, _output):
        self.depth = max(0, self.depth - 1)
        if self.model is not None and self.backward is None:
            owners, computing = self.model.owners, self.model.computing
            for name, parameter in module._parameters.items():
                key = (id(module), name)
                if parameter is not None and owners.setdefault(id(parameter), key) == key:
                    computing[key] = max(local(parameter).numel(), computing.get(key, 0))

    def gradient_is_ready(self, _gradient):
        if self.backward is not None:
            self.backward.ready += 1

    def run_backward(self, backward, *arguments, **options):
        if self.group is None or self.backward is not None:
            return backward(*arguments, **options)
        self.backward = self.reducing = Backward()
        self.backwards.append(self.backward)
        try:
            return backward(*arguments, **options)
        finally:
            self.backward = None

    def after_step(self, optimizer, _arguments, _options):
        if self.group is None:
            return
        self.reducing = None
        self.optimizers[id(optimizer)] = optimizer
        for model in self.models.values():
            model.measure()

    def finish(self):
        """The first group ends: writes what this rank did since it began."""
        if self.group is None:
            return
        group, self.group = self.group(), None
        if group is None:  # it has been collected
            return
        for model in self.models.values():
            model.measure()
            model.trained = sum(local(p).numel() for p in model.parameters if p.requires_grad)
            model.measure_state(self.optimizers.values())
        reduced = [b for b in self.backwards if b.calls]
        gradients = [bytes for b in reduced for bytes, _ in b.calls]
        early = [bytes for b in reduced for bytes, ready in b.calls if ready < b.ready]
        waits = [seconds for b in reduced for seconds, ready in b.waits if ready < b.ready]
        report = {
            "test": self.test,
            "rank": group.rank(),
            "size": group.size(),
            "transport": group.ranks.transport,
            "began_ns": self.began,
            "bytes_sent": group.ranks.bytes_sent,
            "waited_seconds": self.waited,
            "calls": [
                {"collective": collective, "label": label, "calls": calls, "bytes": bytes}
                for (collective, label), (calls, bytes) in self.calls.items()
            ],
            "backwards": len(reduced),
            "reductions": len(gradients),
            "reduced_bytes": sum(gradients),
            "early_reductions": len(early),
            "early_bytes": sum(early),
            "waits_in_backward": len(waits),
            "waited_in_backward_seconds": sum(waits),
            "optimizers": sorted({type(o).__name__ for o in self.optimizers.values()}),
            "models": [model.report() for model in self.models.values()],
        }
        name = f"{self.began}-{os.getpid()}"
        (self.folder / f"{name}.part").write_text(json.dumps(report))
        (self.folder / f"{name}.part").rename(self.folder / f"{name}.json")  # whole or not at all


def watch(folder, ProcessGroup, Work):
    """Watches the groups of this class from now on."""
    witness = Witness(folder)
    connect, call, message = ProcessGroup.__init__, ProcessGroup._call, ProcessGroup._message
    shutdown, wait = ProcessGroup.shutdown, Work.wait

    def watched_init(group, *arguments):
        connect(group, *arguments)
        witness.begin(group)

    def watched_call(group, name, arguments, opts, memory, outputs, **options):
        began = time.monotonic()
        work = call(group, name, arguments, opts, memory, outputs, **options)
        blocked = opts is not None and not getattr(opts, "asyncOp", True)
        witness.call(name, memory, outputs, time.monotonic() - began if blocked else 0.0)
        return work

    def watched_message(group, name, tensor, peer, tag, outputs):
        work = message(group, name, tensor, peer, tag, outputs)
        witness.call(name, [tensor], outputs, 0.0)
        return work

    def watched_wait(work, timeout=None):
        began, ended = time.monotonic(), work.has_ended
        try:
            return wait(work, timeout)
        finally:
            if not ended and threading.current_thread() is not work.group.completer:
                witness.wait(time.monotonic() - began)

    def watched_shutdown(group):
        if witness.group is not None and witness.group() is group:
            witness.finish()
        shutdown(group)

    ProcessGroup.__init__, ProcessGroup._call = watched_init, watched_call
    ProcessGroup._message, ProcessGroup.shutdown = watched_message, watched_shutdown
    Work.wait = Work.synchronize = watched_wait
    backward = torch.autograd.backward
    torch.autograd.backward = lambda *args, **options: witness.run_backward(
        backward, *args, **options
    )
    register_module_forward_pre_hook(witness.before_forward)
    register_module_forward_hook(witness.after_forward, always_call=True)
    register_optimizer_step_post_hook(witness.after_step)
