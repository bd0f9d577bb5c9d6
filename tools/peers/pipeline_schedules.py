#!/usr/bin/env python3
"""Compares pipeline schedules with those of torch.distributed.pipelining (2.15).

    PYTHON tools/peers/pipeline_schedules.py [BUILD]      BUILD has bin/ringside [build/release]

For 2, 4 and 8 ranks: torch's order of computations is that of ours; torch's lowered file, with its messages, is read,
proved and timed; and both have the same bubble, but for DualPipeV: its lowered file sends what a pair has made after
both, and a pair does not overlap here. Prints a line for each. torch needs no process group for that.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from torch.distributed.pipelining import schedules

root = Path(__file__).resolve().parent.parent.parent
program = Path(sys.argv[1] if len(sys.argv) > 1 else root / "build/release").resolve() / "bin/ringside"

# Ours, torch's, stages per rank, whether the last and the first stage share a rank.
pairs = [
    ("interleaved", schedules.ScheduleInterleaved1F1B, (2, 3), False),
    ("looped_bfs", schedules.ScheduleLoopedBFS, (2, 3), False),
    ("interleaved_zb", schedules.ScheduleInterleavedZeroBubble, (2, 3), False),
    ("zb_v", schedules.ScheduleZBVZeroBubble, (2,), True),
    ("dualpipe_v", schedules.ScheduleDualPipeV, (2,), True),
]


def schedule_of(kind, ranks, stages_per_rank, is_v, micro_batches):
    stages = ranks * stages_per_rank
    of_rank_0 = (0, stages - 1) if is_v else range(0, stages, ranks)
    placement = {stage: stage % ranks for stage in range(stages)}
    return kind([SimpleNamespace(stage_index=stage, num_stages=stages, group_size=ranks, group_rank=0, submod=None,
                                 is_first=stage == 0, is_last=stage == stages - 1, has_backward=True, group=None,
                                 stage_index_to_group_rank=placement, p2p_per_edge=False)
                 for stage in of_rank_0], micro_batches, loss_fn=lambda output, target: output)


def computations(row):
    """A row of torch as text; a pair that overlaps is two computations."""
    return [str(each) for action in row if action for each in (action.sub_actions or (action,)) if action.is_compute_op]


def merged(row):
    """I with its W directly behind it is B: torch writes both."""
    result = []
    for action in row:
        if result and action.replace("W", "I") == result[-1] and "W" in action:
            result[-1] = action.replace("W", "B")
        else:
            result.append(action)
    return result


def figures(*arguments):
    done = subprocess.run([program, "step", "pipeline", *map(str, arguments), "--json", "-"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pipeline_schedules: {' '.join(map(str, arguments))}: {done.stderr}")
    return json.loads(done.stdout)


def rows_of(figures):
    return [[action["action"] for action in rank["actions"] if action["action"].strip("0123456789") in "FBIW"]
            for rank in figures["of_rank"]]


def backward_reversed(row, micro_batches):
    """torch's LoopedBFS runs backward from the last micro-batch, ours from the first."""
    def turned(action):
        stage, micro_batch = action.split("B")
        return f"{stage}B{micro_batches - 1 - int(micro_batch)}"
    return [turned(action) if "B" in action else action for action in row]


def main():
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, numbers_of_stages, is_v in pairs:
            for ranks in (2, 4, 8):
                for stages in numbers_of_stages:
                    for micro_batches in (ranks, 2 * ranks, 4 * ranks):
                        if kind is schedules.ScheduleDualPipeV and micro_batches < 2 * ranks:
                            continue  # torch refuses them
                        torchs = schedule_of(kind, ranks, stages, is_v, micro_batches)
                        rows = [computations(torchs.pipeline_order[rank]) for rank in range(ranks)]
                        if name == "looped_bfs":
                            rows = [backward_reversed(row, micro_batches) for row in rows]
                        options = ["-n", ranks, "--micro-batches", micro_batches]
                        if len(numbers_of_stages) > 1:
                            options += ["--stages-per-rank", stages]
                        ours = figures(name, *options)
                        same = [merged(row) for row in rows_of(ours)] == [merged(row) for row in rows]
                        file = Path(folder, "lowered.csv")
                        torchs._dump_csv(file, "compute_comms")
                        lowered = figures(f"csv:{file}")
                        same_bubble = name == "dualpipe_v" or abs(lowered["bubble"] - ours["bubble"]) < 1e-12
                        if not same or not same_bubble:
                            raise SystemExit(f"pipeline_schedules: {name} differs from torch's: {ranks} ranks, {stages} stages "
                                             f"each, {micro_batches} micro-batches; bubbles {ours['bubble']} and "
                                             f"{lowered['bubble']}; same order: {same}")
                        print(f"{name:15} {ranks} ranks, {stages} stages each, {micro_batches:2} micro-batches: the same, "
                              f"bubble {100 * ours['bubble']:.1f} %, lowered {100 * lowered['bubble']:.1f} %")
                        compared += 1
    print(f"{compared} schedules are those of torch, and torch's lowered files are proved")


if __name__ == "__main__":
    main()
