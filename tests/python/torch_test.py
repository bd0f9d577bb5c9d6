"""torch.distributed over Ringside, held against gloo in the same ranks."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from notebook import run_notebook
from ranks import begin, on_ranks
from ringside.torch_backend import HAS_BACKENDS
from torch.nn.parallel import DistributedDataParallel

SIZES = 2, 3, 4
NOTEBOOK = Path(__file__).resolve().parents[2] / "python/ring_to_ddp.ipynb"


def expect_error(text, call):
    try:
        call()
    except Exception as error:
        assert text in str(error), f'expected "{text}" in: {error}'
        return error
    raise AssertionError(f'expected an error with "{text}"')


# ---- Data parallel training


def train(group, rank, steps=4, **options):
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(17, 31), torch.nn.Tanh(), torch.nn.Linear(31, 5))
    ddp = DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.001, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    data = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(6, 17, generator=data)).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def ddp(rank, size, folder, backend):
    os.environ["RINGSIDE_BACKEND"] = backend
    begin(rank, size, folder)
    assert dist.group.WORLD.ranks.transport == backend
    gloo = dist.new_group(backend="gloo")
    for options in {}, {"gradient_as_bucket_view": True}, {"static_graph": True}:
        ours, theirs = train(None, rank, **options), train(gloo, rank, **options)
        if size == 2:  # one addition has one order
            assert torch.equal(ours, theirs)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)
        same = [torch.empty_like(ours) for _ in range(size)]
        dist.all_gather(same, ours)
        assert all(torch.equal(ours, each) for each in same)
    dist.destroy_process_group()


def test_ddp_trains_as_with_gloo():

    for size in SIZES:
        for backend in "shm", "tcp":
            on_ranks(ddp, size, backend)


# ---- Collectives

ALL_TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
]


def values(shape, type, rank):
    """Small integers, whose sums and products every type holds exactly."""
    generator = torch.Generator().manual_seed(rank)
    numbers = torch.randint(0, 3, shape, generator=generator)
    return (
        numbers.to(type)
        if type != torch.complex64
        else torch.complex(numbers.float(), numbers.flip(0).float())
    )


def collectives(rank, size, folder, backend):
    os.environ["RINGSIDE_BACKEND"] = backend
    begin(rank, size, folder)
    gloo = dist.new_group(backend="gloo")
    ops = dist.ReduceOp
    for type in ALL_TYPES:
        # What gloo reduces in a type that it lacks is asked of it in a wider one.
        wide = {torch.bool: torch.int32, torch.int16: torch.int32}.get(type, type)
        for op in ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX:
            if type == torch.complex64 and op != ops.SUM:
                continue
            ours = values((7, 3), type, rank)
            theirs = ours.to(wide)
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=gloo)
            assert torch.equal(ours, theirs.to(type)), (type, op)
            ours, theirs = values((4,), type, rank), values((4,), type, rank).to(wide)
            dist.reduce(ours, size - 1, op)
            dist.reduce(theirs, size - 1, op, group=gloo)
            assert rank != size - 1 or torch.equal(ours, theirs.to(type)), (type, op)
            everything, own = values((size, 5), type, rank), torch.empty(5, dtype=type)
            dist.reduce_scatter_tensor(own, everything.reshape(-1), op)
            total = everything.clone()
            dist.all_reduce(total, op)
            assert torch.equal(own, total[rank]), (type, op)
            listed = torch.empty(5, dtype=type)
            dist.reduce_scatter(listed, list(everything), op)
            assert torch.equal(listed, own)
        everyones = [values((2, 3), type, r) for r in range(size)]
        mine = everyones[rank]
        out = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(out, mine)
        assert all(map(torch.equal, out, everyones))
        flat = torch.empty((2 * size, 3), dtype=type)
        dist.all_gather_into_tensor(flat, mine)
        assert torch.equal(flat, torch.cat(everyones))
        out = [torch.empty_like(mine) for _ in range(size)]
        dist.gather(mine, out if rank == 1 else None, dst=1)
        assert rank != 1 or all(map(torch.equal, out, everyones))
        one = torch.empty_like(mine)
        dist.scatter(one, everyones if rank == 0 else None, src=0)
        assert torch.equal(one, mine)
        copy = mine.clone()
        dist.broadcast(copy, size - 1)
        assert torch.equal(copy, everyones[-1])
        sent = [values((3,), type, 10 * rank + r) for r in range(size)]
        received = [torch.empty(3, dtype=type) for _ in range(size)]
        dist.all_to_all(received, sent)
        assert all(torch.equal(received[r], values((3,), type, 10 * r + rank)) for r in range(size))
        flat = torch.empty(3 * size, dtype=type)
        dist.all_to_all_single(flat, torch.cat(sent))
        assert torch.equal(flat, torch.cat(received))

        # Blocks of r + 1 rows from rank r, to each rank alike; then 2 rows to rank 0, none to others
        out = [torch.empty((r + 1, 2), dtype=type) for r in range(size)]
        dist.all_gather(out, values((rank + 1, 2), type, rank))
        assert all(torch.equal(each, values((r + 1, 2), type, r)) for r, each in enumerate(out))
        total = torch.empty(rank + 1, dtype=type)
        dist.reduce_scatter(total, [values((r + 1,), type, rank) for r in range(size)])
        expected = sum(values((rank + 1,), type, r) for r in range(size))
        assert torch.equal(total, expected.to(type))
        rows = torch.empty(((rank + 1) * size, 2), dtype=type)
        dist.all_to_all_single(
            rows,
            torch.cat([values((r + 1, 2), type, 10 * rank + r) for r in range(size)]),
            [rank + 1] * size,
            list(range(1, size + 1)),
        )
        assert torch.equal(
            rows, torch.cat([values((rank + 1, 2), type, 10 * r + rank) for r in range(size)])
        )
        few = [torch.empty(2 if rank == 0 else 0, dtype=type) for _ in range(size)]
        dist.all_to_all(few, [values((2 if r == 0 else 0,), type, rank) for r in range(size)])
        assert rank != 0 or all(
            torch.equal(each, values((2,), type, r)) for r, each in enumerate(few)
        )

    # Blocks that are equal on rank 0 alone: the others cannot know
    blocks = [[2 if r == to > 0 else 1 for to in range(size)] for r in range(size)]
    sent, received = blocks[rank], [blocks[r][rank] for r in range(size)]
    rows = torch.empty(sum(received), dtype=torch.int64)
    dist.all_to_all_single(rows, torch.full((sum(sent),), rank), received, sent)
    assert rows.tolist() == [r for r in range(size) for _ in range(received[r])]
    listed = [torch.empty(n, dtype=torch.int64) for n in received]
    dist.all_to_all(listed, [torch.full((n,), rank) for n in sent])
    assert torch.equal(torch.cat(listed), rows)

    for type in torch.uint8, torch.int32, torch.int64:
        for op in ops.BAND, ops.BOR, ops.BXOR:
            ours = torch.arange(rank, rank + 9).to(type)
            theirs = ours.clone()
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=gloo)
            assert torch.equal(ours, theirs), (type, op)
    expect_error(
        "bit_and is not defined for fp32", lambda: dist.all_reduce(torch.ones(1), ops.BAND)
    )
    expect_error(
        "split sizes that add up to the 4 rows",
        lambda: dist.all_to_all_single(torch.empty(4), torch.empty(4), [4] * size, [1] * size),
    )

    # Memory that is not contiguous, tensors without elements, several tensors in one call
    for view in (lambda t: t.t(), lambda t: t[::2], lambda t: t[0, 0], lambda t: t[:0]):
        ours = values((6, 4), torch.float32, rank)
        theirs, rest = view(ours).contiguous().clone(), ours.clone()
        dist.all_reduce(theirs, group=gloo)  # which takes the memory of others as it lies
        dist.all_reduce(view(ours))
        assert torch.equal(view(ours), theirs)
        dist.broadcast(theirs, 1, group=gloo)
        dist.broadcast(view(ours), 1)
        assert torch.equal(view(ours), theirs)
        view(ours).copy_(view(rest))
        assert torch.equal(ours, rest)  # nothing beside the view was touched
    pieces = [torch.full((2,), rank + 1.0), torch.full((3, 2), rank + 2.0)]
    dist.all_reduce_coalesced(pieces)
    assert pieces[0].eq(size * (size + 1) / 2).all()
    assert pieces[1].eq(size * (size + 3) / 2).all()
    mean = torch.tensor([float(rank)])
    dist.all_reduce(mean, ops.AVG)
    assert mean.item() == (size - 1) / 2
    # A mean is a sum, divided once: of numbers whose sum overflows it is inf, as with gloo.
    for type in torch.float16, torch.bfloat16, torch.float32, torch.float64:
        large = torch.tensor(60000 if type == torch.float16 else 0.75 * torch.finfo(type).max)
        ours = torch.tensor(
            [large, -large, torch.finfo(type).smallest_normal * 2**-7, rank * rank], dtype=type
        )
        exact = sum(r * r for r in range(size)) / size
        wanted = torch.tensor([torch.inf, -torch.inf, ours[2], exact], dtype=type)
        theirs = ours.clone()
        dist.all_reduce(ours, ops.AVG)
        assert torch.equal(ours, wanted), (ours, wanted)
        if HAS_BACKENDS:  # before, gloo has no mean
            dist.all_reduce(theirs, ops.AVG, group=gloo)
            assert torch.equal(ours, theirs), (ours, theirs)
    large = torch.full((2,), 60000.0, dtype=torch.float16)  # what to do instead
    premultiplied, wide = large.clone(), large.float()
    dist.all_reduce(premultiplied, dist._make_nccl_premul_sum(1 / size))
    dist.all_reduce(wide, ops.AVG)
    assert torch.equal(premultiplied, large) and torch.equal(wide.half(), large)
    scaled = torch.ones(2)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    assert scaled.eq(size / 2).all()
    told = [None] * size
    dist.all_gather_object(told, {"rank": rank, "text": "x" * rank})
    assert [each["rank"] for each in told] == list(range(size))
    dist.barrier()
    if HAS_BACKENDS:
        dist.monitored_barrier()

    expect_error(
        "ringside moves tensors on the CPU", lambda: dist.all_reduce(torch.ones(1, device="meta"))
    )
    expect_error("dense tensors", lambda: dist.all_reduce(torch.eye(2).to_sparse()))
    expect_error(
        "avg is not defined for int32",
        lambda: dist.all_reduce(torch.ones(1, dtype=torch.int32), ops.AVG),
    )
    dist.destroy_process_group()


def test_collectives_have_the_results_of_gloo():
    for size in SIZES:
        for backend in "shm", "tcp":
            on_ranks(collectives, size, backend)


# ---- Several hosts

ON_HOSTS = """
import torch, torch.distributed as dist
dist.init_process_group("ringside")
for ranks in [0, 1, 2], [0, 1], [1, 2], [2, 0]:
    group, value = dist.new_group(ranks), torch.ones(1000)
    if dist.get_rank() in ranks:
        dist.all_reduce(value, group=group)
        assert value[0] == len(ranks), value[0]
