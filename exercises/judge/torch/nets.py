"""The numbers of the judges' nets and rows, as exercises/judge/ddp makes them in C++ (base/random.hpp): the judge computes with
the same ones. The witness gives a rank those of its own alone.
"""
import math

import experts
from draws import hash_of_text, random_below, random_normal, random_uniform, stream_of

ROWS = 4  # of a rank in a micro-batch
SHUFFLED, LENGTH = 8, 21  # weights of the shuffled net, and their numbers


def linear(seed, name, wide, high):
    """A layer as a rank builds it: its sizes, and weight and bias as autograd/nn/layers.cpp draws them."""
    bound = 1 / math.sqrt(wide)
    drawn = lambda what, count: [-bound + 2 * bound * random_uniform(seed, stream_of(what), i) for i in range(count)]
    return {"name": name, "in": wide, "out": high, "weight": drawn(name, wide * high), "bias": drawn(name + ".bias", high)}


class Numbers:
    """What rank `rank` of `size` may know."""

    def __init__(self, seed, rank, size):
        self.seed, self.rank, self.size = seed, rank, size

    def below(self, n, stream, counter):
        return random_below(n, self.seed, stream, counter)

    def width(self, which):
        return 4 + self.below(6, 2, which)

    def give_net(self, kind):
        """Layers, the buffer `shift` and the name of the frozen bias of a net (JudgeNet)."""
        sizes = {"first": (0, 1), "second": (1, 1), "third": (1, 1), "unused": (2, 3), "out": (1, 4)}
        layers = [linear(self.seed + self.rank, name, self.width(i), self.width(o)) for name, (i, o) in sizes.items()
                  if name != "unused" or kind == "frozen and unused"]
        frozen = ["first", "second", "third", "out"][self.below(4, 3, 0)] if kind in ("frozen", "frozen and unused") else None
        return {"layers": layers, "shift": [float(self.rank)] * self.width(4), "frozen": frozen}

    def give_rows(self, index):
        """x and target of this rank in micro-batch number `index`."""
        first = index * ROWS * self.size + self.rank * ROWS
        drawn = lambda stream, columns: [[random_normal(self.seed, stream, row * columns + i) for i in range(columns)] for row in range(first, first + ROWS)]
        return drawn(4, self.width(0)), drawn(5, self.width(4))

    def give_layered(self):
        return [linear(self.seed, str(i), 8, 8) for i in range(3)]

    def give_shuffled(self):
        """The order in which this rank's loss uses the weights, and the gradient of each."""
        order = list(range(SHUFFLED))
        for i in range(SHUFFLED - 1, 0, -1):
            j = self.below(i + 1, 8 + self.rank, i)
            order[i], order[j] = order[j], order[i]
        return order, [self.gradient(i) for i in range(SHUFFLED)]

    def gradient(self, i):
        return self.normals(1000 + 100 * self.rank + i, LENGTH)

    def give_blocks(self, vocabulary, width, depth):
        """First weights of a BlockNet (exercises/judge/zero/block_net.cpp)."""
        seed = self.seed + self.rank
        table = [random_normal(seed, stream_of("embed"), i) for i in range(vocabulary * width)]
        return {"embed": table, "layers": [linear(seed, str(i), width, width) for i in range(depth)], "head": linear(seed, "head", width, vocabulary)["weight"]}

    def give_tokens(self, step, vocabulary, count):
        """The tokens of this rank in a step, and what a BlockNet is to give for them."""
        batch = 100 * step + self.rank
        return [self.below(vocabulary, 200 + batch, i) for i in range(count)], self.normals(1000 + batch, count * vocabulary)

    def give_deep(self, depth, width):
        return [linear(self.seed, str(i), width, width) for i in range(depth)]

    def give_batch(self, micro_batch, count):
        """Rows of this rank for a DeepNet, in one of three micro-batches."""
        return self.normals(100 + 3 * self.rank + micro_batch, count)

    def give_drawn(self, name, shape):
        """A tensor that is the same on all ranks (numbers() in judge/tensor_parallel/divided_tensors.cpp)."""
        return self.normals(stream_of(name), math.prod(shape))

    def give_normals(self, stream, count):
        """The same on all ranks (random_tensor in judge/autograd/tensors.cpp)."""
        return self.normals(stream, count)

    def give_stacks(self):
        """Blocks, input and saved of stacks (exercises/31-gradient-checkpointing/judge.cpp)."""
        return [[2 + self.below(150, 300, i), 1 + self.below(50, 301, i), 1 + self.below(200, 302, i)] for i in range(40)]

    def give_choices(self):
        """Activations, as bytes and FLOPs, and a budget."""
        return [{"activations": [[1 + self.below(30, 400 + which, i), self.below(100, 500 + which, i)] for i in range(10)], "budget": 20 + self.below(80, 600, which)}
                for which in range(20)]

    def give_rows_from(self, name, tokens, width, scale, first, count):
        """Rows of a sequence (rows_of in exercises/42-ring-attention/judge.cpp): those of the student's own order."""
        stream = hash_of_text(name) + tokens
        return [scale * random_normal(self.seed, stream, first * width + i) for i in range(count * width)]

    def give_router_cases(self):
        """Logits for a router (exercises/43-expert-parallel/judge.cpp)."""
        return experts.router_cases(self.seed)

    def give_expert_settings(self):
        return len(experts.SETTINGS)

    def give_expert_layer(self, number):
        return experts.Layer(experts.SETTINGS[number], self.size, self.seed).of_rank(self.rank)

    def give_uniforms(self, stream, begin, count):
        return [random_uniform(self.seed, stream, begin + i) for i in range(count)]

    def give_sizes(self):
        """Lengths of nine parameters (random_sizes in judge/zero/optimizer_training.cpp)."""
        return [1 + self.below(40, 7, i) for i in range(9)]

    def give_parameters(self, sizes):
        return [self.normals(i, size) for i, size in enumerate(sizes)]

    def give_gradients_of_step(self, sizes, step, own):
        """Those of this rank, or the mean, which all ranks hold."""
        stream = 1000 + 100 * step + 10000 * (self.rank + 1 if own else 0)
        return [self.normals(stream + i, size) for i, size in enumerate(sizes)]

    def normals(self, stream, count):
        return [random_normal(self.seed, stream, k) for k in range(count)]

    def name_of(self, begins):
        """The weight of the shuffled net whose gradient, or 1/size of it, begins with these two numbers."""
        for i in range(SHUFFLED):
            own = self.gradient(i)[:2]
            for factor in (1.0, 1.0 / self.size):
                if len(begins) == 2 and sum(abs(b - factor * o) for b, o in zip(begins, own)) < 1e-6:  # in fp32, too
                    return f"w{i}"
        return "something else"
