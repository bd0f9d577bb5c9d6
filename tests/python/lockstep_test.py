"""Algorithms as data: messages packed into schedules, and the proof in Python beside the program's."""

import copy
import json
import random
import tempfile
from pathlib import Path

import ringside
from ringside.lab.lockstep import COLLECTIVES, Message, faults_of, pack_messages


def algorithm(collective, size, chunks, messages, root=None):
    return {
        "collective": collective,
        "root": root,
        "schedules": pack_messages(size, chunks, messages),
    }


def test_messages_are_packed_into_steps_that_keep_their_order():
    # Rank 1 sends on what it received, and is overwritten only after that.
    steps = [
        each["steps"]
        for each in pack_messages(
            3,
            2,
            [
                Message(0, 1, 0),
                Message(0, 2, 1),
                Message(1, 2, 0, action="add"),
                Message(2, 1, 0, 2),
            ],
        )
    ]
    assert [len(each) for each in steps] == [4, 4, 4]
    assert steps[0][0] == {"send": {"to": 1, "first": 0, "count": 1}}
    assert steps[0][1] == {"send": {"to": 2, "first": 1, "count": 1}}
    assert steps[1][1] == {}  # rank 2 receives from rank 0 in that step
    assert steps[1][2] == {"send": {"to": 2, "first": 0, "count": 1}}
    assert steps[2][2] == {"receive": {"from": 1, "first": 0, "count": 1, "action": "add"}}
    assert steps[2][3]["send"] == {"to": 1, "first": 0, "count": 2}  # after it has received chunk 0
    # Rank 1 sends its chunk in step 1, because rank 2 receives in step 0, and is overwritten then.
    steps = [
        each["steps"]
        for each in pack_messages(4, 2, [Message(0, 2, 1), Message(1, 2, 0), Message(3, 1, 0)])
    ]
    assert steps[1] == [
        {},
        {
            "send": {"to": 2, "first": 0, "count": 1},
            "receive": {"from": 3, "first": 0, "count": 1, "action": "overwrite"},
        },
    ]
    assert pack_messages(2, 1, []) == [{"chunks": 1, "steps": []}] * 2


def test_a_promise_that_is_kept_is_proved():
    everyone = [Message(a, b, a) for a in range(3) for b in range(3) if a != b]
    assert faults_of(algorithm("all_gather", 3, 3, everyone)) == []
    sums = [Message(0, 1, 0, 2, "add"), Message(1, 0, 0, 2)]
    assert faults_of(algorithm("all_reduce", 2, 2, sums)) == []
    assert faults_of(algorithm("reduce", 2, 2, sums[:1], root=1)) == []
    assert faults_of(algorithm("broadcast", 2, 1, [Message(1, 0, 0)], root=1)) == []
    assert faults_of(algorithm("gather", 3, 3, [Message(0, 2, 0), Message(1, 2, 1)], root=2)) == []
    assert faults_of(algorithm("scatter", 2, 4, [Message(0, 1, 2, 2)])) == []


def test_what_is_wrong_is_a_sentence():
    assert faults_of(algorithm("all_reduce", 2, 1, [Message(0, 1, 0, action="add")])) == [
        "at the end chunk 0 on rank 0 lacks rank 1's chunk 0"
    ]
    twice = [Message(0, 1, 0, action="add"), Message(0, 1, 0, action="add"), Message(2, 0, 0)]
    assert faults_of(algorithm("reduce", 3, 1, twice, root=1)) == [
        "at the end chunk 0 on rank 1 holds rank 0's chunk 0 twice, lacks rank 2's chunk 0"
    ]
    assert faults_of(algorithm("broadcast", 3, 1, twice[:2] + [Message(1, 2, 0)])) == [
        f"at the end chunk 0 on rank {rank} holds rank 0's chunk 0 twice, should not hold rank 1's "
        "chunk 0"
        for rank in (1, 2)
    ]
    assert faults_of(algorithm("gather", 2, 3, [])) == [
        "gather on 2 ranks needs a multiple of 2 chunks, not 3"
    ]
    uneven = algorithm("broadcast", 2, 1, [Message(0, 1, 0)])
    uneven["schedules"][1]["steps"].append({})
    assert faults_of(uneven) == [
        "rank 1 has 1 chunk and 2 steps, but rank 0 has 1 chunk and 1 step"
    ]


def test_a_sum_that_doubles_with_each_step_is_counted():
    both = [Message(rank, 1 - rank, 0, action="add") for _ in range(100) for rank in (0, 1)]
    fault = faults_of(algorithm("reduce", 2, 1, both))[0]
    assert "holds rank 0's chunk 0 " in fault and len(fault) < 200, fault


