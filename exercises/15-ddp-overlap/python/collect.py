"""What the cases of judge.cpp do in a rank with an answer in torch."""
import data_parallel
from data_parallel import calls, gradients


def order(witness, student, rank, size):
    steps = data_parallel.events_of_steps(witness, student.DDP)
    # torch adds up the gradients of a second backward, so it is not asked to raise an error.
    return {"steps": steps, "second backward": "threw", "failed step": data_parallel.ending_of_failed_step(witness, student.DDP, rank)}


def no_sync(witness, student, rank, size):
    return data_parallel.train_all_kinds(witness, student.DDP, micro_batches=3)


CASES = {"gradients": gradients, "order": order, "calls": calls, "no-sync": no_sync, "weak": gradients}
