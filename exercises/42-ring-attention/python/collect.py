"""What the cases of judge.cpp do in a rank with an answer in torch."""
import math
import time

import torch
from data_parallel import numbers

# As in judge.cpp. Pieces of a sequence: their tokens, the width of a row, and how large scores are.
SEQUENCES, ONE_SEQUENCE = [(1, 4, 1), (5, 8, 1), (3, 6, 30)], (4, 8, 1)
MERGED_ROWS, FIRST_QUERY, BLOCK_KEYS = (4, 3, 1), 10, 3
# Blocks of keys that are merged in this order: the first key, and what is added to all scores.
MERGES = [("two blocks", [(0, 0), (3, 0)]),
          ("two blocks with large scores", [(0, 200), (3, 198)]),
          ("the second block has larger scores", [(0, -100), (3, 100)]),
          ("the first block has larger scores", [(0, 100), (3, -100)]),
          ("two blocks that no query sees", [(20, 0), (23, 0)]),
          ("a block, and one that some queries do not see", [(6, 0), (12, 0)]),
          ("a block that some queries do not see, and another", [(12, 0), (6, 0)]),
          ("four blocks", [(9, 1), (0, -2), (12, 0), (6, 2)])]
MOST_RANKS = 8

# As they were before the student's code came.
sleep = time.sleep


def as_json(tensor):
    """null where a number is not finite."""
    return [each if math.isfinite(each) else None for each in numbers(tensor)]


def rows_of(witness, sequence, name, first, count):
    tokens, width, sharpness = sequence
    return torch.tensor(witness.ask("rows_from", name, tokens, width, sharpness if name == "q" else 1, first, count), dtype=torch.float32).view(count, width)


def attend(student, queries, keys, values, first_query, first_key):
    """What students get as `attend`: in fp64."""
    if not (queries.dim() == keys.dim() == values.dim() == 2 and queries.shape[1:] == keys.shape[1:] == values.shape[1:] and len(keys) == len(values)):
        raise RuntimeError(f"attend: expected queries [n, width], and as many keys [m, width] as values [m, width]; got {list(queries.shape)}, {list(keys.shape)} and {list(values.shape)}")
    scores = queries.double() @ keys.double().T / math.sqrt(queries.shape[1])
    hidden = first_key + torch.arange(len(keys)) > first_query + torch.arange(len(queries))[:, None]
    scores.masked_fill_(hidden, -math.inf)
    shift = scores.max(dim=1).values.float()
    weights = torch.exp(scores - torch.where(shift == -math.inf, 0.0, shift).double()[:, None])
    return student.Partial(shift, weights.sum(dim=1).float(), (weights @ values.double()).float())


def pieces_of(student, ranks):
    return [[int(each) for each in student.pieces_of(ranks, rank)] for rank in range(ranks)]


def order(witness, student, rank, size):
    return [pieces_of(student, ranks) for ranks in range(1, MOST_RANKS + 1)]


def merges(witness, student, rank, size):
    seen, (n, width, _) = [], MERGED_ROWS
    for name, blocks in MERGES:
        witness.doing(name)
        rows = lambda what, first, count: rows_of(witness, MERGED_ROWS, what, first, count)
        queries, merged = rows("q", FIRST_QUERY, n), student.nothing(n, width)
        for first_key, level in blocks:
            block = attend(student, queries, rows("k", first_key, BLOCK_KEYS), rows("v", first_key, BLOCK_KEYS), FIRST_QUERY, first_key)
            block.shift += level
            student.merge(merged, block)
        shapes = [list(each.shape) for each in (merged.shift, merged.total, merged.sum)]
        if shapes != [[n], [n], [n, width]]:
            raise RuntimeError(f"after merge() of {n} queries of width {width} `seen` has a shift of {shapes[0]}, a total of {shapes[1]} and a sum of {shapes[2]}: "
                               f"expected [{n}], [{n}] and [{n}, {width}]")
        shift, total, sums = merged.shift.float(), merged.total.float(), merged.sum.float()
        empty = ((shift == -math.inf) | (total == 0)) & (sums == 0).all(dim=1)
        seen.append({"log_sums": as_json(shift + total.log()), "y": as_json(sums / total[:, None]), "empty": empty.tolist(),
                     "shift": as_json(shift), "total": as_json(total)})
    return seen


def run_of_student(witness, student, sequence, pieces, pause):
    """One call of the student's function: the output, and what it did."""
    tokens, width, _ = sequence
    witness.doing(f"ring_attention, pieces [{tokens}, {width}]")
    q, k, v = (torch.cat([rows_of(witness, sequence, name, piece * tokens, tokens) for piece in pieces]) for name in ("q", "k", "v"))
    blocks = []

    def counted(queries, keys, values, first_query, first_key):
        sleep(pause)  # what has been started meanwhile arrives
        partial = attend(student, queries, keys, values, first_query, first_key)
        blocks.append({"pairs": len(queries) * len(keys), "key_piece": int(first_key) // tokens, "received": witness.mark("received")})
        return partial

    witness.barrier()
    witness.mark("clear")
    y = student.ring_attention(q, k, v, counted)
    return {"y": as_json(y), "blocks": blocks, "sent": witness.mark("sent"), "others": witness.mark("others")}


def runs(sequences, pause=0.0):
    def case(witness, student, rank, size):
        pieces = pieces_of(student, size)
        fits = sorted(sum(pieces, [])) == list(range(2 * size)) and all(len(own) == 2 and own[0] < own[1] for own in pieces)  # else the judge says what is wrong
        return {"pieces": pieces, "runs": [run_of_student(witness, student, each, pieces[rank], pause) for each in sequences if fits]}

    return case


CASES = {"order": order, "merge": merges, "values": runs(SEQUENCES), **dict.fromkeys(("work", "bytes"), runs([ONE_SEQUENCE], pause=0.02))}
