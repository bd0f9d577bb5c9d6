"""`ringside postmortem` of PyTorch's flight records, and of Ringside's without the program."""

import contextlib
import gzip
import io
import json
import os
import pickle
import random
import subprocess
import tempfile
from pathlib import Path

from ringside.__main__ import main
from ringside.lab.data_pickle import DataUnpickler, NotData, read_pickle
from ringside.lab.flights import CALLS, ENTRY, HEADER, MAGIC, as_json, read_folder
from ringside.library import RingsideError
from ringside.program import find_program

HOUR = 3600 * 10**9
NOW = 1_760_000_000 * 10**9


def entry(
    rank,
    number,
    state="completed",
    name="nccl:all_reduce",
    into=((4, 5),),
    out=((4, 5),),
    group=("0", "default_pg"),
    at=NOW,
    **more,
):
    """A call as PyTorch's recorder has it."""
    return {
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": number,
        "profiling_name": name,
        "state": state,
        "retired": False,
        "time_created_ns": at + number * 10**6 + rank * 37,
        "input_sizes": into,
        "output_sizes": out,
        "input_dtypes": ["BFloat16"],
        "timeout_ms": 600_000,
        **more,
    }


def record(entries, size=3, **more):
    ranks = str(list(range(size)))
    return {
        "version": "2.10",
        "entries": entries,
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": ranks},
            "7": {"name": "7", "desc": "mesh_tp", "ranks": "[0, 2]"},
        },
        **more,
    }


def job(size=4, late=2, at=NOW):
    """Records of a job: one rank did not come to call 12."""
    return [
        record(
            [
                entry(r, i, "completed" if i < 12 else "scheduled", at=at)
                for i in range(1, 12 if r == late else 13)
            ],
            size,
        )
        for r in range(size)
    ]


