"""What the cases of judge.cpp do with an answer in torch."""
import math

import torch

TYPES = (torch.float32, torch.bfloat16, torch.float16)
STEPS, INTERVAL = 200, 5
# As results() in judge.cpp: operations, and the results before them that they read; -1: the embedding, in fp32.
RESULTS = [("norm", [-1]), ("linear", [0]), ("softmax", [1]), ("linear", [2]), ("add", [-1, 3]), ("norm", [4]), ("linear", [5]), ("activation", [6]), ("linear", [7]),
           ("add", [6, 8]), ("activation", [5]), ("add", [8, 4]), ("linear", [11]), ("loss", [12])]


def finite(number):
    """null in JSON for what it has no number for."""
    return number if math.isfinite(number) else None


def sums(witness, student, rank, size):
    uniform = torch.tensor(witness.ask("uniforms", 40, 0, 1000), dtype=torch.float64)
    lists = [torch.full((1000,), 0.01), (uniform * 3 - 1).to(torch.float32)]
    return [finite(student.accumulated(values.clone(), terms, sum_in)) for values in lists for terms in TYPES for sum_in in TYPES]


def scales(witness, student, rank, size):
    lists = [[1.0], [-1.5, 0.0], [1.99951171875], [1.9999, 1e-8], [3e-7, -2e-9], [65504.0], [65505.0]]
    for which in range(20):
        largest = 10.0 ** (-8 * witness.ask("uniforms", 41, which, 1)[0])
        lists.append([largest * (2 * each - 1) for each in witness.ask("uniforms", 50 + which, 0, 8)])
    return [finite(student.largest_scale(torch.tensor(each, dtype=torch.float32))) for each in lists]


def steps(witness, student, rank, size):
    drawn = [witness.ask("uniforms", 70 + i, 0, STEPS) for i in range(3)]
    spoils = witness.ask("uniforms", 80, 0, STEPS)
    state, seen = student.LossScale(scale=1024.0, good_steps=0, interval=INTERVAL), []
    for step in range(STEPS):
        gradients = torch.tensor([each[step] - 0.5 for each in drawn], dtype=torch.float32) * state.scale
        if step == 7 or spoils[step] < 0.08:
            gradients[2] = math.nan if step % 2 == 0 else math.inf
        takes = student.unscaled(gradients, state)
        seen.append({"takes": bool(takes), "gradients": [finite(each) for each in gradients.tolist()], "scale": finite(float(state.scale))})
    return seen


def autocast(witness, student, rank, size):
    seen = []
    for low in TYPES[1:]:
        types = []
        for operation, inputs in RESULTS:
            types.append(student.result_type(operation, [torch.float32 if each < 0 else types[each] for each in inputs], low))
        seen.append([TYPES.index(each) if each in TYPES else -1 for each in types])
    return seen


CASES = {"sums": sums, "scale": scales, "steps": steps, "autocast": autocast}
