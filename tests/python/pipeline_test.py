"""The pipeline schedules in Python beside those of the program, action by action."""

import json
import tempfile
from pathlib import Path

from ringside.library import RingsideError
from ringside.planning import schedule_file
from ringside.planning.pipeline import in_order, lower, make_schedule, matching, message_of
from ringside.planning.schedules import GENERATORS, UNLIMITED, Action, Schedule, layers_of_stage
from ringside.program import run


def of_program(name, ranks, stages_per_rank, micro_batches):
    done = run(
        [
            "step",
            "pipeline",
            name,
            "-n",
            str(ranks),
            "--micro-batches",
            str(micro_batches),
            "--stages-per-rank",
            str(stages_per_rank),
            "--json",
            "-",
        ]
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["of_rank"]


def test_schedules_are_those_of_the_program():
    cases = 0
    for name, generator in GENERATORS.items():
        for ranks in range(2, 17):
            # Fewer micro-batches than ranks, as many, and more.
            rounds = (ranks, 2 * ranks, 3 * ranks)
            for micro_batches in rounds if generator.whole_rounds else (3, ranks, 2 * ranks + 1):
                stages = 3 if generator.most == UNLIMITED and ranks % 2 else generator.default
                cases += 1
                lowered = lower(make_schedule(name, ranks, stages, micro_batches))
                told = of_program(name, ranks, stages, micro_batches)
                for rank, actions in enumerate(lowered.actions):
                    said = [each["action"] for each in told[rank]["actions"]]
                    assert [each.text() for each in actions] == said, (name, ranks, micro_batches)
                    assert lowered.stages_of(rank) == told[rank]["stages"]
    assert cases == 8 * 15 * 3


def test_in_order_each_action_comes_after_what_it_waits_for():
    for name, generator in GENERATORS.items():
        lowered = lower(make_schedule(name, 4, generator.default, 8))
        sent, order = set(), in_order(lowered)
        assert sorted(node[:3] for node in order) == [
            (rank, i, action)
            for rank, actions in enumerate(lowered.actions)
            for i, action in enumerate(actions)
        ]
        for _, _, action, send in order:
            if action.kind.startswith("SEND"):
                sent.add((action.kind[-1], action.stage, action.micro_batch))
            needed = message_of(lowered, action, "RECV")
            if needed:
                sender = needed.stage + (-1 if needed.kind == "RECV_F" else 1)
                assert (needed.kind[-1], sender, needed.micro_batch) in sent
                assert lowered.actions[send[0]][send[1]] == matching(needed)
            else:
                assert send is None


def test_ranks_that_wait_for_each_other_are_named():
    # 0B0 waits for 1B0, which follows 1F0, which waits for 0F0.
    rows = ("BF", "FB")
    actions = tuple(tuple(Action(k, rank, 0) for k in row) for rank, row in enumerate(rows))
    try:
        lower(Schedule(1, (0, 1), actions))
        raise AssertionError("is not refused")
    except RingsideError as error:
        assert str(error) == (
            "rank 0 waits in 0B0 forever, so the schedule has no end: `ringside prove pipeline` "
            "says why"
        )


def test_the_remainder_of_the_layers_goes_to_the_stages_in_between():
    divided = {
        stages: [len(layers_of_stage(7, stages, stage)) for stage in range(stages)]
        for stages in (2, 3, 4)
    }
    assert divided == {2: [4, 3], 3: [2, 3, 2], 4: [2, 2, 2, 1]}
    llama = [len(layers_of_stage(126, 16, stage)) for stage in range(16)]
    assert llama == [7] + 14 * [8] + [7]


def refusal(file, *numbers):
    try:
        schedule_file.read(f"csv:{file}", *numbers)
    except RingsideError as error:
        return str(error)
    raise AssertionError(f"{file} is not refused")


def test_a_schedule_from_a_file_is_read_by_the_program():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mine.csv")
        file.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        lowered = schedule_file.read_lowered(f"csv:{file}", 2, 2)
        plain = schedule_file.read(f"csv:{file}", 2, 2)
        assert lowered.actions == lower(plain).actions and lowered.rank_of == (0, 1)
        assert [each.text() for each in plain.actions[1]] == ["1F0", "1B0", "1F1", "1B1"]
        # 1F1B on two ranks: p - 1 of m + p - 1.
        assert schedule_file.idle_share(f"csv:{file}", 2, 2) == 1 / 2
        assert refusal(file, 4, 2) == f"{file} is a schedule for 2 ranks, one per row, not for 4"
        file.write_text("0F0,0B0\n1B0,1F0\n")
        assert refusal(file, 2, 1).startswith(f"csv:{file} cannot run: ")
        file.write_text("0F0,what\n")
        assert refusal(file, 1, 1).startswith(f"{file}:1:5: expected an action, such as 2F0")
