"""What the cases of data parallelism do in a rank: the nets, data and steps of exercises/judge/ddp, in torch. The judge in C++ gets
what they return in the same form.

`make` is the student's class, DDP(module), or a function that calls it.
"""
import contextlib

import torch
from ledger import Ledger
from torch.nn import functional

# As they were before the student's code came.
backward, register_hook = torch.autograd.backward, torch.Tensor.register_hook
KINDS = ("plain", "tied", "frozen and unused", "sometimes")
# Of the cases for CS336's assignment, whose nets are in fp32: what its tests have; and what it leaves open, parameters without a gradient.
CS336_KINDS, OTHER_KINDS = ("plain", "tied", "frozen"), ("frozen and unused", "sometimes")
STEPS = 4


def backward_of(y, dy):
    """With a gradient for each number of y."""
    backward(y, dy)


def numbers(tensor):
    return tensor.detach().reshape(-1).tolist()


def as_json(tensor):
    """As json_of() in exercises/judge/autograd/tensors.hpp."""
    return tensor if tensor is None else {"shape": list(tensor.shape), "values": numbers(tensor)}


def tensor_of(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def drawn(witness, name, *shape, dtype=torch.float64):
    """A tensor that is the same on all ranks."""
    return torch.tensor(witness.ask("drawn", name, list(shape)), dtype=dtype).view(shape)


def layer_of(told, dtype=torch.float64):
    layer = torch.nn.Linear(told["in"], told["out"], dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(tensor_of(told["weight"]).view(told["out"], told["in"]))
        layer.bias.copy_(tensor_of(told["bias"]))
    return layer


class Net(torch.nn.Module):
    """Four layers: plain; second and third with one weight (tied); a frozen bias; that and a layer that is not used; `third` in every second forward."""

    def __init__(self, witness, kind, dtype=torch.float64):
        super().__init__()
        told = witness.ask("net", kind)
        self.kind, self.calls = kind, 0
        for each in told["layers"]:
            setattr(self, each["name"], layer_of(each, dtype))
        self.register_buffer("shift", tensor_of(told["shift"], dtype))
        if kind == "tied":
            self.third.weight = self.second.weight
        if told["frozen"]:
            getattr(self, told["frozen"]).bias.requires_grad_(False)

    def forward(self, x):
        hidden = functional.relu(self.second(functional.relu(self.first(x))))
        self.calls += 1
        if self.kind != "sometimes" or self.calls % 2 == 0:
            hidden = functional.relu(self.third(hidden))
        return self.out(hidden) + self.shift


class LayeredNet(torch.nn.Module):
    """Three layers 0, 1, 2 of 8 x 8 with a bias. Marks when backward enters each of them."""

    def __init__(self, witness, marks=False, dtype=torch.float64):
        super().__init__()
        for each in witness.ask("layered"):
            self.add_module(each["name"], layer_of(each, dtype))
        self.witness, self.entered = witness if marks else None, {}

    def forward(self, x, without=None):
        for name, layer in self.named_children():
            if name != without:
                x = layer(x)
                if self.witness:
                    register_hook(x, lambda _, name=name: self.entered.setdefault(name, self.witness.mark("count")) and None)
                x = functional.silu(x)
        return x.sum()


def ones(dtype=torch.float64):
    return torch.ones(4, 8, dtype=dtype)


class ShuffledNet(torch.nn.Module):
    """Eight weights, which the loss uses in another order on each rank."""

    def __init__(self, order, gradients, dtype=torch.float64):
        super().__init__()
        self.order, self.gradients = order, [tensor_of(each, dtype) for each in gradients]
        for i, each in enumerate(self.gradients):
            self.register_parameter(f"w{i}", torch.nn.Parameter(torch.ones_like(each)))

    def forward(self):
        loss = torch.zeros(1, dtype=self.gradients[0].dtype)
        for i in self.order:
            loss = loss + (getattr(self, f"w{i}") * self.gradients[i]).sum()
        return loss


def state_of(net):
    return {**{f"parameter {name}": numbers(each) for name, each in net.named_parameters()},
            **{f"buffer {name}": numbers(each) for name, each in net.named_buffers()}}


def gradients_of(net):
    return {name: numbers(each.grad) for name, each in net.named_parameters() if each.grad is not None}


def descend(net):
    """A step of SGD. torch.optim takes seconds to import what compiles it."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter -= 0.05 * parameter.grad


def loss_of(witness, model, index, dtype=torch.float64):
    x, target = witness.ask("rows", index)
    return functional.mse_loss(model(tensor_of(x, dtype)), tensor_of(target, dtype))


def train_all_kinds(witness, make, micro_batches=1, zero_in_turn=False, kinds=KINDS, dtype=torch.float64):
    """Trains every kind of net by SGD: where it starts, and gradients and parameters of each step."""
    return {kind: train(witness, make, kind, micro_batches, zero_in_turn, dtype) for kind in kinds}


def train(witness, make, kind, micro_batches, zero_in_turn, dtype):
    witness.doing(f"training the net '{kind}'")
    net = Net(witness, kind, dtype)
    model = make(net)
    seen = {"start": state_of(net), "steps": []}
    for step in range(STEPS):
        net.zero_grad(set_to_none=not zero_in_turn or step % 2 == 1)
        index = step * micro_batches
        witness.mark("clear")
        with model.no_sync() if micro_batches > 1 else contextlib.nullcontext():
            for micro in range(micro_batches - 1):
                backward(loss_of(witness, model, index + micro, dtype))
        messages = witness.mark("messages")
        backward(loss_of(witness, model, index + micro_batches - 1, dtype))
        model.finish_gradient_synchronization()
        gradients = gradients_of(net)
        descend(net)
        seen["steps"].append({"gradients": gradients, "messages": messages, "parameters": state_of(net)})
    return seen


def calls_of_all_kinds(witness, make, kinds=KINDS, dtype=torch.float64):
    """The calls of three steps of every kind of net."""
    seen = {}
    for kind in kinds:
        net = Net(witness, kind, dtype)
        model = make(net)
        seen[kind] = []
        for step in range(3):
            witness.doing(f"step {step} of the net '{kind}'")
            net.zero_grad()
            witness.barrier()
            witness.mark("clear")
            backward(loss_of(witness, model, 0, dtype))
            model.finish_gradient_synchronization()
            witness.barrier()  # the calls that it did not wait for
            seen[kind].append({"calls": witness.mark("calls"), "sent": witness.mark("sent")})
    return seen


def error_when_a_gradient_is_missing(witness, make, rank):
    """The text of the error when rank 0 lacks the gradient of 1.bias; "" without one."""
    net = LayeredNet(witness)
    try:  # a slow rank may still be in its first broadcast when the others find the difference
        model = make(net)
        backward(model(ones()))
        if rank == 0:
            net.get_submodule("1").bias.grad = None
        witness.doing("finish_gradient_synchronization(), where rank 0 lacks the gradient of 1.bias")
        model.finish_gradient_synchronization()
        witness.barrier()
    except RuntimeError as error:
        return str(error)
    return ""


def events_of_steps(witness, make, dtype=torch.float64):
    """In three steps: the calls that had been made when backward entered each layer, whether it waited for one, and the calls that had
    ended when finish_gradient_synchronization() returned. No call reaches the network before backward has ended, and then each takes
    its time: so nothing depends on how fast the network is.

    In torch a gradient stays in .grad while its call is under way: none is asked to leave its parameter."""
    net = LayeredNet(witness, marks=True, dtype=dtype)
    model = make(net)
    seen = {"steps": [], "memory": []}
    witness.barrier()
    witness.mark("clear")
    for step in range(3):
        net.zero_grad()
        net.entered = {}
        witness.doing(f"backward of step {step}")
        witness.mark("hold")
        backward(model(ones(dtype)))
        waited = witness.mark("impatient")
        witness.mark("release", 0.02)
        witness.doing(f"finish_gradient_synchronization() of step {step}")
        model.finish_gradient_synchronization()
        ended, all_calls = witness.mark("ended"), None
        witness.mark("hurry")
        witness.barrier()
        all_calls, other = witness.mark("count"), witness.mark("another_thread")
        witness.mark("clear")
        seen["memory"].append(Ledger().bytes())
        seen["steps"].append({"calls": [net.entered[name] for name in sorted(net.entered)], "waited in backward": waited, "stayed": [],
                              "all calls": all_calls, "ended": ended})
        seen["of another thread"] = other
    return seen


def ending_of_failed_step(witness, make, rank):
    """What finish_gradient_synchronization() does in a step in which rank 0 leaves out its backward, so that the calls of the others fail."""
    net = LayeredNet(witness)
    witness.doing("a step in which rank 0 leaves out its backward")
    try:  # a rank may still receive parameters here when the calls of the others fail and end the group
        model = make(net)
        if rank > 0:
            backward(model(ones()))
        model.finish_gradient_synchronization()
    except RuntimeError:
        return "threw"
    with contextlib.suppress(RuntimeError):
        witness.barrier()  # rank 0 makes this call where the others make that of a gradient
    return "returned"


def step_of_shuffled_net(witness, make, dtype=torch.float64):
    """One step in which gradients become complete in another order on each rank."""
    net, error, in_backward = ShuffledNet(*witness.ask("shuffled"), dtype), "", None
    try:
        model = make(net)
        witness.barrier()
        witness.mark("clear")
        witness.doing("a step in which gradients become complete in another order on each rank")
        backward(model())
        in_backward = witness.mark("count")
        model.finish_gradient_synchronization()
        witness.barrier()
    except RuntimeError as raised:  # calls in another order explain it
        error = str(raised)
    return {"calls": witness.mark("begins"), "in backward": in_backward or witness.mark("count"), "of another thread": witness.mark("another_thread"),
            "gradients": [as_json(each.grad) for each in net.parameters()], "error": error}


# ---- Cases that several exercises have, as collect.py names them

def gradients(witness, student, rank, size):
    return train_all_kinds(witness, student.DDP)


def calls(witness, student, rank, size):
    return calls_of_all_kinds(witness, student.DDP)


def missing(witness, student, rank, size):
    return error_when_a_gradient_is_missing(witness, student.DDP, rank)
