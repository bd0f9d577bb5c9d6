"""What the cases of judge.cpp do in a rank with an answer in torch."""
import torch
from data_parallel import drawn, numbers

BATCH, SCALE_OF_WEIGHTS = 3, 0.125
# As in judge.cpp: the features before the layers and after each, in rows of one rank; whether a layer has a GELU.
SHALLOW = [("one layer", [3, 2], [False]), ("one layer with GELU", [2, 5], [True])]
DEEP = [("two layers", [2, 4, 2], [True, False]), ("three layers", [3, 1, 4, 2], [True, False, True])]


def run_of_student(witness, student, rank, size, net, batches, with_backward):
    """Of the last batch; the gradients of the weights are those of all batches."""
    name, features, gelu = net
    of_net = lambda what, rows, columns: drawn(witness, f"{name} {what}", rows, columns, dtype=torch.float32)
    layers = []
    for i, has_gelu in enumerate(gelu):
        whole = SCALE_OF_WEIGHTS * of_net(f"W{i}", features[i + 1] * size, features[i] * size)
        layers.append(student.Layer(whole.chunk(size)[rank].clone().requires_grad_(True), has_gelu))
    weights = [layer.weight for layer in layers]
    seen = {"sent": {}}

    def noted(way, function, argument):
        witness.doing(f"{way}_gathered, net '{name}'")
        witness.barrier()
        witness.mark("clear")
        result = function(layers, argument)
        seen["sent"][way] = witness.mark("sent")
        return numbers(result)

    for number in range(batches):
        seen["y"] = noted("forward", student.forward_gathered, of_net(f"x{number}", features[0] * size, BATCH))
        if with_backward:
            seen["dx"] = noted("backward", student.backward_gathered, of_net(f"dy{number}", features[-1] * size, BATCH))
    return {**seen, "dW": [[] if each.grad is None else numbers(each.grad) for each in weights]}


def runs(nets, batches=1, with_backward=True):
    return lambda witness, student, rank, size: [run_of_student(witness, student, rank, size, net, batches, with_backward) for net in nets]


CASES = {"forward": runs(SHALLOW + DEEP, with_backward=False), "one-layer": runs(SHALLOW), "gradients": runs(SHALLOW + DEEP), "batches": runs(DEEP, batches=2),
         "bytes": runs(SHALLOW + DEEP)}
