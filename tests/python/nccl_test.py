"""Logs of NCCL, made up in the form of its source: what is said of them, and what is not guessed."""

import gzip
import io
import json
import os
import threading
from contextlib import redirect_stderr, redirect_stdout

import ringside
from ringside.__main__ import main
from ringside.lab.nccl_log import communicators, read_log
from ringside.lab.nccl_xml import read_xml

HOSTS = ["node1", "node1", "node2", "node2"]
RINGS = [[0, 1, 2, 3], [0, 2, 1, 3]]  # the second goes from host to host four times
PARENTS = [[-1, 0, 0, 2], [2, 0, 3, -1]]


def said(rank, *bodies):
    """Lines of a rank: host, process, thread and device stand before them."""
    return [
        f"{HOSTS[rank]}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL INFO {body}" for body in bodies
    ]


def tree_of(rank, channel):
    parents = PARENTS[channel]
    children = [r for r in range(4) if parents[r] == rank] + [-1] * 3
    return f"[{channel}] {'/'.join(map(str, children[:3]))}->{rank}->{parents[rank]}"


def via(a, b):
    return "P2P/CUMEM" if HOSTS[a] == HOSTS[b] else "NET/IB/0/GDRDMA"


def connections(rank):
    for channel, ring in enumerate(RINGS):
        behind = ring[(ring.index(rank) + 1) % 4]
        send = "" if HOSTS[rank] == HOSTS[behind] else " [send]"
        yield f"Channel {channel:02}/0 : {rank}[{rank % 2}] -> {behind}[{behind % 2}]{send} via {via(rank, behind)}"


def log_of(rank):
    """What a rank says, in the order of 2.28."""
    comm = f"comm 0x{rank}abc rank {rank}"
    first = rank == 0
    return said(
        rank,
        f"ncclCommInitRank {comm} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} busId 1000 commId 0xfeed - Init START",
        *(["NCCL_ALGO set by environment to Tree,Ring."] if first else []),
        "=== System : maxBw 240.0 totalBw 240.0 ===",
        "CPU/0-0 (1/1/2)",
        "+ PCI[24.0] - GPU/0-1000 (0)",
        "              + NVL[240.0] - NVS/0-0",
        "+ PCI[12.0] - NIC/0-2000",
        "==========================================",
        f"Pattern 4, crossNic 0, nChannels 2, bw {20 - rank}.000000/10.000000, type NVL/PXB, sameChannels 0",
        " 0 : NET/0-0 GPU/0-1000 GPU/0-3000 NET/0-0",
        "Pattern 1, crossNic 0, nChannels 2, bw 20.000000/10.000000, type NVL/PXB, sameChannels 0",
        f"{comm} nRanks 4 nNodes 2 localRanks 2 localRank {rank % 2} MNNVL 0",
        *([f"Channel {c:02}/02 : {'  '.join(map(str, ring))}" for c, ring in enumerate(RINGS)] if first else []),
        f"Trees {tree_of(rank, 0)} {tree_of(rank, 1)}",
        "P2P Chunksize set to 131072",
        *TABLE * first,
        *connections(rank),
        f"ncclCommInitRank {comm} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} busId 1000 commId 0xfeed - Init COMPLETE",
    )  # fmt: skip


TABLE = [
    "  Algorithm   |                            Tree                  |                            Ring                  |",
    "  Protocol    |             LL |          LL128 |         Simple |             LL |          LL128 |         Simple |",
    " Max NThreads |            512 |            640 |            512 |            512 |            640 |            512 |",
    "    AllReduce |    20.0/   2.0 |    30.0/   0.0 |    60.0/  10.0 |    30.0/   4.0 |    50.0/  15.0 |    80.0/  20.0 |",
    "    AllGather |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |    20.0/   4.0 |    30.0/  15.0 |    40.0/  20.0 |",
]  # fmt: skip
CHOICES = said(
    0,
    "AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}",
    "AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}",
    "AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}",
    "AllGather: 262144 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}",
    "AllReduce [Symmetric]: 2048 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1",
)
WHOLE = ["NCCL version 2.28.9+cuda12.9", *sum(map(log_of, range(4)), []), *CHOICES]


