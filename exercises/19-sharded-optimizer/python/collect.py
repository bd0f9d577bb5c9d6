"""What the cases of judge.cpp do in a rank with an answer in torch, and what a single process computes."""
from optimizers import CS336_GROUP, CS336_RATE, CS336_STEPS, FEW_PARAMETERS, LATE_GROUP, TEN_STEPS, bytes_of_state, one_step, plain, step_of_owner, training


def trains(plan):
    def case(witness, student, rank, size):
        witness.doing("a training")
        return training(witness, plan, student.ShardedOptimizer, rank)

    return case


CASES = {"same-bits": trains(TEN_STEPS), "groups-and-rates": trains(LATE_GROUP), "more-ranks-than-parameters": trains(FEW_PARAMETERS), "weak": trains(TEN_STEPS),
         "memory": lambda witness, student, rank, size: bytes_of_state(witness, student.ShardedOptimizer, rank, size),
         "owners": lambda witness, student, rank, size: one_step(witness, student.ShardedOptimizer, rank, own=True),
         "bytes": lambda witness, student, rank, size: one_step(witness, student.ShardedOptimizer, rank, own=False),
         "cs336-same-weights": trains(CS336_STEPS), "cs336-groups": trains(CS336_GROUP), "cs336-rates": trains(CS336_RATE),
         "cs336-memory": lambda witness, student, rank, size: bytes_of_state(witness, student.ShardedOptimizer, rank, size, even=True),
         "cs336-balance": lambda witness, student, rank, size: bytes_of_state(witness, student.ShardedOptimizer, rank, size)}

SINGLE = {"same-bits": lambda witness, size: training(witness, TEN_STEPS, plain), "groups-and-rates": lambda witness, size: training(witness, LATE_GROUP, plain),
          "more-ranks-than-parameters": lambda witness, size: training(witness, FEW_PARAMETERS, plain), "weak": lambda witness, size: training(witness, TEN_STEPS, plain),
          "cs336-same-weights": lambda witness, size: training(witness, CS336_STEPS, plain), "cs336-groups": lambda witness, size: training(witness, CS336_GROUP, plain),
          "cs336-rates": lambda witness, size: training(witness, CS336_RATE, plain),
          "owners": lambda witness, size: [step_of_owner(witness, owner) for owner in range(size)]}
