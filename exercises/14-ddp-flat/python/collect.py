"""What the cases of judge.cpp do in a rank with an answer in torch."""
import data_parallel


def gradients(witness, student, rank, size):
    return data_parallel.train_all_kinds(witness, student.DDP)


def calls(witness, student, rank, size):
    return data_parallel.calls_of_all_kinds(witness, student.DDP)


def missing(witness, student, rank, size):
    return data_parallel.error_when_a_gradient_is_missing(witness, student.DDP, rank)


CASES = {"gradients": gradients, "one-call": calls, "missing": missing}
