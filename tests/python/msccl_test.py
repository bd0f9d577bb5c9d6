"""Algorithms of MSCCL: what they become, what becomes of ours, and what is refused."""

import io
import json
import random
import subprocess
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import ringside
from ringside import receive, send
from ringside.__main__ import main
from ringside.lab.lockstep import faults_of
from ringside.lab.msccl import check_form, read_algorithm
from ringside.lab.msccl_reader import read_xml
from ringside.lab.msccl_writer import write_xml
from ringside.program import find_program

FILES = Path(__file__).resolve().parent / "msccl"
RING = (FILES / "ring_all_reduce_3.xml").read_text()


def read(text):
    return read_xml(text.encode(), "test")


def error_of(call, *arguments):
    try:
        call(*arguments)
    except ringside.RingsideError as error:
        return str(error)
    return ""


def says(text, expected):
    seen = error_of(read, text)
    assert seen == expected, seen


def ring(what, put):
    """The ring of three GPUs, where `put` stands instead of the first `what`."""
    assert what in RING
    return RING.replace(what, put, 1)


def two_gpus(coll, in_place, chunks, steps):
    """An algorithm of two GPUs; `steps` are those of each GPU's only block."""
    gpus = "".join(
        f'<gpu id="{gpu}"><tb id="0" send="{1 - gpu}" recv="{1 - gpu}" chan="0">'
        f"{steps[gpu]}</tb></gpu>"
        for gpu in (0, 1)
    )
    return (
        f'<algo coll="{coll}" inplace="{int(in_place)}" nchunksperloop="{chunks}" ngpus="2">'
        f"{gpus}</algo>"
    )


def steps(*lines):
    """Each line is a type, a source as i0, a target, and perhaps a count."""
    text = ""
    for number, line in enumerate(lines):
        kind, source, target, count = (line.split() + ["1"])[:4]
        text += (
            f'<step s="{number}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1:]}" '
            f'dstbuf="{target[0]}" dstoff="{target[1:]}" cnt="{count}" depid="-1" deps="-1"/>'
        )
    return text


def both(coll, in_place, chunks, *lines):
    return two_gpus(coll, in_place, chunks, [steps(*lines)] * 2)


def sent_chunks(schedules):
    """[rank] how many it sends to others."""
    return [
        sum(
            step["send"]["count"]
            for step in each["steps"]
            if step.get("send", {"to": rank})["to"] != rank
        )
        for rank, each in enumerate(schedules)
    ]