@contextlib.contextmanager
def folder_of(files):
    """A folder with these files: texts, bytes, or records, which become pickles or JSON."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            if isinstance(content, dict):
                text = json.dumps(content).encode()
                content = text if ".json" in name else pickle.dumps(content, 2)
                content = gzip.compress(content) if name.endswith(".gz") else content
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        yield Path(folder)


def named(form, records=None):
    return {form.format(rank): each for rank, each in enumerate(records or job())}


def verdict(files, *words):
    with folder_of(files) as folder:
        done = subprocess.run(
            [find_program(), "postmortem", str(folder), *words], capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stderr == "", done
        return done.stdout


def refusal(files):
    """The sentence of an error, with FOLDER in place of the folder."""
    with folder_of(files) as folder:
        try:
            read_folder(folder)
        except RingsideError as error:
            return str(error).replace(str(folder), "FOLDER")
    raise AssertionError("the folder was read")


def without_program(folder):
    """What the command prints where there is no program."""
    out, before = io.StringIO(), os.environ.get("RINGSIDE_PROGRAM")
    os.environ["RINGSIDE_PROGRAM"] = "/nowhere/ringside"
    try:
        with contextlib.redirect_stdout(out):
            assert main(["postmortem", str(folder)]) == 0
    finally:
        os.environ.pop("RINGSIDE_PROGRAM")
        if before:
            os.environ["RINGSIDE_PROGRAM"] = before
    return out.getvalue()


# ---- Pickles

SAMPLE = {
    "entries": [{"name": "gloo:all_reduce", "sizes": [[1000], []], "ended": True}],
    "numbers": [None, False, 7, 300, 70000, -5, 1 << 40, 0.5],
    "pair": ("entries", 2),
    "one": ("a",),
    "three": (1, 2, 3),
    5: {},
    "no": (),
}


def test_a_pickle_of_data_is_read():
    for protocol in 2, 3, 4, 5:
        assert read_pickle(pickle.dumps(SAMPLE, protocol)) == SAMPLE, protocol
    many = {f"key {i}": [f"key {i}"] for i in range(400)}  # more than a byte numbers
    assert read_pickle(pickle.dumps(many, 2)) == many


def error_of_pickle(data):
    try:
        read_pickle(data)
    except NotData as error:
        return str(error)
    raise AssertionError("the pickle was read")


class Runs:
    """Its pickle calls a function."""

    called = []

    def __reduce__(self):
        return Runs.called.append, ("executed",)


def test_a_pickle_that_would_call_a_function_is_refused():
    assert error_of_pickle(pickle.dumps(ValueError, 2)) == (
        "not a pickle of data, at byte 3: it has the opcode 0x63, and flight records have data "
        "alone"
    )
    for protocol in range(6):
        for value in ValueError("x"), os.system, Runs(), [Path("x")], {1, 2}, b"bytes":
            assert error_of_pickle(pickle.dumps(value, protocol))
    for program in (
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02cbuiltins\nexec\n(X\x01\x00\x00\x001tR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02Pid\n.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02\x82\x01.",
        b"(ios\nsystem\n.",
        b"\x80\x02]c__main__\nx\nb.",
    ):
        assert "it has the opcode" in error_of_pickle(program), program
    assert Runs.called == []
    for refuse in (
        lambda unpickler: unpickler.find_class("os", "system"),
        lambda unpickler: unpickler.persistent_load("id"),
    ):
        try:
            refuse(DataUnpickler(io.BytesIO(b"")))
        except pickle.UnpicklingError:
            continue
        raise AssertionError("something outside of the pickle was named")


def test_a_pickle_that_is_cut_off_or_changed_is_read_or_refused():
    draw = random.Random(7)
    for protocol in 2, 4:
        whole = pickle.dumps(SAMPLE, protocol)
        for length in range(len(whole)):
            assert "not a pickle of data, at byte " in error_of_pickle(whole[:length])
        for _ in range(6000):
            changed = bytearray(whole)
            for _ in range(draw.randrange(1, 4)):
                changed[draw.randrange(len(whole))] = draw.randrange(256)
            try:
                read_pickle(bytes(changed))
            except NotData as error:
                assert "not a pickle of data, at byte " in str(error)
    bomb = b"\x80\x02]r\xff\xff\xff\x7f."  # a number for which the Unpickler reserves 16 GiB
    assert error_of_pickle(bomb) == (
        "not a pickle of data, at byte 8: it gives an object a number above 2^24"
    )
    assert read_pickle(b"\x80\x02]r\x00\x00\x01\x00.") == []
    for data, why in (
        (b"\x80\x02e.", "at byte 3: its opcodes do not fit together"),
        (b"\x80\x02h\x07.", "at byte 4: its opcodes do not fit together"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "at byte 8: a text is not UTF-8"),
        (b"\x80\x02X\xff\xff\xff\xff.", "at byte 8: it is cut off"),
        (b"\x80\x02].\0", "at byte 4: it goes on after its end"),
        (pickle.dumps({}, 2) + pickle.dumps({}, 2), "at byte 6: it goes on after its end"),
    ):
        assert error_of_pickle(data) == "not a pickle of data, " + why, data


def test_a_record_that_is_changed_is_read_or_refused():
    draw, read = random.Random(5), 0
    for data in (
        pickle.dumps(job()[0], 2),
        json.dumps(job()[0]).encode(),
        gzip.compress(pickle.dumps(job()[0], 2)),
    ):
        for _ in range(250):
            changed = bytearray(data)
            for _ in range(draw.randrange(1, 4)):
                changed[draw.randrange(len(data))] = draw.randrange(256)
            with folder_of(
                {"nccl_trace_rank_0": bytes(changed[: draw.choice((None, None, -7))])}
            ) as f:
                try:
                    read_folder(f)
                    read += 1
                except RingsideError as error:
                    assert f"{f}/nccl_trace_rank_0 is no flight record of PyTorch" in str(error)
    assert 0 < read < 700


# ---- Files and what is in them


def test_what_is_no_record_is_refused_by_its_name():
    start = "FOLDER/nccl_trace_rank_3 is no flight record of PyTorch that can be read: "
    for content, why in (
        (b"", "neither a pickle nor JSON, at byte 0"),
        (b"x\n", "neither a pickle nor JSON, at byte 0"),
        (b'{"entries":\n[}', "not JSON, in line 2, column 2: Expecting value"),
        (b'{"entries": []}\0{}', "not JSON, in line 1, column 16: Extra data"),
        (b'{"entries": "\xff"}', "not JSON, at byte 13: it is not UTF-8"),
        (b"[" * 10, "neither a pickle nor JSON, at byte 0"),
        (
            b'{"entries": [], "pg_config": {"0": {"desc": "default_pg"}}}',
            "pg_config, ranks is missing",
        ),
        (b'{"a":' * 100_000, "not a record in JSON: its lists are too deep"),
        (b"{}", "entries is missing"),
        (b'{"entries": 3}', "entries is of another type: int"),
        (b'{"entries": [{}]}', "entry 0, profiling_name is missing"),
        (b'{"entries": [7]}', "entry 0 is of another type: int"),
        (
            b"\x80\x02cos\nsystem\n",
            "not a pickle of data, at byte 3: it has the opcode 0x63, and "
            "flight records have data alone",
        ),
        (b"\x80\x02K\x07.", "it is of another type: int"),
        (
            gzip.compress(b"{}")[:12],
            "not gzip that can be unpacked, near byte 12: Compressed file "
            "ended before the end-of-stream marker was reached",
        ),
    ):
        assert refusal({"nccl_trace_rank_3": content}) == start + why, content[:20]
    assert refusal({"rank_2.gz": pickle.dumps({}, 2)}).endswith(
        "rank_2.gz is no flight record of PyTorch that can be read: its name ends in .gz, but at byte "
        "0 there is no mark of gzip: rename it without .gz"
    )
    for key, value, why in (
        ("input_sizes", [["x"]], "entry 0, input_sizes is no whole number"),
        ("input_sizes", [[1 << 40, 1 << 40]], "entry 0, input_sizes is no size of a tensor"),
        ("collective_seq_id", 1 << 64, "entry 0, collective_seq_id is no number of 64 bits"),
        ("collective_seq_id", -1, "entry 0, the number of its call is negative"),
        ("profiling_name", 5, "entry 0, profiling_name is of another type: int"),
        ("input_dtypes", [5], "entry 0, input_dtypes 0 is of another type: int"),
        ("process_group", ["0"], "entry 0, process_group 1 is missing"),
    ):
        content = record([entry(0, 1, **{key: value})])
        assert refusal({"nccl_trace_rank_0": content}).endswith("read: " + why), (key, value)
    content = record([entry(1, 1, group=("7", "mesh_tp"))])
    assert refusal({"rank_1": content}).endswith("entry 0, rank 1 does not belong to its group 7")


def test_any_name_that_ends_in_a_rank_is_read():
    expected = verdict(named("nccl_trace_rank_{}"))
    assert expected.startswith(
        "All made the same calls, but rank 2 had not come to call #12, in which the others wait: "
    )
    for form in (
        "trace_{}",
        "nccl_trace_rank_node02_{}",
        "nccl_trace_rank_gpu07_{}",
        "rank_{}.json",
        "job4711_rank_{}.pkl",
        "nccl_trace_rank_{:04}",
        "{}",
        "worker-{}.pickle",
        "nccl_trace_rank_{}.gz",
        "rank_{}.json.gz",
    ):
        assert verdict(named(form)) == expected, form
    beside = {"stderr.log": "x", "README": "y", "nccl_trace_rank_": "z", "core.4711": "\x7fELF"}
    assert verdict({**named("nccl_trace_rank_{}"), **beside}) == expected
    told = verdict({**named("nccl_trace_rank_{}"), "log_3": "{}\n", "out.1": b"\x80"})
    assert told == expected + (
        "\nLeft out:\n  log_3 is no flight record: entries is missing\n  out.1 is "
        "no flight record: not a pickle of data, at byte 1: it is cut off\n"
    )


def test_a_folder_without_records_is_refused():
    none = (
        "FOLDER holds no file of a flight recorder (RANK.flight, or of PyTorch a name that ends in "
        "the rank's number, such as nccl_trace_rank_3)"
    )
    assert refusal({}) == none == refusal({"rank2_trace": "x", "log.txt": "y"})
    deep = {f"deep/{name}": each for name, each in named("rank_{}").items()}
    assert refusal(deep) == none + "; look at those in FOLDER/deep"
    with folder_of({}) as folder:
        for path, sentence in (
            (folder, none.replace("FOLDER", str(folder))),
            (
                folder / "no",
                f"{folder}/no is not a folder: name the one that RINGSIDE_FLIGHT_DIR named",
            ),
        ):
            done = subprocess.run(
                [find_program(), "postmortem", path], capture_output=True, text=True
            )
            assert (done.returncode, done.stderr) == (1, f"ringside: {sentence}\n"), done


def test_records_of_other_jobs_are_left_out():
    """Of yesterday's job of 8 ranks, and of an earlier one of the same size."""
    expected = verdict(named("rank_{}"))
    old = named("rank_{}", job(8, at=NOW - 24 * HOUR))
    today = named("rank_{}")
    for ranks in (7,), (4, 5, 6, 7):
        files = {**today, **{f"rank_{r}": old[f"rank_{r}"] for r in ranks}}
        lines = "".join(f"  rank_{r} is of another job of 8 ranks, 24.0 h earlier\n" for r in ranks)
        assert verdict(files) == expected + "\nLeft out:\n" + lines
    # At the same time a larger job wrote to this folder.
    text = verdict({**today, "rank_5": job(8, at=NOW - 10**9)[5]})
    assert (
        text == expected + "\nLeft out:\n  rank_5 is of another job of 8 ranks, 0.0 min earlier\n"
    )
    # Rank 3 left no record today, and one half an hour ago.
    del today["rank_3"]
    text = verdict({**today, "rank_3": job(at=NOW - HOUR // 2)[3]})
    assert text.startswith(
        "All made the same calls, but rank 2 had not come to call #12, in which the others wait: look at "
        "what it did after the call before it. Or the cause is a rank that left no record: look at rank 3."
    )
    assert text.endswith("\nLeft out:\n  rank_3 is of another job, 30.0 min earlier\n")
    # Clocks that differ by less than the ranks wait for each other do not make two jobs.
    assert verdict({**today, "rank_3": job(at=NOW - HOUR // 10)[3]}) == expected
    # Buffers that share no call: a rank that stopped long before the others would not be missed.
    late = record([entry(3, 1)], 4)
    assert "rank 3 left no record" not in verdict({**today, "rank_3": late})


def test_the_size_of_a_job_is_in_its_records():
    two = {f"rank_{r}": job(6)[r] for r in (0, 1)}
    assert "ranks 2 to 5 left no record" in verdict(two)
    assert refusal({"rank_9": job()[0]}).endswith(
        "rank_9 is no flight record of PyTorch that can be read: its name ends in 9, and its job has 4 "
        "ranks: end it in the number of its rank"
    )
    files = {f"{host}_rank_{r}": job()[r] for host in "ab" for r in (0, 1)}
    assert refusal(files) == (
        "FOLDER holds two records of rank 0, a_rank_0 and b_rank_0: leave one of them there"
    )


# ---- Verdicts


def test_a_job_whose_ranks_diverged_is_explained():
    gather = {
        "name": "nccl:_all_gather_base",
        "state": "scheduled",
        "into": ((4,),),
        "out": ((12,),),
    }
    other = {"name": "nccl:broadcast", "state": "started", "into": ((3,),), "out": ((3,),)}
    files = {
        f"nccl_trace_rank_{r}": record([entry(r, 1), entry(r, 2, **(other if r == 1 else gather))])
        for r in range(3)
    }
    assert (
        verdict(files)
        == """\
The ranks diverged at call #2:
  ranks 0 and 2 made all_gather of 12 bf16
  rank 1 made broadcast of 3 bf16
Every rank must make the same calls in the same order.

rank 0   was in call #2, all_gather of 12 bf16
rank 1   was in call #2, broadcast of 3 bf16
rank 2   was in call #2, all_gather of 12 bf16
"""
    )


def test_a_rank_that_did_not_come_and_one_without_a_record_are_named():
    text = verdict(
        {"rank_0": record([entry(0, 1), entry(0, 2, "started")]), "rank_2": record([entry(2, 1)])}
    )
    assert "rank 2   had ended call #1, all_reduce of 20 bf16" in text
    assert "rank 2 had not come to call #2" in text
    assert "rank 1 left no record" in text


def groups(rank):
    into = {0: (), 1: ((1,),), 2: ((2,),)}[rank]
    entries = [
        entry(rank, 1, name="nccl:gather", into=((4,),), out=((4,),) * 3 if rank == 0 else ()),
        entry(rank, 2, name="nccl:all_to_all", into=into, out=((6,),)),
        entry(rank, 3, "started", "nccl:coalesced", (), ()),
    ]
    if rank != 1:
        entries.append(entry(rank, 1, into=((9,),), group=("7", "mesh_tp")))
    entries.append(
        entry(rank, 4, "started", f"nccl:recv {rank}<-{(rank + 1) % 3}", ((8,),), ((8,),))
    )
    return record(entries)


def test_groups_and_messages_and_blocks_of_unequal_sizes():
    with folder_of({f"rank_{r}": groups(r) for r in range(3)}) as folder:
        flights = read_folder(folder).flights
    assert len(flights) == 5
    assert [call.count for call in flights[0].calls] == [12, 2, 8]
    assert (flights[4].group, flights[4].rank, flights[4].size) == ("mesh_tp@0,2", 1, 2)
    told = verdict({f"rank_{r}": groups(r) for r in range(3)})
    assert told.startswith(
        "Ranks wait for each other in a circle: rank 0 for rank 1, rank 1 for rank 2, "
        "rank 2 for rank 0."
    )
    assert (
        "rank 2   was in call #4, send/recv of 8 bf16 from rank 0 to rank 2, waiting for rank 0\n"
        in told
    )


def test_calls_are_those_of_pytorch():
    def call(name, **more):
        with folder_of({"rank_0": record([entry(0, 5, name=name, **more)])}) as folder:
            (call,) = read_folder(folder).flights[0].calls
        return str(call)

    into, out = ((2, 3), (4,)), ((30,),)
    for name, words in (
        ("gloo:all_reduce", "all_reduce of 10 bf16"),
        ("nccl:reduce", "reduce of 10 bf16"),
        ("_allgather_base", "all_gather of 30 bf16"),
        ("nccl:all_gather_into_tensor_coalesced", "all_gather of 30 bf16"),
        ("nccl:_reduce_scatter_base", "reduce_scatter of 10 bf16"),
        ("nccl:gather", "gather of 30 bf16"),
        ("nccl:scatter", "scatter of 90 bf16"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("nccl:new", "barrier for new"),
        ("nccl:send 0->1", "send/recv of 10 bf16"),
    ):
        assert call(name, into=into, out=out) == words, name
    assert call("x:all_reduce", input_dtypes=["Float8"]) == (
        "all_reduce of 20 uint8 for elements of the type Float8"
    )
    assert call("x:all_reduce", input_dtypes=[]) == "all_reduce of 20 uint8"
    # JSON of some versions has numbers as texts; a call is over that its group has completed.
    old = record(
        [entry(0, 3, "scheduled", collective_seq_id="3")],
        1,
        pg_status={"0": {"last_completed_collective": 3}},
    )
    assert verdict({"rank_0.json": old}).endswith(
        "rank 0   had ended call #3, all_reduce of 20 bf16, and was in no call\n"
    )


# ---- JSON, and without the program


def test_the_program_reads_json():
    with folder_of(named("rank_{}")) as folder:
        text = as_json(read_folder(folder).flights)
    with folder_of({"flights.json": text}) as folder:
        file = folder / "flights.json"

        def judged(content):
            file.write_text(content)
            done = subprocess.run(
                [find_program(), "postmortem", str(file)], capture_output=True, text=True
            )
            return done.returncode, done.stdout + done.stderr.replace(str(folder), "FOLDER")

        assert judged(text) == (0, verdict(named("rank_{}")))
        # Calls that all made alike are not told: of rank 2 the last, of the others the next one.
        assert [
            [call["number"] for call in each["calls"]] for each in json.loads(text)["flights"]
        ] == [[12], [12], [11], [12]]
        start = "ringside: FOLDER/flights.json has no flight records in JSON: "
        for before, after, why in (
            ("{", "", ""),
            ('"flights": [{', '"flights": [], "x": [{', "it has no flight"),
            ('"rank": 0', '"rank": 4', "rank 4 of 4 ranks"),
            ("all_reduce", "all_reduced", "all_reduced is neither a collective nor a type"),
            ('"number": 11,', "", ""),
        ):
            code, said = judged(text.replace(before, after, 1))
            assert code == 1 and said.startswith(start + why), said


def test_without_the_program_the_calls_are_shown():
    files = {**named("rank_{}"), "rank_7": job(8, at=NOW - 24 * HOUR)[7]}
    del files["rank_3"]
    with folder_of(files) as folder:
        assert (
            without_program(folder)
            == """\
The records of a job of 4 ranks:

rank 0   made calls #1 to #12; is in #12, all_reduce of 20 bf16
rank 1   made calls #1 to #12; is in #12, all_reduce of 20 bf16
rank 2   made calls #1 to #11; ended #11, all_reduce of 20 bf16; lacks call #12 of ranks 0 and 1
rank 3 left no record

Left out:
  rank_7 is of another job of 8 ranks, 24.0 h earlier

The verdict needs the program ringside: [Errno 2] No such file or directory: '/nowhere/ringside'
"""
        )


def own_record(rank, calls, size=3, at=NOW, group=b"", written=None):
    """A file of Ringside's recorder."""
    entries = [
        ENTRY.pack(
            i,
            0,
            0,
            0,
            0,
            0,
            100,
            0,
            b"w",
            0,
            2 if i < 8 else 3,
            1,
            4,
            (rank + 1) % size,
            0,
            at + i * 10**9,
            0,
        )
        for i in range(1, calls + 1)
    ]
    entries += [bytes(ENTRY.size)] * (CALLS - len(entries))
    return HEADER.pack(
        MAGIC, rank, size, 1, CALLS, written or at + 10**10, -1, b"gone", group, b""
    ) + b"".join(entries)


def test_own_records_are_those_that_the_program_reads():
    files = {f"{r}.flight": own_record(r, 7 if r == 1 else 8) for r in range(3)}
    files["3.flight"] = own_record(3, 9, 4, NOW - HOUR)
    assert (
        verdict(files)
        == """\
All made the same calls, but rank 1 had not come to call #8, in which the others wait: look at what it did after the call before it.

First to write, rank 0: gone

rank 0   failed in call #8, all_reduce of 100 fp32 (sum, ring) for w for 2.0 s: step 1 (of 0 to 3), 0 bytes received, waiting for rank 1
rank 1   had ended call #7, all_reduce of 100 fp32 (sum, ring) for w, and was in no call
rank 2   failed in call #8, all_reduce of 100 fp32 (sum, ring) for w for 2.0 s: step 1 (of 0 to 3), 0 bytes received, waiting for rank 0

Left out:
  3.flight is of another job of 4 ranks, 1.0 h earlier
"""
    )
    with folder_of(files) as folder:
        assert without_program(folder).startswith("""\
The records of a job of 3 ranks:

rank 0   made calls #1 to #8; is in #8, all_reduce of 100 fp32 for w
rank 1   made calls #1 to #7; ended #7, all_reduce of 100 fp32 for w; lacks call #8 of ranks 0 and 2
rank 2   made calls #1 to #8; is in #8, all_reduce of 100 fp32 for w

Left out:
  3.flight is of another job of 4 ranks, 1.0 h earlier
""")
    assert refusal({"0.flight": b"short"}) == (
        "FOLDER/0.flight is not a flight recorder's file, or is cut off, or is of another version"
    )