dist.destroy_process_group()
"""


def test_hosts_that_know_rank_0_by_other_addresses_meet():
    def on_two_hosts(script):
        hosts = Path(__file__).resolve().parents[1] / "hosts/two_hosts.sh"
        return subprocess.run(
            ["unshare", "--net", "--map-root-user", "bash", hosts, script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    if on_two_hosts("true").returncode:
        pytest.skip("needs network namespaces (unshare --net --map-root-user; veth)")
    known = "10.77.0.1 nodea"
    for on_a, on_b in ("127.0.1.1 nodea", "fd77::9 nodea\\n" + known), ("::1 nodea", known):
        run = on_two_hosts(f"""
            on_a() {{ "$@"; }}
            rank() {{
              $1 "${{knows[@]}}" "$2" env RANK=$3 WORLD_SIZE=3 MASTER_ADDR=nodea MASTER_PORT=29500 \\
                RINGSIDE_BACKEND=tcp {sys.executable} -c "$program"
            }}
            program='{ON_HOSTS}'
            for r in 0 1; do rank on_a '{on_a}' $r & ranks+=($!); done
            rank on_b '{on_b}' 2 & ranks+=($!)
            for each in "${{ranks[@]}}"; do wait $each || failed=1; done
            exit ${{failed:-0}}""")
        assert run.returncode == 0, f"{on_a} | {on_b}\n{run.stdout}"
        assert "ringside" not in run.stdout, run.stdout


# ---- Work and futures


def works(rank, size, folder):
    begin(rank, size, folder)
    total = size * (size + 1) / 2
    tensors = [torch.full((100,), (rank + 1.0) * i) for i in range(20)]
    started = [dist.all_reduce(t, async_op=True) for t in tensors]
    started[-1].wait()
    assert all(work.is_completed() and work.is_success() for work in started)
    assert all(t.eq(total * i).all() for i, t in enumerate(tensors))
    assert started[3].result()[0] is tensors[3]

    # A future, a callback of it, and a call inside of that callback which waits for its own future
    tensor = torch.full((4,), rank + 1.0)

    def again(future):
        value = future.value()[0].clone()
        return dist.all_reduce(value, async_op=True).get_future().wait()[0]

    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.then(again).wait().eq(total * size).all()

    # Nobody keeps the work nor the tensor: the call ends as well. What was copied comes back.
    dist.all_reduce(torch.ones(1000), async_op=True)
    matrix = torch.full((3, 3), 1.0)
    dist.all_reduce(matrix.t(), async_op=True)
    dist.barrier()
    assert matrix.eq(size).all()

    out = [torch.empty(2) for _ in range(size)]
    dist.all_gather(out, torch.full((2,), float(rank)), async_op=True).wait()
    assert all(each.eq(r).all() for r, each in enumerate(out))
    dist.broadcast(tensor, 1, async_op=True).wait()
    dist.destroy_process_group()


def test_works_and_futures():
    for size in SIZES:
        on_ranks(works, size)


def handles(rank, size, folder):
    """A work and a group in the hands of several threads, and after they have ended."""
    begin(rank, size, folder)
    group = dist.new_group()
    failures, over, shared = [], threading.Event(), []

    def ask():
        try:
            while not over.is_set():
                for work in shared[-3:]:
                    if work.is_completed():
                        assert work.is_success() and work.wait()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(100):
        tensor = torch.ones(100)
        work = dist.all_reduce(tensor, async_op=True, group=group)
        shared.append(work)
        future = work.get_future().then(lambda f: f.value()[0][0].item()) if i % 3 == 0 else None
        work.wait()
        assert tensor.eq(size).all() and (future is None or future.wait() == size)
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures

    # A group that is destroyed with calls under way keeps their tensors until they have ended.
    ranks = group.ranks
    works = [dist.all_reduce(torch.ones(300_000), async_op=True, group=group) for _ in range(5)]
    dist.destroy_process_group(group)
    for work in works:
        assert work.is_completed()
        if work.exception():
            assert "destroyed the group before its calls had ended" in str(work.exception())
    expect_error(
        "the process group was destroyed",
        lambda: group.allreduce([torch.ones(1)], dist.AllreduceOptions()),
    )
    expect_error("expected a group, got NULL", lambda: ranks.transport)
    dist.destroy_process_group()


ENDS_IN_A_CALLBACK = """
import sys, time, torch, torch.distributed as dist
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("ringside", init_method=f"file://{folder}/store", rank=rank, world_size=2)
time.sleep(rank)  # rank 0's call has not ended when it asks for the future
work = dist.all_reduce(torch.ones(10), async_op=True)
future = work.get_future().then(lambda f: (time.sleep(1), print("called back", flush=True)))
work.wait()
dist.destroy_process_group()
"""


def test_a_program_may_end_while_a_callback_runs():
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", ENDS_IN_A_CALLBACK, str(rank), folder],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        for process in ranks:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0 and out == "called back\n", (
                process.returncode,
                out,
                err,
            )


def test_handles_in_many_threads():
    for size in SIZES:
        on_ranks(handles, size)


def test_stress():
    """A turn of tools/torch-stress, which runs for half an hour."""
    stress = Path(__file__).resolve().parents[2] / "tools/torch-stress"
    for ranks in "2", "4":
        ended = subprocess.run(
            [sys.executable, stress, "--seconds", "6", "--ranks", ranks],
            capture_output=True,
            text=True,
            timeout=140,
        )
        assert ended.returncode == 0 and "none failed" in ended.stdout, ended.stdout + ended.stderr


def several_types(rank, size, folder):
    """Lists of tensors of several types: each is reduced as what it is."""
    begin(rank, size, folder)
    large = 2**41 // size + 1  # fp32 has 24 bits
    for reduce in (
        lambda tensors: dist.group.WORLD.allreduce_coalesced(tensors).wait(),
        lambda tensors: collected(tensors, [dist.ReduceOp.SUM] * 4),
    ):
        tensors = [
            torch.full((3,), 0.5),
            torch.tensor([large, rank]),
            torch.tensor([[1.5, 2.0]], dtype=torch.bfloat16),
            torch.full((2, 2), 1.0),
        ]
        reduce(tensors)
        assert tensors[0].eq(0.5 * size).all() and tensors[3].eq(size).all()
        assert tensors[1].tolist() == [large * size, size * (size - 1) // 2]
        assert tensors[2].tolist() == [[1.5 * size, 2.0 * size]]
    one, other = torch.full((1,), rank + 1.0), torch.full((1,), rank + 1.0)
    expect_error(
        "expected one operation for all reductions that are coalesced, got "
        "RedOpType.MAX, RedOpType.SUM: coalesce those of each operation apart",
        lambda: collected([one, other], [dist.ReduceOp.SUM, dist.ReduceOp.MAX]),
    )
    assert one.item() == other.item() == rank + 1.0  # nothing was sent
    collected([one, other], [dist.ReduceOp.MAX] * 2)  # and the group works on
    assert one.item() == other.item() == size
    expect_error(
        "ringside moves tensors on the CPU",
        lambda: dist.group.WORLD.allreduce_coalesced(
            [torch.ones(1), torch.empty(1, device="meta")]
        ),
    )
    dist.destroy_process_group()


def collected(tensors, operations):
    with dist._coalescing_manager():
        for tensor, operation in zip(tensors, operations):
            dist.all_reduce(tensor, operation)


def test_lists_of_several_types_and_operations():
    for size in SIZES:
        on_ranks(several_types, size)


def wrong_lists(rank, size, folder):
    """As gloo: a sentence before anything is read or sent."""
    begin(rank, size, folder, seconds=20)
    x = torch.full((4,), float(rank))
    for n in size - 1, size + 1:
        blocks = [torch.empty(4) for _ in range(n)]
        says = f": expected {size} tensors, got {n}"
        expect_error("all_gather" + says, lambda: dist.all_gather(blocks, x))
        expect_error("reduce_scatter" + says, lambda: dist.reduce_scatter(x, blocks))
        expect_error("all_to_all" + says, lambda: dist.all_to_all(blocks, blocks))
        if rank == 0:
            expect_error("gather" + says, lambda: dist.gather(x, blocks, 0))
            expect_error("scatter" + says, lambda: dist.scatter(x, blocks, 0))
    splits = [5, -1] + [0] * (size - 2)
    expect_error(
        f"expected {size} split sizes that add up to the 4 rows of the output tensor, got {splits}",
        lambda: dist.all_to_all_single(torch.empty(4), x, splits, splits),
    )
    # What gloo takes: a parameter that is not contiguous, and an input that only the root writes.
    parameter = torch.nn.Parameter(torch.full((2, 3), float(rank)).t())
    dist.broadcast(parameter, 1)
    assert parameter.eq(1).all()
    dist.reduce(x, 0, op=dist._make_nccl_premul_sum(0.5))
    assert x.eq(size * (size - 1) / 4 if rank == 0 else rank).all()
    dist.destroy_process_group()


def test_lists_of_another_length_than_the_group_are_refused():
    for size in SIZES:
        on_ranks(wrong_lists, size)


def messages(rank, size, folder):
    begin(rank, size, folder, seconds=20)
    right, left = (rank + 1) % size, (rank - 1) % size
    for n in 1, 1_000_000:  # all send first
        dist.send(torch.full((n,), float(rank)), right, tag=n)
        received = torch.empty(n)
        dist.recv(received, left, tag=n)
        assert received.eq(left).all()
    # With tags the order is that of the receiver; from any rank; of memory that is not contiguous
    for tag in 1, 2:
        dist.isend(torch.tensor([10 * rank + tag]), right, tag=tag)
    for tag in 2, 1:
        number = torch.empty(1, dtype=torch.int64)
        assert dist.recv(number, None, tag=tag) == left and number.item() == 10 * left + tag
    matrix = torch.zeros(3, 2)
    ops = [
        dist.P2POp(dist.isend, torch.full((2, 3), float(rank)).t(), right),
        dist.P2POp(dist.irecv, matrix.t(), left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert matrix.eq(left).all()
    # A receive that waits does not hold up a collective.
    late = dist.irecv(number, left, tag=9)
    dist.barrier()
    dist.send(torch.tensor([rank]), right, tag=9)
    late.wait()
    assert number.item() == left
    told = [rank, "x"] if rank == 0 else [None, None]
    dist.broadcast_object_list(told, 0)
    assert told == [0, "x"]
    if rank == 0:
        dist.send_object_list(["of", size], 1)
    if rank == 1:
        got = [None, None]
        assert dist.recv_object_list(got, 0) == 0 and got == ["of", size]
    if rank == 0:
        expect_error(
            "Timed out waiting 20ms for recv",
            lambda: dist.irecv(number, 1, tag=77).wait(timedelta(seconds=0.02)),
        )
    dist.barrier()


def test_messages_between_two_ranks():
    for size in SIZES:
        on_ranks(messages, size)


# ---- Groups


def sub_groups(rank, size, folder):
    begin(rank, size, folder, seconds=20)
    even, odd = [r for r in range(size) if r % 2 == 0], [r for r in range(size) if r % 2]
    groups = [dist.new_group(ranks) for ranks in (even, odd)]
    mine = groups[rank % 2]
    ranks = (even, odd)[rank % 2]
    tensor = torch.tensor([rank])
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == sum(ranks) and mine.rank() == ranks.index(rank)
    dist.all_reduce(tensor)  # both at the same time as the whole
    assert tensor.item() == len(even) * sum(even) + len(odd) * sum(odd)
    assert "odd" not in mine.group_name and mine.size() == len(ranks)
    alone = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(tensor, group=alone)
    dist.destroy_process_group(alone)
    expect_error("the process group was destroyed", lambda: alone.allreduce([tensor]))

    dist.destroy_process_group()
    expect_error("the process group was destroyed", lambda: mine.allreduce([tensor]))
    for _ in range(2):  # the same store, under the same name
        begin(rank, size, folder)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == size
        dist.destroy_process_group()


def test_groups_of_some_ranks_and_groups_again():
    for size in SIZES:
        on_ranks(sub_groups, size)


# ---- What goes wrong


def killed(rank, size, folder):
    begin(rank, size, folder)
    last = dist.new_group([0, size - 1])
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(10), async_op=True)
    error = expect_error(f"rank {size - 1} is gone", work.wait)
    assert isinstance(error, dist.DistBackendError)
    expect_error(f"rank {size - 1} is gone", lambda: dist.barrier())
    if rank == 0:  # a sub-group counts its ranks from 0, and names them by their numbers in the job
        expect_error(f"rank {size - 1} is gone", lambda: dist.all_reduce(torch.ones(1), group=last))


def killed_with_children(rank, size, folder, backend):
    """The last rank reads its data by forked workers, and is killed while they live on."""
    os.environ["RINGSIDE_BACKEND"] = backend
    begin(rank, size, folder)
    early = dist.new_group()
    pending = dist.irecv(torch.ones(1), (rank + 1) % size)
    data = torch.utils.data.DataLoader(
        range(100),
        num_workers=2,
        multiprocessing_context="fork",
        worker_init_fn=uses_the_groups_of(rank, early, pending),
    )
    batches = iter(data)
    assert next(batches).item() == 0  # workers that could use a group of the rank have failed
    late = dist.new_group()  # its sockets, too, close with the rank: these workers have none
    again = iter(
        torch.utils.data.DataLoader(
            range(9), num_workers=1, persistent_workers=True, multiprocessing_context="fork"
        )
    )
    assert next(again).item() == 0
    for group in None, early, late:
        total = torch.ones(3)
        dist.all_reduce(total, group=group)
        assert (total == size).all()
    if rank == size - 1:
        for worker in batches._workers + again._workers:
            os.kill(worker.pid, signal.SIGSTOP)  # they would end when they miss their parent
        with open(f"{folder}/workers", "w") as file:
            file.write(" ".join(str(worker.pid) for worker in batches._workers + again._workers))
        os.rename(f"{folder}/workers", f"{folder}/stopped")
        os.kill(os.getpid(), signal.SIGKILL)
    while not os.path.exists(f"{folder}/stopped"):
        time.sleep(0.01)
    start = time.monotonic()
    try:
        for group in None, early, late:
            expect_error(
                f"rank {size - 1} is gone", lambda: dist.all_reduce(torch.ones(1000), group=group)
            )
        assert time.monotonic() - start < 5, time.monotonic() - start
    finally:
        if rank == 0:
            with open(f"{folder}/stopped") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)


def uses_the_groups_of(rank, group, pending):
    def worker_init(_):
        refusal = f"process {os.getppid()} made this group, and process {os.getpid()} is its child"
        expect_error(refusal, lambda: dist.all_reduce(torch.ones(1)))
        expect_error(refusal, lambda: dist.all_reduce(torch.ones(1), group=group, async_op=True))
        expect_error(refusal, lambda: dist.send(torch.ones(1), 1 - min(rank, 1)))
        expect_error(refusal, pending.wait)
        dist.destroy_process_group()

    return worker_init


def killed_under_ddp(rank, size, folder):
    begin(rank, size, folder)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    model(torch.ones(2, 10)).sum().backward()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss = model(torch.ones(2, 10)).sum()
    expect_error(f"rank {size - 1} is gone", loss.backward)


def late(rank, size, folder):
    begin(rank, size, folder, seconds=20)
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        expect_error(
            "Timed out waiting 50ms for all_reduce of group",
            lambda: work.wait(timedelta(seconds=0.05)),
        )
        open(f"{folder}/go", "w").close()
        work.wait()  # the call ran on
    else:
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.01)
        dist.all_reduce(torch.ones(1))
    dist.barrier()
    if rank == 0 and HAS_BACKENDS:
        expect_error(
            "Rank 1 failed to pass monitoredBarrier in 100 ms",
            lambda: dist.monitored_barrier(timeout=timedelta(seconds=0.1)),
        )
    dist.barrier()
    short = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 0:  # rank 0 calls alone: the group's timeout ends it
        expect_error(
            "Timed out waiting for it", lambda: dist.all_reduce(torch.ones(100000), group=short)
        )
    # A rank may still be in the barrier when the others disagree behind it.
    expect_error(
        "all_reduce of 3 fp32",
        lambda: (dist.barrier(), dist.all_reduce(torch.ones(3 if rank == 0 else 4))),
    )


def never_comes(rank, size, folder):
    if rank == 1:
        return
    expect_error("rank 1 of", lambda: begin(rank, size, folder, seconds=1))


def interrupted(rank, size, folder, is_async):
    begin(rank, size, folder)
    dist.barrier()
    tensor = torch.ones(1)
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            dist.all_reduce(tensor, async_op=True).wait() if is_async else dist.all_reduce(tensor)
            raise AssertionError("no KeyboardInterrupt came")
        except KeyboardInterrupt:
            pass
        if is_async:
            dist.group.WORLD.abort()
    else:
        expect_error(
            "rank 0 aborted" if is_async else "interrupted by the user",
            lambda: (
                [dist.all_reduce(tensor, group=None) for _ in range(2)]
                if wait_for_gone(rank)
                else None
            ),
        )


def wait_for_gone(rank):
    time.sleep(1)
    return True


def test_a_killed_rank_is_named():
    for size in SIZES:
        on_ranks(killed, size, dead=(size - 1,))
    on_ranks(killed_under_ddp, 3, dead=(2,))


def test_a_killed_rank_with_forked_workers_is_named():
    for size in 2, 3:
        for backend in "shm", "tcp":
            on_ranks(killed_with_children, size, backend, dead=(size - 1,))


def test_timeouts_and_ranks_that_disagree():
    for size in SIZES:
        on_ranks(late, size)
    on_ranks(never_comes, 3)


def test_ctrl_c_arrives():
    for is_async in False, True:
        on_ranks(interrupted, 2, is_async)


# ---- What stands on top: meshes, FSDP2, DTensor, functional collectives


def on_top(rank, size, folder):
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    begin(rank, size, folder)
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
    total = functional.all_reduce(torch.full((3,), rank + 1.0), "sum", mesh)
    assert (total + 0).eq(size * (size + 1) / 2).all()
    whole = torch.arange(24.0).reshape(8, 3)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert sharded.full_tensor().equal(whole) and sharded.sum().full_tensor() == whole.sum()
    assert sharded.redistribute(mesh, [Shard(1)]).full_tensor().equal(whole)
    assert sharded.redistribute(mesh, [Replicate()]).to_local().equal(whole)

    def net():
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))

    one, many = net(), net()
    for layer in (many[0], many[2], many):
        fully_shard(layer, mesh=mesh)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (one, many)]
    data = torch.Generator().manual_seed(1)
    for _ in range(3):
        batch = torch.randn(4 * size, 16, generator=data)
        for each, rows, optimizer in zip(
            (one, many), (batch, batch[4 * rank : 4 * rank + 4]), optimizers
        ):
            optimizer.zero_grad()
            each(rows).square().mean().backward()
            optimizer.step()
    for a, b in zip(one.parameters(), many.parameters()):
        torch.testing.assert_close(a.detach(), b.full_tensor().detach(), rtol=0, atol=1e-6)
    dist.destroy_process_group()


def test_fsdp2_dtensor_meshes_and_functional_collectives():

    for size in SIZES:
        on_ranks(on_top, size)


# What three steps leave in the parameters, with each way to train that torch has on top of groups.
def trained(rank, size, folder, backend):
    from torch.distributed.algorithms.join import Join
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    begin(rank, size, folder, backend, name=backend)
    shards_and_copies = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "fsdp"))
    cpu = torch.device("cpu")
    data = torch.Generator().manual_seed(rank)

    def net():
        torch.manual_seed(5)
        return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(size)))

    def steps(module, count=3):
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(count):
            optimizer.zero_grad()
            module(torch.randn(4, 8, generator=data)).square().mean().backward()
            optimizer.step()
        return module

    results = {}
    for name, options in {
        "FSDP1": {},
        "FSDP1, hybrid": {
            "device_mesh": shards_and_copies,
            "sharding_strategy": ShardingStrategy.HYBRID_SHARD,
        },
    }.items():
        module = steps(FullyShardedDataParallel(net(), device_id=cpu, **options))
        with FullyShardedDataParallel.summon_full_params(module):
            results[name] = [p.detach().clone() for p in module.parameters()]
    module = net()
    for layer in (*module, module):
        fully_shard(layer, mesh=shards_and_copies)
    results["HSDP"] = [p.full_tensor().detach() for p in steps(module).parameters()]
    module = DistributedDataParallel(net())
    with Join([module]):
        steps(module, 2 + rank)
    results["Join"] = [p.detach() for p in module.parameters()]
    stage = PipelineStage(net()[rank], rank, size, cpu)
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, target: (y - target).square().mean())
    batch, target = torch.ones(8, 8), torch.zeros(8, 8)
    schedule.step(*[batch] * (rank == 0), **{"target": target} if rank == size - 1 else {})
    results["pipelining"] = [p.grad for p in stage.submod.parameters()]
    dist.destroy_process_group()
    return results


def trained_over_both(rank, size, folder):
    expected, seen = (trained(rank, size, folder, backend) for backend in ("gloo", "ringside"))
    for name, tensors in expected.items():
        for a, b in zip(tensors, seen[name], strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=1e-6, msg=lambda text: f"{name}: {text}")


def test_fsdp1_hybrid_shards_join_and_pipelining():

    on_ranks(trained_over_both, 4)


# ---- RINGSIDE_AS_GLOO, and an algorithm of a file


def as_gloo(rank, size, folder):
    from ringside.torch_backend import use_for_gloo
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.distributed_c10d import init_process_group  # a name of before

    use_for_gloo()

    def mesh(**options):
        return init_device_mesh("cpu", (size,), mesh_dim_names=("dp",), **options).get_group()

    begins = [
        functools.partial(begin, rank, size, folder, name)
        for name in (
            "gloo",
            "GLOO",
            "Gloo",
            dist.Backend.GLOO,
            "cpu:gloo",
            "CPU:Gloo",
            "cpu:gloo,cuda:nccl",
            None,
        )
    ]
    begins.append(
        lambda: init_process_group(
            "gloo", init_method=f"file://{folder}/named", rank=rank, world_size=size
        )
    )
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="localhost")
    os.environ["MASTER_PORT"] = str(29600 + os.getppid() % 5000)
    begins.append(mesh)  # makes the default group, too
    for start in begins:
        start()
        groups = [None, dist.new_group(backend="GLOO"), dist.new_group(), mesh()]
        if HAS_BACKENDS:
            groups.append(mesh(backend_override={"dp": "gloo"}))
        for group in groups:
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == size
            assert (group or dist.group.WORLD).getBackendName() == "ringside", (start, group)
        dist.destroy_process_group()


def test_a_program_that_asks_for_gloo_gets_ringside():
    on_ranks(as_gloo, 2)


def test_a_group_that_runs_over_gloo_all_the_same_is_told():
    program = """