def run(*words):
    """The exit code, standard output and standard error of `ringside msccl`."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["msccl", *map(str, words)])
    return code, out.getvalue(), err.getvalue()


# XML to JSON.


def test_files_are_proved_and_the_ring_takes_the_steps_of_our_ring():
    for file in FILES.glob("*.xml"):
        assert faults_of(read_algorithm(str(file))) == [], file
    for size in 2, 3, 4:
        algorithm = read_algorithm(str(FILES / f"ring_all_reduce_{size}.xml"))
        assert algorithm["collective"] == "all_reduce" and algorithm["algorithm"] == f"ring_{size}"
        assert len(algorithm["schedules"]) == size
        for rank, schedule in enumerate(algorithm["schedules"]):
            assert len(schedule["steps"]) == 2 * (size - 1)
            for step in schedule["steps"]:  # as our ring: each rank sends in every step
                assert step["send"]["to"] == (rank + 1) % size and step["send"]["count"] == 1
                assert step["receive"]["from"] == (rank - 1) % size


def test_what_is_forwarded_from_scratch_memory_is_received_and_kept():
    # Over the slow link between the hosts {0, 1} and {2, 3} goes what the file sends, no more.
    schedules = read_algorithm(str(FILES / "two_level_all_gather_4.xml"))["schedules"]
    for rank, schedule in enumerate(schedules):
        to = [step["send"]["to"] for step in schedule["steps"] if "send" in step]
        assert sorted(peer // 2 == rank // 2 for peer in to) == [False, True, True], to


def test_what_is_received_into_scratch_memory_and_sent_on_is_kept():
    def gpu(number, to, source, *lines):
        return (
            f'<gpu id="{number}"><tb id="0" send="{to}" recv="{source}" chan="0">'
            f"{steps(*lines)}</tb></gpu>"
        )

    algorithm = read(
        '<algo coll="allgather" inplace="0" nchunksperloop="3" ngpus="3">'
        + gpu(0, 1, -1, "s i0 s0")
        + gpu(1, 2, 0, "rcs s0 s0", "cpy s0 o0")
        + gpu(2, -1, 1, "r i0 o0")
        + "</algo>"
    )
    assert [each["steps"] for each in algorithm["schedules"]] == [
        [send(1, 0, input=0), {}],
        [receive(0, 0, action="overwrite"), send(2, 0)],
        [{}, receive(1, 0, action="overwrite")],
    ]


def test_two_gpus_that_both_send_first_exchange_chunks_in_one_step():
    algorithm = read(both("allreduce", True, 2, "s i0 i0 2", "rrc i0 i0 2"))
    assert faults_of(algorithm) == []
    assert algorithm["schedules"][0]["steps"] == [send(1, 0, 2) | receive(1, 0, 2)]


def test_what_is_on_the_way_is_not_overwritten():
    # GPU 0 sends its chunk to GPU 2, too, which is late; GPU 1 replaces it meanwhile.
    def gpu(number, *blocks):
        return (
            f'<gpu id="{number}">'
            + "".join(
                f'<tb id="{i}" send="{to}" recv="{source}" chan="0">{steps(*lines)}</tb>'
                for i, (to, source, *lines) in enumerate(blocks)
            )
            + "</gpu>"
        )

    schedules = read(
        '<algo coll="allreduce" inplace="1" nchunksperloop="2" ngpus="3">'
        + gpu(0, (1, 1, "s i0 i0", "r i0 i0"), (2, -1, "s i0 i0"))
        + gpu(1, (0, 0, "rrc i0 i0", "s i0 i0"))
        + gpu(2, (-1, 0, "cpy i0 i1", "cpy i1 i0", "r i0 i0"))
        + "</algo>"
    )["schedules"]
    assert schedules[0]["steps"] == [send(1, 0), {}, send(2, 0) | receive(1, 0, 1, "overwrite")]


def test_out_of_place_input_is_sent_as_input():
    # An all-to-all names chunks otherwise.
    def lines(gpu):
        other = 1 - gpu
        return steps(f"cpy i{gpu} o{gpu}", f"s i{other} o{gpu}", f"r i{gpu} o{other}")

    algorithm = read(two_gpus("alltoall", False, 2, [lines(0), lines(1)]))
    assert faults_of(algorithm) == []
    assert algorithm["schedules"][0]["steps"][0]["send"] == send(1, 0, input=1)["send"]


def test_what_is_sent_on_and_not_kept():
    # Chunk 1-r of rank r goes to its owner, which adds its own.
    algorithm = read(
        two_gpus(
            "reduce_scatter",
            False,
            2,
            [
                steps("s i1 o0", "r i0 s0", "cpy i0 o0", "re s0 o0"),
                steps("s i0 o0", "r i1 s0", "cpy i1 o0", "re s0 o0"),
            ],
        )
    )
    assert faults_of(algorithm) == []
    says(
        two_gpus(
            "allreduce",
            True,
            1,
            [steps("rrs i0 i0", "s i0 i0"), steps("s i0 i0", "r i0 i0", "r i0 i0")],
        ),
        "gpu 0, tb 0, step 1 (line 1) reads chunk 0 of the buffer, which nothing has written",
    )


def test_what_was_sent_to_scratch_memory_as_input_is_sent_as_input():
    # Also when it is overwritten.
    algorithm = read(
        two_gpus(
            "allreduce",
            True,
            1,
            [steps("r i0 s0", "s i0 i0", "re s0 i0"), steps("s i0 s0", "r i0 i0")],
        )
    )
    assert algorithm["schedules"][1]["steps"][-1]["send"] == send(0, 0, input=0)["send"]
    assert faults_of(algorithm) == ["at the end chunk 0 on rank 1 lacks rank 1's chunk 0"]


def test_wrong_xml_is_refused_with_its_line():
    says("<algo", "line 1: expected XML, but: unclosed token")
    says("<algo\n x=1>", "line 2: expected XML, but: not well-formed (invalid token)")
    says("<algo x='1' x='2'>", "line 1: expected XML, but: duplicate attribute")
    says("<algo>\n<gpu>\n</algo>", "line 3: expected XML, but: mismatched tag")
    says("<algo>\n<gpu></gpu>", "line 2: expected XML, but: no element found")
    says("<algo/><b/>", "line 1: expected XML, but: junk after document element")
    says("<algo>\ntext</algo>", "line 2: expected '<', not 't'")
    says("<algo><gpu><tb><step>\n<a/>", "line 2: expected </step>, not <a>")
    says("<!-- <algo> -->\n<a/>", "line 2: expected <algo>, not <a>")
    says("<a x='/>'>" * 100_000, "line 1: expected <algo>, not <a>")
    says(
        '<?xml version="1.0" encoding="klingon"?><a/>',
        "expected XML, but: unknown encoding: klingon",
    )
    # Entities are not read: ten lines of them could become gigabytes.
    bomb = '<!DOCTYPE a [<!ENTITY a "&b;&b;"><!ENTITY b "lol">]>\n<algo coll="&a;"/>'
    says("\n" + bomb, "line 2: expected an element, not <!DOCTYPE>")


def test_a_wrong_element_is_named_with_what_was_expected_and_seen():
    says(
        ring('coll="allreduce"', 'coll="broadcast"'),
        "algo (line 2): coll must be allreduce, allgather, reducescatter or alltoall, not "
        "'broadcast'",
    )
    says(ring('nchunksperloop="3" ', ""), "algo (line 2): attribute 'nchunksperloop' is missing")
    says(
        ring('ngpus="3"', 'ngpus="4"'), "algo (line 2): ngpus is 4, but there are 3 elements <gpu>"
    )
    says(ring('<gpu id="1"', '<gpu id="2"'), "gpu 2 (line 12): expected gpu 1")
    says(RING.replace("tb", "block"), "line 4: expected <tb>, not <block>")
    says(
        ring('send="1"', 'send="7"'),
        "gpu 0, tb 0 (line 4): send must be a number from -1 to 2, not '7'",
    )
    says(
        ring('send="1"', 'send="-1"'),
        "gpu 0, tb 0, step 0 (line 5) has no peer: send or recv of its tb is -1",
    )
    says(
        ring('type="rrs"', 'type="rsr"'),
        "gpu 0, tb 0, step 1 (line 6): type must be one of s, r, rcs, rrc, rrs, rrcs, cpy, re, "
        "nop, not 'rsr'",
    )
    says(
        ring('srcbuf="i"', 'srcbuf="x"'),
        "gpu 0, tb 0, step 0 (line 5): srcbuf must be i, o or s, not 'x'",
    )
    says(
        ring('srcoff="0"', 'srcoff="3"'),
        "gpu 0, tb 0, step 0 (line 5): i[3] is outside of the buffer of 3 chunks (nchunksperloop)",
    )
    says(
        ring('type="s"', 'type="nop"'),
        "3 messages are sent from gpu 0 to gpu 1 on channel 0, but 4 are received",
    )
    says(
        ring('cnt="1"', 'cnt="2"'),
        "gpu 0, tb 0, step 0 (line 5) sends 2 chunks, but gpu 1, tb 0, step 1 (line 15) receives 1",
    )
    says(
        ring('depid="-1" deps="-1"', 'depid="3" deps="0"'),
        "gpu 0, tb 0, step 0 (line 5) never begins: its peer, or the step that it waits for, waits too",
    )
    says(
        ring('depid="-1" deps="-1"', 'depid="0" deps="4"'),
        "gpu 0, tb 0, step 0 (line 5) never begins: its peer, or the step that it waits for, waits too",
    )
    says(
        both("allreduce", True, 2, "s i0 i0", "rrc i1 i0"),
        "gpu 0, tb 0, step 1 (line 1): src and dst of rrc must be one place: what arrives is "
        "added there",
    )
    for line in "r i0 i0", "cpy o0 i0", "cpy i0 i0":
        says(
            both("allreduce", False, 1, "s i0 i0", line),
            "gpu 0, tb 0, step 1 (line 1): it writes to i, but the algorithm is not in place "
            '(inplace="1")',
        )
    # What o holds is not the input any more, to which rrc adds.
    says(
        both("allreduce", False, 1, "s i0 o0", "r o0 o0", "s i0 o0", "rrc i0 o0"),
        "gpu 0, tb 0, step 3 (line 1) adds to its input, but its target holds something else",
    )
    says(
        both("allgather", True, 3, "s i0 i0"),
        "algo (line 1): nchunksperloop must be a multiple of ngpus, 2, not 3",
    )
    tb = '<tb id="{}" send="1" recv="-1" chan="0">' + steps("s i0 i0") + "</tb>"
    says(
        '<algo coll="allreduce" inplace="1" nchunksperloop="1" ngpus="2"><gpu id="0">'
        + tb.format(0)
        + tb.format(1)
        + "</gpu></algo>",
        "algo (line 1): ngpus is 2, but there are 1 elements <gpu>",
    )
    says(
        '<algo coll="allreduce" inplace="1" nchunksperloop="1" ngpus="2"><gpu id="0">'
        + tb.format(0)
        + tb.format(1)
        + '</gpu><gpu id="1"/></algo>',
        "gpu 0, tb 0 (line 1) and gpu 0, tb 1 (line 1) both send from gpu 0 to gpu 1 on channel 0: only one may",
    )


def test_scratch_memory_that_a_schedule_cannot_do_without_is_refused():
    says(
        both("allreduce", True, 1, "s i0 s0", "r i0 s0", "re i0 s0"),
        "gpu 0, tb 0, step 2 (line 1): it adds to scratch memory, which a schedule does not have",
    )
    says(
        both("allreduce", True, 1, "s i0 s0", "r i0 s0", "s s0 i0", "r s0 i0"),
        "gpu 0, tb 0, step 2 (line 1) forwards from s[0]: a schedule has no scratch memory, and "
        "no chunks of gpu 0 are empty that could hold it",
    )
    says(
        both("allreduce", True, 1, "cpy s0 i0"),
        "gpu 0, tb 0, step 0 (line 1) reads chunk 0 of scratch memory, which nothing has written",
    )
    # GPU 1's sum is overwritten, and GPU 0 uses it only after what came later.
    says(
        two_gpus(
            "allreduce",
            True,
            1,
            [
                steps("s i0 i0", "r i0 s0", "s i0 i0", "r i0 i0", "cpy s0 i0"),
                steps("rrc i0 i0", "s i0 s0", "r i0 i0", "s i0 i0"),
            ],
        ),
        "gpu 0, tb 0, step 4 (line 1) needs what gpu 1 held in chunk 0 earlier: a schedule has no "
        "scratch memory, and gpu 1 no longer holds it",
    )


# JSON to XML.


def catalogue(size):
    """Algorithms of four collectives, some of them as the program has them (step --json)."""

    def schedules(chunks, rank_steps):
        return [{"chunks": chunks, "steps": rank_steps(rank)} for rank in range(size)]

    ranks = range(1, size)
    yield (
        "all_gather",
        schedules(
            size,
            lambda r: [
                send((r + d) % size, r, input=r)
                | receive((r - d) % size, (r - d) % size, 1, "overwrite")
                for d in ranks
            ],
        ),
    )
    yield (
        "reduce_scatter",
        schedules(
            size,
            lambda r: [
                send((r + d) % size, (r + d) % size, input=(r + d) % size)
                | receive((r - d) % size, r)
                for d in ranks
            ],
        ),
    )
    yield (
        "all_to_all",
        schedules(
            2 * size,
            lambda r: [
                send((r + d) % size, 2 * r, 2, input=2 * ((r + d) % size))
                | receive((r - d) % size, 2 * ((r - d) % size), 2, "overwrite")
                for d in range(size)
            ],
        ),
    )
    yield (
        "all_reduce",
        schedules(
            1,
            lambda r: (
                [  # a chain, and back
                    {
                        **(send(r + 1, 0) if r == step else {}),
                        **(receive(r - 1, 0) if r - 1 == step else {}),
                    }
                    for step in range(size - 1)
                ]
                + [
                    {
                        **(send(r - 1, 0) if size - 1 - r == step else {}),
                        **(receive(r + 1, 0, action="overwrite") if size - 2 - r == step else {}),
                    }
                    for step in range(size - 1)
                ]
            ),
        ),
    )
    yield (
        "all_reduce",
        schedules(
            size,
            lambda r: [
                send((r + 1) % size, (r - s) % size)
                | receive(
                    (r - 1) % size,
                    (r - s - 1) % size,
                    action="add" if s < size - 1 else "overwrite",
                )
                for s in range(2 * size - 2)
            ],
        ),
    )


def test_what_is_written_is_read_again_and_proved():
    for size in range(1, 10):
        for collective, schedules in catalogue(size):
            algorithm = {"collective": collective, "schedules": schedules}
            check_form(algorithm)
            assert faults_of(algorithm) == [], (collective, size)
            again = read(write_xml(algorithm, "test"))
            assert again["collective"] == collective and faults_of(again) == []
            assert sent_chunks(again["schedules"]) == sent_chunks(schedules), (collective, size)


def test_a_file_has_one_thread_block_for_each_pair_of_peers():
    # In the order of the schedule.
    schedules = [
        {
            "chunks": 3,
            "steps": [
                send((r + 1) % 3, (r + 2 - s) % 3) | receive((r + 2) % 3, (r + 1 - s) % 3)
                for s in (0, 1)
            ],
        }
        for r in range(3)
    ]
    text = write_xml({"collective": "reduce_scatter", "schedules": schedules}, 'a "ring"')
    lines = "".join(
        f'      <step s="{number}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" '
        f'dstoff="{chunk}" cnt="1" depid="-1" deps="-1" hasdep="0" />\n'
        for number, (kind, chunk) in enumerate([("s", 2), ("rrc", 1), ("s", 1), ("rrc", 0)])
    )
    assert text.startswith(
        '<algo name="a &quot;ring&quot;" proto="Simple" nchannels="1" nchunksperloop="3" ngpus="3" '
        'coll="reduce_scatter" inplace="1">\n'
        '  <gpu id="0" i_chunks="3" o_chunks="1" s_chunks="0">\n'
        '    <tb id="0" send="1" recv="2" chan="0">\n' + lines + "    </tb>\n  </gpu>\n"
    ), text
    # Each rank sends its input after it has added to it, so the output begins as a copy.
    one_shot = read_algorithm(str(FILES / "one_shot_all_reduce_3.xml"))
    text = write_xml(one_shot, "one_shot")
    assert 'inplace="0"' in text and 'hasdep="1"' in text
    assert 'type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"' in text
    # The line before it stands in the other block.
    assert 'cnt="1" depid="0" deps="1" hasdep="0" />' in text, text


def test_a_message_without_chunks_is_not_written():
    # Rank 0 sends one to rank 1, and afterwards a chunk to rank 2.
    schedules = [
        {"chunks": 1, "steps": [send(1, 0, 0), send(2, 0), {}]},
        {"chunks": 1, "steps": [receive(0, 0, 0), {}, receive(2, 0)]},
        {"chunks": 1, "steps": [{}, receive(0, 0), send(1, 0)]},
    ]
    text = write_xml({"collective": "all_reduce", "schedules": schedules}, "x")
    assert '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">\n    <tb id="0" send="2"' in text
    assert text.count("<tb ") == 3


def test_what_msccl_cannot_hold_is_refused():
    one_shot = [
        {
            "chunks": 1,
            "steps": [
                send((r + d) % 34, 0, input=0) | receive((r - d) % 34, 0) for d in range(1, 34)
            ],
        }
        for r in range(34)
    ]
    assert (
        error_of(write_xml, {"collective": "all_reduce", "schedules": one_shot}, "x")
        == "rank 0 has 33 peers: MSCCL takes up to 32"
    )
    collective, schedules = list(catalogue(66))[-1]
    assert (
        error_of(write_xml, {"collective": collective, "schedules": schedules}, "x")
        == "a block of rank 0 has 260 steps: MSCCL takes up to 255"
    )
    adds_before = [
        {
            "chunks": 2,
            "steps": [
                receive(1 - r, 0) | send(1 - r, 0),
                send(1 - r, 0, input=0) | receive(1 - r, 0),
            ],
        }
        for r in (0, 1)
    ]
    assert error_of(write_xml, {"collective": "reduce_scatter", "schedules": adds_before}, "x") == (
        "this reduce_scatter sends input that it has added to before: a file of MSCCL would need "
        "scratch memory"
    )
    # Chunks 0 and 2 change places with 1 and 3: no run of them lies side by side on both ends.
    crossing = {"stride": 2, "held": 1}
    pieces = [
        {
            "chunks": 4,
            "steps": [send(1 - r, 0, 2, **crossing) | receive(1 - r, 1, 2, "overwrite", stride=2)],
        }
        for r in (0, 1)
    ]
    pieces[0]["steps"][0]["send"]["first"] = pieces[1]["steps"][0]["send"]["first"] = 1
    pieces[0]["steps"][0]["send"]["held"] = pieces[1]["steps"][0]["send"]["held"] = 3
    assert (
        "sends in pieces what it also receives: a file of MSCCL would need scratch memory"
        in error_of(write_xml, {"collective": "all_to_all", "schedules": pieces}, "x")
    )


# The command.


def test_the_command_converts_there_and_back():
    with tempfile.TemporaryDirectory() as folder:
        for file in FILES.glob("*.xml"):
            ours, theirs = Path(folder, "ours.json"), Path(folder, "theirs.xml")
            assert run(file, "--json", ours)[0] == 0 and run(ours, "--xml", theirs)[0] == 0
            assert faults_of(read_algorithm(str(theirs))) == []
            assert json.loads(run(file, "--json", "-")[1]) == json.loads(ours.read_text())
    code, out, err = run(FILES / "ring_all_reduce_2.xml", "--xml", "-")
    assert code == 0 and out.startswith('<algo name="ring_2" ')
    assert err == (
        "all_reduce on 2 ranks: 2 steps, the buffer in 2 chunks. Proved: every rank "
        "holds the sum of all ranks.\n"
    )


def refused(text, *words):
    """The sentence about a file with this text, without its name."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "my.json"), Path(folder, "out.xml")
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        code, _, err = run(file, "--xml", out, *words)
        assert code == 1 and not out.exists(), err
        return err.replace(str(file), "FILE").replace(folder, "").strip()


