"""What the cases of judge.cpp do in a rank with an answer in torch."""
import data_parallel
import sharded_gradients

FEW, ONE = 0.0003, 1e-6  # MB of a bucket: a few gradients, one


def of_size(student, megabytes):
    return lambda module: sharded_gradients.WithWholeGradients(student.ShardedGradients(module, megabytes))


def gradients(witness, student, rank, size):
    return data_parallel.train_all_kinds(witness, of_size(student, FEW))


def step(witness, student, rank, size):
    return sharded_gradients.step_of_deep_net(witness, student.ShardedGradients, size)


def micro_batches(witness, student, rank, size):
    return sharded_gradients.micro_batches(witness, student.ShardedGradients)


def uneven(witness, student, rank, size):
    """Eight weights of 21 numbers, each a bucket."""
    return data_parallel.step_of_shuffled_net(witness, of_size(student, ONE))


CASES = {"gradients": gradients, "memory": step, "open": step, "bytes": step, "micro-batches": micro_batches, "uneven": uneven, "weak": gradients}
