"""What the cases of judge.cpp do in a rank with an answer in torch."""
import data_parallel
import torch
from data_parallel import CS336_KINDS, OTHER_KINDS, calls, gradients


def order(witness, student, rank, size):
    steps = data_parallel.events_of_steps(witness, student.DDP)
    # torch adds up the gradients of a second backward, so it is not asked to raise an error.
    return {"steps": steps, "second backward": "threw", "failed step": data_parallel.ending_of_failed_step(witness, student.DDP, rank)}


def no_sync(witness, student, rank, size):
    return data_parallel.train_all_kinds(witness, student.DDP, micro_batches=3)


def cs336_trains(kinds):
    return lambda witness, student, rank, size: data_parallel.train_all_kinds(witness, student.DDP, kinds=kinds, dtype=torch.float32)


def cs336_order(witness, student, rank, size):
    return data_parallel.events_of_steps(witness, student.DDP, torch.float32)


def cs336_calls(witness, student, rank, size):
    return data_parallel.calls_of_all_kinds(witness, student.DDP, CS336_KINDS, torch.float32)


CASES = {"gradients": gradients, "order": order, "calls": calls, "no-sync": no_sync, "weak": gradients,
         "cs336-gradients": cs336_trains(CS336_KINDS), "cs336-order": cs336_order, "cs336-calls": cs336_calls, "cs336-other-nets": cs336_trains(OTHER_KINDS)}