def test_a_wrong_algorithm_is_no_xml_but_can_be_drawn():
    collective, schedules = list(catalogue(3))[-1]
    schedules[1]["steps"][3]["receive"]["action"] = "add"
    wrong = {"collective": collective, "schedules": schedules}
    sentence = "ringside: FILE does not do what all_reduce promises: at the end chunk "
    assert refused(wrong).startswith(sentence)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "wrong.xml")
        file.write_text(ring('type="rrcs"', 'type="rcs"'))
        code, out, err = run(file, "--json", Path(folder, "wrong.json"))
        assert code == 1 and out == ""
        assert err.endswith(f"\n`ringside step --algorithm {folder}/wrong.json` draws it\n"), err
        assert faults_of(json.loads(Path(folder, "wrong.json").read_text()))
        assert "at the end" in err and "\n" not in err[: err.index("\n`")]


def test_wrong_json_is_refused_with_its_place():
    collective, schedules = list(catalogue(3))[-1]
    good = json.dumps({"collective": collective, "schedules": schedules})
    cannot = "ringside: the algorithm FILE cannot be used: "

    def instead(what, put):
        assert what in good
        return refused(good.replace(what, put, 1)).replace(cannot, "")

    assert instead('"to"', '"too"') == (
        'schedules[0].steps[0].send is {"too":1,"first":0,"count":1}, but an object with to, '
        "first, count, stride?, run?, input?, held? is expected"
    )
    assert instead('"add"', '"plus"') == (
        'schedules[0].steps[0].receive.action is "plus", but add or overwrite is expected'
    )
    for count in "1.5", "-1", "1000000000", "true", '"1"':
        assert instead('"count": 1', f'"count": {count}') == (
            f"schedules[0].steps[0].send.count is {count}, but an integer from 0 to 16384 is "
            "expected"
        )
    assert instead('"chunks": 3', '"chunks": 0') == (
        "schedules[0].chunks is 0, but an integer from 1 to 16384 is expected"
    )
    assert instead('"steps": [', '"steps": 1, "also": [').startswith(
        'schedules[0] is {"chunks":3,"steps":1,'
    )
    # What the proof finds.
    assert instead('"to": 1', '"to": 3') == (
        "ringside: FILE does not do what all_reduce promises: step 0: rank 0 sends chunk 0 to "
        "rank 3, but the ranks are 0 to 2"
    )
    assert instead('"all_reduce"', '"broadcast"') == (
        "MSCCL's files are for all_reduce, all_gather, reduce_scatter and all_to_all, not for "
        "'broadcast'"
    )
    assert refused("{").startswith(cannot + "expected XML or JSON, but: ")
    assert refused('{"collective": ""}\0{}') == (
        cannot + "expected XML or JSON, but: Extra data: line 1 column 19 (char 18)"
    )
    assert refused("[" * 100_000).startswith(cannot + "expected XML or JSON, but: ")
    assert refused("{}") == cannot + (
        'expected {"collective": "all_reduce", "schedules": [one for each rank]}'
    )
    several = [
        {"collective": name, "schedules": all_ranks}
        for size in (2, 3)
        for name, all_ranks in [list(catalogue(size))[-1]]
    ]
    assert refused(several) == cannot + (
        "expected one algorithm, but it has those for 2, 3 ranks: choose one with -n"
    )
    assert refused(several, "-n", "5").startswith(cannot + "expected one algorithm")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "several.json")
        file.write_text(json.dumps(several))
        assert 'ngpus="3"' in run(file, "--xml", "-", "-n", "3")[1]
    assert run("no.json", "--xml", "-") == (
        1,
        "",
        "ringside: cannot read the algorithm no.json: No such file or directory\n",
    )
    assert run("no.json") == (
        2,
        "",
        "ringside: name the file to write: --json FILE or --xml FILE\nTry: ringside msccl --help\n",
    )


