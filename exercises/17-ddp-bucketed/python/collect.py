"""What the cases of judge.cpp do in a rank with an answer in torch."""
import data_parallel
import torch
from data_parallel import CS336_KINDS, OTHER_KINDS, LayeredNet, backward, ones

# Sizes of buckets in MB: one gradient each; a few; one layer, or two, of a LayeredNet; all.
BYTE, FEW, ONE_LAYER, TWO_LAYERS, ALL = 1e-6, 0.0003, 0.0006, 0.0012, 1000
# The same for nets in fp32, in MB and in MiB alike (judge.cpp).
TINY, A_LAYER, TWO_IN_FP32 = 1e-5, 0.0003, 0.000578


def name_of(megabytes):
    return f"buckets of {megabytes * 1e6:.0f} bytes"


def of_size(student, megabytes):
    return lambda module: student.DDP(module, megabytes)


def gradients(witness, student, rank, size):
    return {name_of(each): data_parallel.train_all_kinds(witness, of_size(student, each)) for each in (BYTE, FEW, ALL)}


def steps(witness, student, rank, size):
    train = lambda micro_batches: data_parallel.train_all_kinds(witness, of_size(student, FEW), micro_batches, zero_in_turn=True)
    return {"one": train(1), "three": train(3)}


def order(witness, student, rank, size):
    seen = {name_of(each): data_parallel.events_of_steps(witness, of_size(student, each)) for each in (ONE_LAYER, TWO_LAYERS, BYTE)}
    seen["failed step"] = data_parallel.ending_of_failed_step(witness, of_size(student, ONE_LAYER), rank)
    return seen


def same_order(witness, student, rank, size):
    return data_parallel.step_of_shuffled_net(witness, of_size(student, BYTE))


def missing(witness, student, rank, size):
    """Rank 0 leaves out layer 1."""
    net = LayeredNet(witness)
    try:  # a slow rank may still be in its first broadcast when the others find the difference
        model = student.DDP(net, ONE_LAYER)
        witness.doing("finish_gradient_synchronization(), where rank 0 lacks the gradients of layer 1")
        backward(model(ones(), without="1" if rank == 0 else None))
        model.finish_gradient_synchronization()
        witness.barrier()
    except RuntimeError as error:
        return str(error)
    return ""


def weak(witness, student, rank, size):
    return data_parallel.train_all_kinds(witness, of_size(student, FEW))


def cs336_trains(kinds):
    return lambda witness, student, rank, size: {name_of(each): data_parallel.train_all_kinds(witness, of_size(student, each), kinds=kinds, dtype=torch.float32)
                                                 for each in (TINY, A_LAYER, ALL)}


def cs336_order(witness, student, rank, size):
    return {name_of(each): data_parallel.events_of_steps(witness, of_size(student, each), torch.float32) for each in (A_LAYER, TWO_IN_FP32, TINY)}


def cs336_same_order(witness, student, rank, size):
    return data_parallel.step_of_shuffled_net(witness, of_size(student, TINY), torch.float32)


def cs336_bucket_size(witness, student, rank, size):
    net = LayeredNet(witness, dtype=torch.float32)
    model = student.DDP(net, A_LAYER)
    witness.barrier()
    witness.mark("clear")
    backward(model(ones(torch.float32)))
    model.finish_gradient_synchronization()
    return {"calls": witness.mark("calls")}


CASES = {"gradients": gradients, "order": order, "same-order": same_order, "steps": steps, "missing": missing, "weak": weak,
         "cs336-gradients": cs336_trains(CS336_KINDS), "cs336-order": cs336_order, "cs336-other-nets": cs336_trains(OTHER_KINDS),
         "cs336-same-order": cs336_same_order, "cs336-bucket-size": cs336_bucket_size}