def explained(tmp_path, lines, *words, name="nccl.log"):
    """What the command prints of a log, and its exit code."""
    file = tmp_path / name
    file.write_bytes(lines if isinstance(lines, bytes) else "\n".join(lines).encode())
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = main(["nccl", str(file), *map(str, words)])
    return out.getvalue() + errors.getvalue().replace(str(tmp_path) + "/", ""), code


def has(text, *expected):
    for each in expected:
        assert " ".join(each.split()) in " ".join(text.split()), text


def test_rings_trees_and_channels_are_those_of_the_log(tmp_path):
    text, code = explained(tmp_path, WHOLE)
    assert code == 0
    has(
        text,
        "NCCL 2.28.9+cuda12.9: ",
        "Communicator of 4 ranks on 2 hosts, 2 channels\n",
        "channel 0: 0 -> 1 -> 2 -> 3 -> 0",
        "channel 1: 0 -> 2 -> 1 -> 3 -> 0",
        "channel 0: 0 <- [1, 2 <- 3]",
        "channel 1: 3 <- 2 <- 0 <- 1",
        "ring: 2 channels, each 17 GB/s by NVLink (NVL), 10 GB/s to the network through several PCIe switches",
    )
    assert "Not understood" not in text


def test_what_nccl_took_stands_beside_both_models(tmp_path):
    file = tmp_path / "out.json"
    text, _ = explained(tmp_path, WHOLE, "--topology", "h100", "--json", file)
    has(text, "all_reduce 4 KiB 2 double_tree LL 1 22.05 double_tree LL 22.05")
    has(text, "all_reduce 1 MiB 1 ring LL128 2 119.9 ring LL128 119.9")
    has(text, "all_gather 1 MiB 1 ring SIMPLE 2 92.43 ring SIMPLE 92.43")  # of all four ranks
    rows = {
        (row["collective"], row["bytes"]): row for row in json.loads(file.read_text())["choices"]
    }
    assert rows["all_reduce", 1 << 20]["calls"] == 1
    assert rows["all_reduce", 4096]["nccl_cheapest"] == ["TREE", "LL"]
    assert rows["all_reduce", 2048]["algorithm"] == "AllReduce_AGxLL_R"
    assert rows["all_reduce", 2048]["channels"] == 4
    simulated = ringside_json("all_reduce", "-n", "4", "--bytes", "1048576B", "--topology", "h100")
    assert rows["all_reduce", 1 << 20]["ours_us"] == min(row["time_us"] for row in simulated)


def ringside_json(*words):
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        assert main(["simulate", *words, "--json", "-"]) == 0
    return json.loads(out.getvalue())


def test_what_limits_it_is_from_lines_of_the_log(tmp_path):
    text, _ = explained(
        tmp_path,
        [
            *WHOLE,
            *said(
                1,
                "GPU Direct RDMA Disabled for GPU 1 / HCA 0 (distance 9 > 5)",
                "Channel 03 : 1[1] -> 0[0] via SHM/direct/direct",
            ),
            "node1:100:200 [0] transport/net.cc:12 NCCL WARN Call to ibv_open_device failed",
        ],
    )
    has(
        text,
        "the ring: at most 20 GB/s by the search, to the network",
        "the ring of channel 1 goes from host to host 4 times, where 2 would do",
        'NCCL says: "GPU Direct RDMA Disabled for GPU 1 / HCA 0 (distance 9 > 5)"',
        "the environment decides or narrows the choice: NCCL_ALGO=Tree,Ring",
        "Warnings of NCCL Call to ibv_open_device failed",
    )
    assert "the ring of channel 0" not in text
    assert "SHM" not in text  # no ring uses that connection


def test_connections_through_the_cpu_are_named(tmp_path):
    lines = [
        line.replace("P2P/CUMEM", "SHM/direct/direct").replace("NET/IB/0/GDRDMA", "NET/Socket/0")
        for line in WHOLE
    ]
    text, _ = explained(tmp_path, lines)
    has(text, "go by SHM: each byte goes into the CPU's memory and out again")
    has(text, "go by NET/Socket: TCP sockets, which the CPU serves")
    lines = [line.replace("NET/IB/0/GDRDMA", "NET/IB/0") for line in WHOLE]
    has(explained(tmp_path, lines)[0], "over the network without GDRDMA")


