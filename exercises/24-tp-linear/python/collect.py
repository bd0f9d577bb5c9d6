"""What the cases of judge.cpp do in a rank with an answer in torch."""
from data_parallel import backward_of, drawn, numbers

TOKENS, INNER = 6, 2  # of a feed-forward block; the second: of one rank


def part(whole, dimension, size, rank):
    return whole.tensor_split(size, dim=dimension)[rank].clone()


def leaf(tensor):
    return tensor.clone().requires_grad_(True)


def layers(with_bias):
    def case(witness, student, rank, size):
        """y and the gradients of both layers."""
        seen, wide, high = {}, 3 * size + 1, 2 * size + 1  # no multiples of the ranks
        mine = lambda tensor, dimension: part(tensor, dimension, size, rank)
        for name in ("column_linear", "row_linear"):
            column = name == "column_linear"
            witness.doing(name)
            x, weight, dy = drawn(witness, "x", 2, 3, wide), drawn(witness, "weight", high, wide), drawn(witness, "dy", 2, 3, high)
            bias = drawn(witness, "bias", high) if with_bias else None
            x, weight = leaf(x if column else mine(x, 2)), leaf(mine(weight, 0 if column else 1))
            bias = leaf(mine(bias, 0) if column else bias) if with_bias else None
            y = (student.column_linear if column else student.row_linear)(x, weight, bias)
            backward_of(y, mine(dy, 2) if column else dy)
            of = lambda tensor: [] if tensor is None else numbers(tensor)
            seen[name] = {"y": numbers(y), "dx": of(x.grad), "dW": of(weight.grad), "db": of(bias.grad if with_bias else None)}
        return seen

    return case


def parts(witness, student, rank, size):
    whole = drawn(witness, "weight", 2 * size + 1, 3 * size + 1)
    return [numbers(student.part_of(whole, dimension)) for dimension in (0, 1)]


def block(witness, student, rank, size):
    """The calls of column_linear, relu, row_linear, forward and backward. torch has no labels: the layer's name stands in their place."""
    width = 16 * size
    witness.doing("a feed-forward block: column_linear, relu, row_linear")
    x, up, down = leaf(drawn(witness, "x", TOKENS, width)), leaf(drawn(witness, "up", INNER, width)), leaf(drawn(witness, "down", width, INNER))

    def calls_of(label, function):
        witness.barrier()
        witness.mark("clear")
        result = function()
        return {"calls": witness.mark("calls_of", label), "sent": witness.mark("sent")}, result

    forward, y = calls_of("fc2", lambda: student.row_linear(student.column_linear(x, up).relu(), down))
    way_back, _ = calls_of("gradient of fc1", lambda: backward_of(y, drawn(witness, "dy", TOKENS, width)))
    return {"forward": forward, "backward": way_back}


CASES = {"values": layers(with_bias=False), "bias": layers(with_bias=True), "parts": parts, "calls": block, "bytes": block}
