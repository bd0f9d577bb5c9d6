"""What the cases of judge.cpp do in a rank with an answer in torch."""
import math

import torch
from data_parallel import drawn

ROWS, WIDTH = 3, 8  # of a micro-batch


def batch_of(witness, name, micro_batches, here):
    """Of all micro-batches on the rank that has them; elsewhere of the same shapes, without numbers."""
    return [drawn(witness, f"{name} {m}", ROWS, WIDTH, dtype=torch.float32) if here else torch.full((ROWS, WIDTH), math.nan) for m in range(micro_batches)]


def step(micro_batches_in):
    def case(witness, student, rank, size):
        micro_batches = micro_batches_in(size)
        witness.doing(f"training_step, {micro_batches} micro-batch{'es' * (micro_batches > 1)}")
        weight = (0.25 * drawn(witness, f"stage {rank}", WIDTH, WIDTH, dtype=torch.float32)).requires_grad_(True)
        x, targets = batch_of(witness, "x", micro_batches, rank == 0), batch_of(witness, "target", micro_batches, rank == size - 1)
        witness.barrier()
        witness.mark("clear")
        student.training_step(weight, x, targets)
        # Not a number is no number of JSON.
        gradient = [] if weight.grad is None else [each if math.isfinite(each) else None for each in weight.grad.reshape(-1).tolist()]
        return {"gradient": gradient, "calls": witness.mark("exchanges")}

    return case


CASES = {"chain": step(lambda size: 1), **dict.fromkeys(("gradients", "messages", "pipelined"), step(lambda size: 2 * size + 1))}