def test_what_the_log_does_not_say_is_not_guessed(tmp_path):
    lines = said(0, "Channel 00/02 : 0 1 2 3", *(f"Trees {tree_of(0, 0)}",))
    text, _ = explained(tmp_path, lines)
    has(
        text,
        "NCCL, a version that the log does not say",
        "the log does not say: NCCL prints it since 2.20",
    )
    has(text, "channel 0: the log has 1 of 4 ranks: rank 0 is the root and receives from 1, 2")
    assert "host" not in text and "us)" not in text
    old, _ = explained(tmp_path, ["[0] NCCL INFO 4096 Bytes -> Algo 0 proto 1 time 24.500000"])
    has(old, "? 4 KiB 1 double_tree LL128 24.50")
    part, _ = explained(
        tmp_path, said(0, "AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}")
    )
    has(part, "all_gather 1 ring LL 1")  # of how many ranks?
    strange, _ = explained(tmp_path, said(0, "Channel 00/01 : 0 1", "Tuning knob 17 is on"))
    has(strange, "Not understood 1 x Tuning knob # is on")


def test_rings_longer_than_a_line(tmp_path):
    long = "  ".join(map(str, range(22)))
    start = "comm 0x1 rank 0 nRanks 32 nNodes 4 localRanks 8 localRank 0 MNNVL 0"
    text, _ = explained(tmp_path, said(0, start, f"Channel 00/01 : {long}  2..."))
    has(text, "20 -> 21 -> ... (the line has 22 of 32 ranks)")
    neighbours = [
        f"n:{r}:{r} [0] NCCL INFO {body}"
        for r in range(32)
        for body in (
            f"comm 0x1 rank {r} nRanks 32 nNodes 4 x",
            f"Ring 00 : {(r - 5) % 32} -> {r} -> {(r + 5) % 32}",
        )
    ]
    has(
        explained(tmp_path, neighbours)[0],
        "channel 0: 0 -> 5 -> 10 -> 15 -> 20 -> 25 -> 30 -> 3 ->",
    )


def test_forms_of_older_versions_and_of_rccl(tmp_path):
    lines = [
        "host:1:2 [0] NCCL INFO Channel 00/01 :    0   1",
        "host:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1|-1->0->1/-1/-1",
        "host:1:3 [1] NCCL INFO Trees [0] 0->1->-1/-1/-1",
        "host:1:2 [0] NCCL INFO Ring 00 : 0[1000] -> 1[2000] via P2P/IPC",
        "host:1:3 [1] NCCL INFO Channel 00 : 1[2000] -> 0[1000] via direct shared memory comm 0x2 nRanks 02",
        "host:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 1, speed 5.000000/5.000000, type SYS/PIX, sameChannels 1",
        "host:1:2 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Ring/Simple |",
        "host:1:2 [0] NCCL INFO     AllReduce |     4.4/   1.0 |    10.0/   8.0 |",
        "host:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE",
        "host:1:3 [1] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 1 busId 2000 - Init COMPLETE",
        "host:1:1 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 acc (nil) count 64 datatype 7 op 0 root 0 comm 0x1 [nranks=2] stream (nil)",
    ]  # fmt: skip
    text, _ = explained(tmp_path, lines)
    has(
        text,
        "Communicator of 2 ranks on 1 host, 1 channel\n",
        "channel 0: 0 -> 1 -> 0",
        "channel 0: 0 <- 1",
        "1 of 2 connections in the log goes by SHM",
        "double_tree LL 4.4 us + 1 GB/s, ring SIMPLE 10 us + 8 GB/s",
        "at most 5 GB/s",
        "1 x all_reduce of 256 B on 2 ranks",
    )
    assert "Not understood" not in text