import sys, torch, torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers "fake"
if sys.argv[1] == "beside":
    torch.cuda.is_available = lambda: True  # so the group keeps its other backend
    dist.init_process_group("cpu:gloo,cuda:fake", store=dist.HashStore(), rank=0, world_size=1)
    print(type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__)
if sys.argv[1] == "ours":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""

    def run(how):
        ended = subprocess.run(
            [sys.executable, "-c", program, how],
            capture_output=True,
            text=True,
            env={**os.environ, "RINGSIDE_AS_GLOO": "1"},
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr
        return ended

    beside = run("beside")
    assert "ProcessGroupGloo" in beside.stdout
    assert (
        "ringside: RINGSIDE_AS_GLOO=1 is set, but this rank made 1 group over gloo. A group that "
        "also has a backend for the GPU is not replaced: give the CPU a group of its own, "
        'new_group(backend="ringside")'
    ) in beside.stderr, beside.stderr
    assert "RINGSIDE_AS_GLOO" not in run("ours").stderr


def exchange(peer):
    return {
        "send": {"to": peer, "first": 0, "count": 1},
        "receive": {"from": peer, "first": 0, "count": 1, "action": "add"},
    }


def own_algorithm(rank, size, folder):
    # The algorithm of docs/your_own.md.
    schedules = [{"chunks": 1, "steps": [exchange(r ^ 1), exchange(r ^ 2)]} for r in range(4)]
    file = f"{folder}/my{rank}.json"
    with open(file, "w") as out:
        json.dump({"collective": "all_reduce", "schedules": schedules}, out)
    os.environ["RINGSIDE_ALGORITHM"] = file
    begin(rank, size, folder)
    assert dist.group.WORLD.ranks.algorithm("all_reduce", 100, 0) == f"my{rank}.json"
    ours, theirs = train(None, rank), train(dist.new_group(backend="gloo"), rank)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)
    dist.destroy_process_group()