def test_a_plan_of_mscclpp_is_refused_by_name():
    assert "execution plan of MSCCL++" in refused({"name": "allgather", "gpus": []})


def test_damaged_files_end_in_a_sentence():
    """Each mutant is a schedule of equal lengths, or one sentence."""
    chooses = random.Random(1)
    texts = [file.read_text() for file in FILES.glob("*.xml")]
    words = [
        "<algo",
        "<gpu",
        "<tb ",
        "<step ",
        "</tb>",
        "/>",
        "<!--",
        "-->",
        "<!DOCTYPE",
        "<![CDATA[",
        "<?",
        "&lt;",
        "&#0;",
        'type="rrs"',
        'type="rcs"',
        'type="re"',
        'type="cpy"',
        'type="nop"',
        'srcbuf="s"',
        'dstbuf="s"',
        'dstbuf="o"',
        'coll="alltoall"',
        'coll="reduce_scatter"',
        'inplace="0"',
        'cnt="2"',
        'cnt="16384"',
        'depid="0"',
        "2147483647",
        "4294967296",
        "-1",
        '"',
        "'",
        "\xff",
    ]
    accepted = 0
    for _ in range(1500):
        text = chooses.choice(texts)
        for _ in range(chooses.randint(1, 3)):
            if chooses.random() < 0.6:  # one value becomes another
                quoted = text.split('"')
                at = chooses.randrange(len(quoted))
                quoted[at] = chooses.choice(
                    ["0", "1", "2", "3", "-1", "i", "o", "s", *quoted[1::2]]
                )
                text = '"'.join(quoted)
            else:
                at = chooses.randrange(len(text))
                text = text[:at] + chooses.choice(words) + text[at + chooses.randint(0, 20) :]
        try:
            schedules = read_xml(text.encode(), "test")["schedules"]
        except ringside.RingsideError as error:
            assert str(error)
            continue
        accepted += 1
        lengths = {(each["chunks"], len(each["steps"])) for each in schedules}
        assert len(lengths) == 1, text
        if len(schedules) * schedules[0]["chunks"] < 1000:
            check_form({"collective": "all_reduce", "schedules": schedules})
            for fault in faults_of({"collective": "all_to_all", "schedules": schedules}):
                assert not fault.startswith("step"), (fault, text)  # each send has its receive
    assert accepted > 50, accepted