def test_communicators_of_one_log_stay_apart():
    split = [line.replace("nranks 4", "nranks 2").replace("commId 0xfeed", "parent 0x1 splitCount 1 color 7 key 0")
             for line in log_of(0) + log_of(1)]  # fmt: skip
    found = communicators(read_log(WHOLE + split))
    assert [len(each.sessions) for each in found] == [4, 2]
    later = said(0, "Channel 00/1 : 0[0] -> 3[1] [send] via NET/IB/0/GDRDMA/Shared")
    (only,) = communicators(read_log(WHOLE + later))
    assert (0, 3) not in only.connections()  # of a send, not of a ring


def test_a_thread_makes_one_communicator_after_the_other():
    def one(ring):
        return said(
            0,
            f"Channel 00/01 : {ring}",
            "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE",  # until 2.17
        )

    found = communicators(read_log(one("0 1") + one("0 1")))
    assert [each.rings() for each in found] == [{0: [0, 1]}] * 2


def test_ranks_of_one_process_belong_together():
    lines = [
        "host:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1",
        "host:1:3 [1] NCCL INFO Trees [0] -1/-1/-1->1->0",  # no line says how many ranks
        "host:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE",
    ]
    (only,) = communicators(read_log(lines))
    assert only.trees() == {0: {0: (-1, [1]), 1: (0, [])}}


def test_lines_of_two_ranks_in_one():
    whole = read_log(
        ["".join(said(0, "Channel 00/01 :  0  1")) + "".join(said(1, "Using network IB"))]
    )
    assert (whole.of_nccl, whole.network, whole.lines) == (2, "IB", 1)


TOPOLOGY = """<system version="1"><cpu numaid="1" arch="x86_64"><pci busid="0000:01:00.0" link_speed="32.0 GT/s PCIe"
 link_width="16"><gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="0000:05:00.0" count="18"/></gpu></pci>
<pci busid="0000:02:00.0" link_speed="32.0 GT/s PCIe" link_width="8"><gpu dev="0" sm="90" rank="0" gdr="0"/></pci>
<nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/></nic></cpu></system>"""
GRAPHS = """<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="12.5"
 typeintra="NVL" typeinter="PXN" samechannels="1"><channel><net dev="0"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>
<channel><net dev="a"/><gpu dev="1"/><gpu dev="0"/><net dev="a"/></channel></graph>
<graph id="3" pattern="5" crossnic="0" nchannels="0" speedintra="0" speedinter="0" typeintra="NVL" typeinter="LOC"
 samechannels="1"/></graphs>"""


def test_topology_and_graphs_of_a_host(tmp_path):
    text, code = explained(tmp_path, TOPOLOGY.encode(), name="topo.xml")
    assert code == 0
    has(
        text,
        "gpu 0 0 1 32.0 GT/s x8 no",
        "gpu 1 1 1 32.0 GT/s x16 18 yes",
        "net 0 mlx5_0 1 400 yes",
        "GPUs have PCIe links of different speed: 1 with 32.0 GT/s x8, 1 with 32.0 GT/s x16",
        "GPU 0: no direct transfer between GPU and network card (gdr=0)",
    )
    text, _ = explained(tmp_path, b"\n" + GRAPHS.encode(), name="graph.xml")
    has(
        text,
        "ring: 2 channels, each 20 GB/s by NVLink (NVL), 12.5 GB/s to the network through another GPU "
        "to its network card (PXN)",
        "channel 0: net 0 -> gpu 0 -> gpu 1 -> net 0",
        "channel 1: net 10 -> gpu 1 -> gpu 0 -> net 10",
        "nvls: none",
    )


