"""Tokens on all ranks and their experts, as exercises/43-expert-parallel/layer.hpp draws them in C++."""
import math
import struct

from draws import hash_of_text, random_below, random_normal

WIDTH = 8
SETTINGS = [("random", 2, 2), ("one expert", 2, 1), ("idle experts", 3, 2), ("idle rank", 2, 3), ("at home", 2, 2)]  # experts of a rank, and of a token


def fp32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def normal_numbers(count, seed, stream):
    return [fp32(random_normal(seed, stream, i)) for i in range(count)]


def largest(numbers, count):
    """The indices of the largest, the largest first; of equal ones the lower index first."""
    return sorted(range(len(numbers)), key=lambda i: -numbers[i])[:count]


def softmax(numbers):
    powers = [math.exp(each - max(numbers)) for each in numbers]
    return [each / sum(powers) for each in powers]


def rows_of(numbers, width=WIDTH):
    return [numbers[i:i + width] for i in range(0, len(numbers), width)]


def router_cases(seed):
    cases = []
    for name, count, per_token, factor in (("2 of 4", 4, 2, 1), ("1 of 8", 8, 1, 1), ("3 of 3", 3, 3, 1), ("4 of 16", 16, 4, 1), ("large logits", 8, 2, 200)):
        numbers = normal_numbers(6 * count, seed, 900 + len(cases))
        cases.append({"name": name, "experts": count, "per_token": per_token, "logits": [fp32(each * factor) for each in numbers]})
    cases.append({"name": "equal logits", "experts": 4, "per_token": 2, "logits": [1, 1, 1, 1, 0, 2, 2, 2, 3, 1, 1, 0, 0, 0, 1, 0]})
    cases.append({"name": "no token", "experts": 4, "per_token": 2, "logits": []})
    return cases


class Layer:
    """Tokens of all ranks, and experts, each a matrix [width, width]."""

    def __init__(self, setting, ranks, seed):
        self.name, self.each, self.per_token = setting
        self.ranks, self.seed, self.experts = ranks, seed, self.each * ranks
        self.matrices = [rows_of(normal_numbers(WIDTH * WIDTH, seed, self.stream("expert", e))) for e in range(self.experts)]
        self.hot, self.idle = self.below(self.experts, "hot", 0), self.below(ranks, "idle", 0)
        self.tokens = [self.tokens_of(rank) for rank in range(ranks)]

    def stream(self, what, which):
        return hash_of_text(f"{self.name}, {what} of {which}")

    def below(self, most, what, which):
        return random_below(most, self.seed, self.stream(what, which), 0)

    def may_choose(self, rank, expert):
        return {"one expert": expert == self.hot, "idle experts": expert % self.each == 1, "at home": expert // self.each == rank}.get(self.name, True)

    def tokens_of(self, rank):
        count = 0 if self.name == "idle rank" and rank == self.idle else 4 + self.below(4, "tokens", rank)
        drawn = lambda what, columns: rows_of(normal_numbers(count * columns, self.seed, self.stream(what, rank)), columns)
        logits = [[each if self.may_choose(rank, e) else fp32(each - 100) for e, each in enumerate(row)] for row in drawn("logits", self.experts)]
        chosen = [largest(row, self.per_token) for row in logits]
        weights = [[fp32(each) for each in softmax([row[expert] for expert in its])] for row, its in zip(logits, chosen)]
        return {"x": drawn("x", WIDTH), "dy": drawn("dy", WIDTH), "chosen": chosen, "weights": weights}

    def of_rank(self, rank):
        """What a rank has: its tokens, its experts, the rows that each of them gets, and the gradient of each weight."""
        tokens, own = self.tokens[rank], range(rank * self.each, (rank + 1) * self.each)
        dot = lambda a, b: sum(x * y for x, y in zip(a, b))
        gradients = [[dot([dot(row, x) for row in self.matrices[expert]], dy) for expert in chosen]
                     for x, dy, chosen in zip(tokens["x"], tokens["dy"], tokens["chosen"])]
        rows = [sum(chosen.count(e) for each in self.tokens for chosen in each["chosen"]) for e in own]
        return {**tokens, "name": self.name, "experts": self.experts, "per_token": self.per_token, "matrices": [self.matrices[e] for e in own], "rows": rows,
                "dweights": gradients}
