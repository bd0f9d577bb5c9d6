"""What the cases of judge.cpp do in a rank with an answer in torch, and what a single process computes."""
from sharded_parameters import DEEP, MIXED, PLAIN, RECOMPUTED, TIED, WITHOUT_HISTORY, peak_of_all, step, training


def trains(options):
    return lambda witness, student, rank, size: training(witness, student.FSDP, rank, options)


def steps(options):
    return lambda witness, student, rank, size: step(witness, student.FSDP, options)


CASES = {"training": trains(PLAIN), "weak": trains(PLAIN), "tied": trains(TIED), "mixed": trains(MIXED), "mixed-bytes": trains(MIXED),
         "events": steps(PLAIN), "prefetch": steps(PLAIN), "calls": steps(PLAIN), "tied-calls": steps(TIED), "memory": steps(DEEP),
         "checkpointing": steps(RECOMPUTED), "no-history": steps(WITHOUT_HISTORY)}

SINGLE = {"memory": lambda witness, size: {"peak of all": peak_of_all(witness, DEEP, size)}}