def test_bad_input_gets_a_sentence(tmp_path):
    def refused(data, expected, name="x.xml"):
        text, code = explained(tmp_path, data, name=name)
        assert (text, code) == (f"ringside: {expected}\n", 1), text

    start = "x.xml cannot be used: "
    bomb = '<!DOCTYPE a [<!ENTITY b "c">]><system>&b;</system>'
    refused(bomb.encode(), start + "expected elements, not <!DOCTYPE")
    refused(GRAPHS.replace('nchannels="2"', 'nchannels="two"').encode(),
            start + "<graph> has nchannels='two', but a number is expected")  # fmt: skip
    refused(GRAPHS.replace(' speedinter="12.5"', "").encode(), start + "<graph> has no speedinter")
    refused(b"<system", start + "expected XML, but: unclosed token: line 1, column 0")
    refused(b"<system/>\xff", start + "expected UTF-8")
    refused(b"<algo/>", start + "<algo> is neither a topology, <system>, nor graphs, <graphs>: NCCL writes "
            "them where NCCL_TOPO_DUMP_FILE and NCCL_GRAPH_DUMP_FILE say")  # fmt: skip
    refused(b"no\nnccl\n", "no.log: no line of NCCL among 2. Run the program with NCCL_DEBUG=INFO "
            "NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING", "no.log")  # fmt: skip
    refused(GRAPHS.replace('speedinter="12.5"', 'speedinter="nan"').encode(),
            start + "<graph> has speedinter='nan', but a number is expected")  # fmt: skip
    damaged = bytearray(gzip.compress(b"no\nnccl\n" * 1000))
    damaged[20] ^= 255
    text, code = explained(tmp_path, bytes(damaged), name="d.gz")
    assert text.startswith("ringside: cannot read d.gz: ") and code == 1
    refused(b"not zipped", "cannot read z.gz: Not a gzipped file (b'no')", "z.gz")
    errors = io.StringIO()
    with redirect_stderr(errors):
        assert main(["nccl", str(tmp_path / "none.log")]) == 1
        assert main(["nccl"]) == 2
    has(
        errors.getvalue(),
        "none.log: No such file or directory",
        "name a log of NCCL, or XML that it wrote",
    )


def test_hostile_numbers_and_texts_do_no_harm(tmp_path):
    lines = said(
        0,
        "Channel 00/01 : " + "9" * 5000,
        f"AllReduce: {'9' * 400} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}",
        "AllReduce: 8 Bytes -> Algo 99 proto 9 time 1.2.3",
        "AllReduce |  1.2.3/ 4 |",
        "Pattern 4, crossNic 0, nChannels 99999999999, bw 1e999/0, type NVL/PIX, sameChannels 0",
        "NCCL_ALGO set by environment to \x1b[31mred",
        "Trees [0] 1/-1/-1->0->0",
        "x" * 70000,
    )
    text, code = explained(tmp_path, lines)
    assert code == 0 and "\x1b" not in text
    circle = [
        *said(0, "Trees [0] 1/-1/-1->0->-1", "Channel 00/01 : 0 1"),
        *said(1, "Trees [0] 0/-1/-1->1->0"),
    ]
    has(explained(tmp_path, circle)[0], "channel 0: 0 <- 1 <- 0")


def test_a_compressed_log_is_read(tmp_path):
    text, code = explained(tmp_path, gzip.compress("\n".join(WHOLE).encode()), name="nccl.log.gz")
    assert code == 0
    has(text, "channel 1: 0 -> 2 -> 1 -> 3 -> 0")


def test_a_log_from_a_pipe_is_read_from_its_beginning(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    lines = "\n".join([*WHOLE, *["nothing of NCCL"] * 5000]).encode()
    writer = threading.Thread(target=fifo.write_bytes, args=(lines,))
    writer.start()
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["nccl", str(fifo)]) == 0
    writer.join()
    has(out.getvalue(), "channel 1: 0 -> 2 -> 1 -> 3 -> 0")


def test_calls_have_the_bytes_of_the_whole_buffer(tmp_path):
    lines = said(
        0,
        "AllGather: opCount 0 sendbuff 0x1 recvbuff 0x2 count 1024 datatype 7 op 0 root 0 comm 0x0abc [nranks=4] stream 0x3",
        "AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 1024 datatype 7 op 0 root 0 comm 0x0abc [nranks=4] stream 0x3",
    )  # fmt: skip
    text, code = explained(tmp_path, lines)
    assert code == 0
    has(text, "all_gather of 16 KiB on 4 ranks", "all_reduce of 4 KiB on 4 ranks")


def test_the_command_is_a_function(tmp_path):
    assert "nccl" in ringside.COMMANDS
    assert read_xml(GRAPHS.encode())[0].search.kind == "ring"
