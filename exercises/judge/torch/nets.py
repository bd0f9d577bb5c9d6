"""The numbers of the judges' nets and rows, as exercises/judge/ddp makes them in C++ (base/random.hpp): the judge computes with
the same ones. The witness gives a rank those of its own alone.
"""
import math

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ROWS = 4  # of a rank in a micro-batch
SHUFFLED, LENGTH = 8, 21  # weights of the shuffled net, and their numbers


def mix_bits(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def random_bits(seed, stream, counter):
    return mix_bits(mix_bits(mix_bits(seed + GOLDEN & WORD) + (stream + 1) * GOLDEN & WORD) + (counter + 1) * GOLDEN & WORD)


def random_uniform(seed, stream, counter):
    return (random_bits(seed, stream, counter) >> 11) * 2.0**-53


def random_normal(seed, stream, counter):
    u, v = 1.0 - random_uniform(seed, stream, 2 * counter), random_uniform(seed, stream, 2 * counter + 1)
    return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)


def stream_of(name):
    stream = 0xCBF29CE484222325
    for letter in name.encode():
        stream = (stream ^ letter) * 0x100000001B3 & WORD
    return stream


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
        return random_bits(self.seed, stream, counter) % n

    def width(self, which):
        return 4 + self.below(6, 2, which)

    def give_net(self, kind):
        """Layers, the buffer `shift` and the name of the frozen bias of a net (JudgeNet)."""
        sizes = {"first": (0, 1), "second": (1, 1), "third": (1, 1), "unused": (2, 3), "out": (1, 4)}
        layers = [linear(self.seed + self.rank, name, self.width(i), self.width(o)) for name, (i, o) in sizes.items()
                  if name != "unused" or kind == "frozen and unused"]
        frozen = ["first", "second", "third", "out"][self.below(4, 3, 0)] if kind == "frozen and unused" else None
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
        stream = 1000 + 100 * self.rank + i
        return [random_normal(self.seed, stream, k) for k in range(LENGTH)]

    def name_of(self, begins):
        """The weight of the shuffled net whose gradient, or 1/size of it, begins with these two numbers."""
        for i in range(SHUFFLED):
            own = self.gradient(i)[:2]
            for factor in (1.0, 1.0 / self.size):
                if len(begins) == 2 and sum(abs(b - factor * o) for b, o in zip(begins, own)) < 1e-9:
                    return f"w{i}"
        return "something else"