# With the program.


def test_the_program_reads_what_is_converted():
    try:
        program = find_program()
    except ringside.RingsideError:
        pytest.skip("needs the program ringside")

    def ask(*words):
        return subprocess.run(
            [program, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    with tempfile.TemporaryDirectory() as folder:
        for file in FILES.glob("*.xml"):
            ours = Path(folder, file.stem + ".json")
            converted = ask("msccl", file, "--json", ours)
            assert converted.returncode == 0, converted.stderr
            assert ask("prove", "--algorithm", ours).returncode == 0
            assert ringside.msccl(file).data == json.loads(ours.read_text())
        for refuses in ask("step", "--algorithm", "my.xml"), ask("step", "--algorithm", file):
            assert refuses.returncode == 1
        assert refuses.stderr == (
            f"ringside: the algorithm {file} cannot be used: it is XML: `ringside msccl {file} "
            f"--json {str(file)[:-4]}.json` makes JSON of an algorithm of MSCCL\n"
        )
        old = ask("step", "ring_all_reduce", "--msccl", "my.xml")
        assert old.returncode == 2 and "`ringside msccl my.json --xml my.xml`" in old.stderr
        # Over TCP, the same numbers as with our own algorithms.
        for name in "ring_all_reduce_4", "one_shot_all_reduce_3", "two_level_all_gather_4":
            hello = ["hello", "-n", name[-1], "--backend", "tcp"]
            own, ran = ask(*hello), ask(*hello, "--algorithm", Path(folder, name + ".json"))
            assert ran.returncode == 0, ran.stderr
            sums = own.stdout.partition("barrier")[0]
            assert "all_gather: " in sums and ran.stdout.startswith(sums), ran.stdout
