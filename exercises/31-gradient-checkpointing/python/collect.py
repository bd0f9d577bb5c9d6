"""What the cases of judge.cpp do in a rank with an answer in torch."""
import torch
from data_parallel import as_json, backward_of, layer_of, tensor_of
from ledger import Ledger
from torch.nn import functional

TOKENS, WIDTH = 128, 8
# As in judge.cpp.
CHECKPOINTS, GROUPINGS, DEPTHS = 16, [(1, 1), (6, 2), (16, 4), (11, 3), (32, 4), (32, 1), (7, 7), (5, 8)], [1, 2, 3, 8, 11, 16, 32]
STACKS = [(16, 1, 2), (1, 5, 7), (96, 2, 34), (100, 1, 1), (32, 100, 1), (115, 17, 61)]
CHOICES = [([(2, 0), (6, 60), (10, 5), (10, 5), (2, 20), (2, 1), (8, 80), (8, 4)], 18), ([(10, 50), (4, 40), (4, 40)], 10), ([(6, 60), (5, 45), (5, 45)], 10),
           ([(4, 1), (3, 2)], 0), ([(4, 1), (3, 2)], 7), ([(5, 9)], 4)]


class Chain:
    """Blocks x + silu(x W + b), each of which saves its input and x W + b; counts those that are computed."""

    def __init__(self, witness, count):
        self.layers = [layer_of(each) for each in witness.ask("deep", count, WIDTH)]
        self.computed = 0

    def blocks(self):
        def block(layer):
            def compute(x):
                self.computed += 1
                return x + functional.silu(layer(x))

            return compute

        return [block(layer) for layer in self.layers]


class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(context, block, x):
        context.block = block
        context.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(context, dy):
        (x,) = context.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            y = context.block(x)
        backward_of(y, dy)
        return None, x.grad


def checkpoint_of_the_library(block, x):
    return Recomputed.apply(block, x) if torch.is_grad_enabled() and x.requires_grad else block(x)


def through(blocks, x):
    for block in blocks:
        x = block(x)
    return x


class Steps:
    """Forward and backward through blocks: gradients; the blocks computed; and bytes beyond the input, the parameters and their gradients: after
    forward, and at the peak."""

    def __init__(self, witness):
        self.witness = witness
        self.x, self.dy = (tensor_of(witness.ask("normals", stream, TOKENS * WIDTH)).view(TOKENS, WIDTH) for stream in (1, 2))

    def input(self, requires_grad=True):
        return self.x.clone().requires_grad_(requires_grad)

    def of(self, count, forward):
        chain = Chain(self.witness, count)
        blocks = chain.blocks()
        backward_of(through(blocks, self.input()), self.dy)  # makes the gradients of all parameters
        for layer in chain.layers:
            layer.zero_grad(set_to_none=False)
        chain.computed, x = 0, self.input()
        with Ledger() as ledger:
            before = ledger.bytes()
            ledger.most = before
            y = forward(blocks, x)
            after = ledger.bytes() - before
            backward_of(y, self.dy)
            peak = ledger.most - before
        gradients = {"x": as_json(x.grad)}
        for i, layer in enumerate(chain.layers):
            gradients |= {f"block {i}, linear.{name}": as_json(each.grad) for name, each in layer.named_parameters()}
        return {"after forward": after, "peak": peak, "computed": chain.computed, "gradients": gradients}


def each_a_checkpoint(student):
    return lambda blocks, x: through([lambda x, block=block: student.checkpoint(block, x) for block in blocks], x)


def gradients(witness, student, rank, size):
    steps = Steps(witness)
    seen = steps.of(3, each_a_checkpoint(student))
    seen["inner"] = steps.of(2, lambda blocks, x: student.checkpoint(lambda x: student.checkpoint(blocks[1], blocks[0](x)), x))

    chain, hooks = Chain(witness, 1), []
    (block,), weight = chain.blocks(), chain.layers[0].weight
    weight.register_post_accumulate_grad_hook(hooks.append)
    backward_of(student.checkpoint(block, steps.input()), steps.dy)
    seen["hooks"] = len(hooks)

    # The input requires no gradient: ordinary history of the parameters.
    weight.grad, chain.computed, plain = None, 0, {}
    try:
        backward_of(student.checkpoint(block, steps.input(requires_grad=False)), steps.dy)
        plain["gradient"] = as_json(weight.grad)
    except RuntimeError as error:
        plain["error"] = str(error)
    seen["plain input"] = {**plain, "computed": chain.computed}

    with torch.no_grad():
        seen["without history"] = student.checkpoint(block, steps.input()).requires_grad
    return seen


def saved(witness, student, rank, size):
    return Steps(witness).of(CHECKPOINTS, each_a_checkpoint(student))


def groups(witness, student, rank, size):
    steps = Steps(witness)
    return [steps.of(count, lambda blocks, x, k=k: student.in_groups(blocks, k, x, checkpoint_of_the_library)) for count, k in GROUPINGS]


def nested(witness, student, rank, size):
    steps = Steps(witness)
    return [steps.of(count, lambda blocks, x: student.nested(blocks, x, checkpoint_of_the_library)) for count in DEPTHS]


def best(witness, student, rank, size):
    return [int(student.best_group(*each)) for each in [*STACKS, *witness.ask("stacks")]]


def kept(witness, student, rank, size):
    choices = CHOICES + [(each["activations"], each["budget"]) for each in witness.ask("choices")]
    return [[int(i) for i in student.kept([student.Activation(*each) for each in activations], budget)] for activations, budget in choices]


CASES = {"gradients": gradients, "saved": saved, "groups": groups, "nested": nested, "best": best, "kept": kept}