def test_ddp_runs_over_an_algorithm_of_a_file():

    on_ranks(own_algorithm, 4)


def test_the_notebook_trains_over_its_own_ring():
    last = run_notebook(NOTEBOOK)[-1].splitlines()
    assert [line.split(", ")[0] for line in last] == [f"rank {r}: my_ring.json" for r in range(2)]
    weights = [float(line.split()[-1]) for line in last]
    assert weights[0] == weights[1] and abs(weights[0] - 1) < 0.1  # the loss wants 1


def sums_of_two_lengths(rank, size, folder, backend, differ):
    """The same numbers by themselves and in front of others; and once more."""
    os.environ["RINGSIDE_ORDER"] = "fixed"
    begin(rank, size, folder, backend=backend)
    numbers = torch.Generator().manual_seed(rank)
    scale = 2.0 ** torch.randint(0, 12, (40000,), generator=numbers)
    values = torch.randn(40000, generator=numbers) * scale
    short, whole, again = values[:400].clone(), values.clone(), values.clone()
    for each in (short, whole, again):
        dist.all_reduce(each)
    assert torch.equal(whole, again)
    assert torch.equal(short, whole[:400]) != differ
    dist.destroy_process_group()


def test_the_bits_of_gloo_depend_on_the_length_and_those_of_a_fixed_order_do_not():
    for size in (3, 4):
        on_ranks(sums_of_two_lengths, size, "gloo", True)
        on_ranks(sums_of_two_lengths, size, "ringside", False)