def test_sums_in_another_order_are_no_all_reduce():
    def shift(rank, distance):
        """The rank's input to another rank, which adds it."""
        return {
            "send": {"to": (rank + distance) % 3, "first": 0, "count": 1, "input": 0},
            "receive": {"from": (rank - distance) % 3, "first": 0, "count": 1, "action": "add"},
        }

    # Rank 0 has (0+2)+1, rank 1 (1+0)+2, rank 2 (2+1)+0.
    shifts = [{"chunks": 1, "steps": [shift(rank, 1), shift(rank, 2)]} for rank in range(3)]
    assert faults_of({"collective": "all_reduce", "schedules": shifts}) == [
        f"at the end chunk 0 on rank {rank} was added up in another order than on rank 0: the last "
        "bits may differ"
        for rank in (1, 2)
    ]
    assert faults_of({"collective": "reduce", "schedules": shifts}) == []


def test_messages_that_do_not_match_are_named():
    def faults(change):
        broken = algorithm("broadcast", 3, 2, [Message(0, 1, 0, 2), Message(0, 2, 0, 2)])
        change([each["steps"] for each in broken["schedules"]])
        return faults_of(broken)

    assert faults(lambda steps: None) == []
    assert faults(lambda steps: steps[1][0].clear()) == [
        "step 0: rank 0 sends chunks 0 to 1 to rank 1, but rank 1 expects nothing from rank 0"
    ]
    assert faults(lambda steps: steps[0][1].clear()) == [
        "step 1: rank 0 sends nothing to rank 2, but rank 2 expects chunks 0 to 1 from rank 0"
    ]
    assert faults(lambda steps: steps[0][1]["send"].update(first=1, count=1)) == [
        "step 1: rank 0 sends chunk 1 to rank 2, but rank 2 expects chunks 0 to 1 from rank 0"
    ]
    assert faults(lambda steps: steps[0][0]["send"].update(to=3))[0] == (
        "step 0: rank 0 sends chunks 0 to 1 to rank 3, but the ranks are 0 to 2"
    )
    assert faults(lambda steps: steps[0][0]["send"].update(count=3))[0] == (
        "step 0: rank 0 sends chunks 0 to 2 to rank 1, but the chunks are 0 to 1"
    )
    assert faults(lambda steps: steps[0][0]["send"].update(held=1, count=1))[0] == (
        "step 0: rank 0 sends chunk 0 to rank 1 from its chunk 1, and only an all_to_all may do so"
    )
    assert faults(
        lambda steps: [
            each.update(stride=2, count=2) for each in (steps[0][0]["send"], steps[1][0]["receive"])
        ]
    )[0] == ("step 0: rank 0 sends chunks 0, 0 to rank 1, but a message takes a chunk once")


def catalogue(sizes=(4,)):
    """What `step` writes of every algorithm of the program, but the barriers."""
    for row in ringside.prove(max_size=4).data:
        if row["collective"] in COLLECTIVES and row["holds"]:
            for size in sizes:
                yield ringside.step(row["collective"], algorithm=row["algorithm"], n=size).data


def test_every_algorithm_of_the_program_is_proved():
    seen = set()
    for each in catalogue():
        assert faults_of(each) == [], (each["algorithm"], faults_of(each)[:2])
        seen.add(each["collective"])
    assert seen == set(COLLECTIVES)


def changed(told, dice):
    """An algorithm with one message changed, or gone."""
    told = copy.deepcopy(told)
    steps = [step for each in told["schedules"] for step in each["steps"] if step]
    step = dice.choice(steps)
    kind = dice.choice(sorted(step))
    change = dice.choice(["first", "count", "peer", "action", "gone", "both"])
    if change == "gone":
        del step[kind]
    elif change == "action" and "receive" in step:
        step["receive"]["action"] = dice.choice(["add", "overwrite"])
    elif change == "peer":
        step[kind]["to" if kind == "send" else "from"] = dice.randrange(4)
    elif change == "both":  # another order of steps
        a, b = (
            dice.sample(range(len(told["schedules"][0]["steps"])), 2)
            if len(told["schedules"][0]["steps"]) > 1
            else (0, 0)
        )
        for each in told["schedules"]:
            each["steps"][a], each["steps"][b] = each["steps"][b], each["steps"][a]
    else:
        key = change if change in step[kind] else "first"
        step[kind][key] = dice.randrange(told["schedules"][0]["chunks"])
    return told


def test_the_program_and_python_refuse_the_same():
    dice = random.Random(1)
    refused = proved = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "changed.json")
        for each in catalogue():
            if not any(step for schedule in each["schedules"] for step in schedule["steps"]):
                continue
            for _ in range(3):
                told = changed(each, dice)
                file.write_text(json.dumps(told))
                try:
                    ringside.prove(algorithm=file)
                    proved += 1
                    assert faults_of(told) == [], (told, faults_of(told))
                except ringside.CommandError as error:
                    refused += 1
                    assert faults_of(told), (told, str(error))
    assert refused > 50 and proved > 10, (refused, proved)
