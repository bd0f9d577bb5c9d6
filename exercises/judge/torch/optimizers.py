"""What the cases of a sharded optimizer do in a rank: parameters and gradients of random numbers, and the steps of
exercises/judge/zero/optimizer_training.cpp, in torch.

`make` is the student's class, ShardedOptimizer(params, optimizer_cls, **kwargs), or a function that makes a plain optimizer.
"""
import torch
from ledger import Ledger, bytes_of, gradient_of

ADAMW, SGD = torch.optim.AdamW, torch.optim.SGD  # as they were before the student's code came
TEN_STEPS = {"steps": 10}
LATE_GROUP = {"steps": 6, "late": 5, "changes rate": True}
# Twelve parameters of about one size: however they are dealt out, each of 2 or 3 ranks has some of each group.
TWELVE = {"sizes": [13, 17, 11, 19, 12, 18, 14, 16, 15, 20, 10, 21]}
CS336_STEPS, CS336_GROUP, CS336_RATE = {**TWELVE, "steps": 10}, {**TWELVE, "steps": 5, "late": 6}, {**TWELVE, "steps": 5, "changes rate": True}
FEW_PARAMETERS = {"steps": 3, "sizes": [7, 3, 5], "optimizer": SGD, "options": {"momentum": 0.9, "nesterov": True}}


def plain(parameters, optimizer_cls, **kwargs):
    return optimizer_cls(parameters, **kwargs)


def parameters_of(witness, sizes, rank):
    """p0, p1, ...: the same on every rank; but each allocates them in another order, so that their addresses tell nothing."""
    values, made = witness.ask("parameters", sizes), {}
    for i in range(len(sizes)) if rank % 2 == 0 else reversed(range(len(sizes))):
        made[i] = torch.nn.Parameter(torch.tensor(values[i]))
    return [made[i] for i in range(len(sizes))]


def set_gradients(witness, parameters, step, of=None, own=False):
    sizes = [each.numel() for each in parameters]
    for parameter, values in zip(parameters, witness.ask("gradients_of_step", sizes, step, own, of=of)):
        parameter.grad = torch.tensor(values)


def values_of(parameters):
    return {f"p{i}": each.tolist() for i, each in enumerate(parameters)}


def training(witness, plan, make, rank=0):
    """The values before step 0, and after each step. The parameters from `late` on join in a second group before step 2; the rate
    changes before step 3."""
    parameters = parameters_of(witness, plan.get("sizes") or witness.ask("sizes"), rank)
    late = plan.get("late", len(parameters))
    decay = {"weight_decay": 0.1} if "optimizer" not in plan else {}
    optimizer = make(parameters[:late], plan.get("optimizer", ADAMW), lr=0.01, **decay, **plan.get("options", {}))
    history = [values_of(parameters)]
    for step in range(plan["steps"]):
        if step == 2 and late < len(parameters):
            optimizer.add_param_group({"params": parameters[late:], "lr": 0.02, "weight_decay": 0.0})
        if step == 3 and plan.get("changes rate"):
            for group in optimizer.param_groups:
                group["lr"] = 0.1
        set_gradients(witness, parameters, step)
        optimizer.step()
        history.append(values_of(parameters))
    return history


def bytes_of_state(witness, make, rank, size, even=False):
    """After each of two steps, where every p-th parameter is large, or all are: the bytes of all tensors but the parameters and the gradients that are there."""
    with Ledger() as ledger:
        witness.doing("two steps")
        parameters = parameters_of(witness, [600 if even or i % size == 0 else 6 for i in range(4 * size)], rank)
        before = ledger.bytes() - sum(each.nbytes for each in parameters)
        optimizer = make(parameters, ADAMW, lr=0.01, weight_decay=0.0)
        seen = []
        for step in range(2):
            set_gradients(witness, parameters, step)
            optimizer.step()
            gradients = [gradient for each in parameters if (gradient := gradient_of(each)) is not None]
            theirs = sum(map(bytes_of, [*parameters, *gradients]))
            seen.append(ledger.bytes() - before - theirs)
    return seen


def one_step(witness, make, rank, own):
    """What a step does. With gradients of its own on each rank a parameter moves by those of its owner."""
    witness.doing("one step")
    parameters, error = parameters_of(witness, witness.ask("sizes"), rank), ""
    optimizer = make(parameters, ADAMW, lr=0.01, weight_decay=0.0)
    set_gradients(witness, parameters, 0, own=own)
    witness.barrier()
    witness.mark("clear")
    try:
        optimizer.step()
    except RuntimeError as raised:  # owners that differ explain it
        error = str(raised)
    return {"error": error, "owners": [[optimizer.owner(each)] for each in parameters], "values": values_of(parameters),
            "calls": witness.mark("calls_in_words"), "sent": witness.mark("sent")}


def step_of_owner(witness, owner):
    """The values that a step makes of the gradients of this owner."""
    parameters = parameters_of(witness, witness.ask("sizes"), 0)
    optimizer = ADAMW(parameters, lr=0.01, weight_decay=0.0)
    set_gradients(witness, parameters, 0, of=owner, own=True)
    optimizer.step()
    return values_of(parameters)
