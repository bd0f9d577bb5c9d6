"""The longest path through a step: held against the pipeline's own proof in the program, the
account's formulas, and cases that can be computed by hand.
"""

import json
import time
from dataclasses import replace

from ringside.library import RingsideError
from ringside.planning.accounting import account
from ringside.planning.longest_path import Replica, Walk
from ringside.planning.machine import Level, find_machine
from ringside.planning.mesh import parse_mesh
from ringside.planning.model import Model, find_model
from ringside.planning.network import MeshRanks, Network, RankGroup, pair
from ringside.planning.pipeline import RECEIVES, REDUCE, in_order, lower, make_schedule
from ringside.planning.plan import Plan, Recomputation, pipeline_part
from ringside.planning.recorded_step import RankTrace, Span, stages_of_trace, step_parts
from ringside.planning.replicas import factors_of, times_of
from ringside.planning.schedules import GENERATORS, UNLIMITED
from ringside.planning.simulation import simulate
from ringside.planning.stage_load import Calls, StageLoad
from ringside.planning.stragglers import Stragglers, random_uniform
from ringside.program import run

# random_uniform() in C++.
RANDOM_NUMBERS = [0.13870941014555427, 0.10423983534469128, 0.31919209499832013]


def near(a, b, epsilon=1e-12):
    assert abs(a - b) <= epsilon * max(abs(a), abs(b)), (a, b)


def refusal(*arguments, **options):
    try:
        simulate(*arguments, **options)
    except RingsideError as error:
        return str(error)
    raise AssertionError("is not refused")


def blocks_only(layers=24):
    """Blocks of two matrices and nothing else, so that all stages take the same time."""
    return Model(
        "blocks", "", "feed_forward", d_model=1024, d_ff=4096, layers=layers, sequence=1024
    )


def machine_with_free_messages():
    """Messages between stages take no time; all other communication does."""
    return replace(
        find_machine("h100"),
        levels=(Level("inner", 8, 4e11, 3e-6), Level("outer", 4096, 1e30, 0.0)),
    )


def plan_on(mesh, schedule="1f1b", m=8, **more):
    chunks = 3 if schedule == "interleaved" else 1
    return Plan(parse_mesh(mesh), schedule, chunks, micro_batches=m, **{"sequence": 1024, **more})


def path_of(lowered, replicas, stragglers=Stragglers()):
    return Walk(lowered, in_order(lowered), replicas, factors_of(replicas, stragglers)).run()


def call(when, count, seconds, hidden=0.0):
    """`count` calls of a stage, and the seconds of each."""
    return Calls("", when, "", count, 0.0, hidden), seconds


def uniform(
    name, p, v, m, forward, backward, weight, calls=(), overlap=1.0, blocks=1.0, each=False, count=1
):
    """A lowered schedule, and replicas whose stages all take these durations."""
    lowered = lower(make_schedule(name, p, v, m))
    computing = {"F": forward, "I": backward - weight, "W": weight}
    load = StageLoad(computing, blocks, 0.0, [one for one, _ in calls])
    times = times_of(load, [seconds for _, seconds in calls], overlap, each)
    return lowered, [
        Replica(i, (times,) * lowered.stages, [RankGroup(rank + i * p) for rank in range(p)])
        for i in range(count)
    ]


def exposed_along(s, axis):
    return dict(s.exposed)[axis]


def sent_along(s, axis):
    return sum(load.sent_bytes for load in s.loads if load.axis == axis)


def accounted_along(counted, axis):
    return sum(each.bytes for each in counted.traffic if each.axis == axis)


def test_for_every_schedule_spans_are_those_of_the_pipelines_own_proof():
    cases = 0
    for name, generator in GENERATORS.items():
        for p, m in ((1, 4), (2, 2), (3, 12), (4, 8), (8, 16)):
            v = 4 if generator.most == UNLIMITED and p % 2 == 0 else generator.default
            # The last one has long messages: a lane carries one at a time.
            for durations in ((1, 2, 1, 0.25), (0.7, 1.9, 0.6, 0.125), (1, 2, 1, 3)):
                words = [
                    word
                    for option, value in zip(
                        (
                            "--forward",
                            "--backward",
                            "--weight",
                            "--message",
                            "-n",
                            "--micro-batches",
                            "--stages-per-rank",
                        ),
                        (*durations, p, m, v),
                    )
                    for word in (option, str(value))
                ]
                proved = json.loads(run(["step", "pipeline", name, *words, "--json", "-"]).stdout)
                messages = [call(send, 1, durations[3]) for send in ("SEND_F", "SEND_B")]
                lowered, replicas = uniform(name, p, v, m, *durations[:3], messages)
                timeline = path_of(lowered, replicas)
                near(timeline.computed, proved["step"])
                assert abs(timeline.bubble(replicas) - proved["bubble"]) < 1e-12
                for rank, actions in enumerate(lowered.actions):
                    for i, action in enumerate(actions):
                        said = proved["of_rank"][rank]["actions"][i]
                        if action.kind != REDUCE:
                            near(timeline.starts[rank][i][0], said["start"])
                        if action.kind not in (REDUCE, *RECEIVES):
                            near(timeline.ends[rank][i][0], said["end"])
                cases += 1
    assert cases == 8 * 5 * 3


def test_the_longest_path_is_the_account_where_both_apply():
    machine = machine_with_free_messages()

    def agree(plan, on=machine):
        formulas, path = account(blocks_only(), plan, on), simulate(blocks_only(), plan, on)
        near(path.step, formulas.step_seconds)
        near(path.utilization, formulas.utilization)
        return formulas, path

    agree(plan_on("tp=8"))
    agree(plan_on("fsdp=8"))  # exposed: 400 GB/s are little for one short sequence
    agree(plan_on("pp=4,fsdp=64,tp=8"))
    for schedule in ("gpipe", "1f1b", "interleaved"):
        for mesh in ("pp=2,tp=8", "pp=4,tp=8", "pp=8,tp=8"):
            formulas, path = agree(plan_on(mesh, schedule))
            near(path.bubble, formulas.bubble_share)
    # The formula of zb_h1 takes F = I = W: without calls in F and I, and sums of gradients in W.
    wide = replace(
        machine,
        memory_bandwidth=1e30,
        levels=(replace(machine.levels[0], group=1, bytes_per_second=1.0), machine.levels[1]),
    )
    agree(plan_on("pp=8", "zb_h1"), wide)
    for recompute in ("none", "selective", "full"):
        blocks = 1 if recompute == "full" else 0
        agree(plan_on("pp=4,tp=8", recompute=Recomputation(recompute, blocks)))


def test_gradients_are_reduced_in_buckets_while_backward_runs():
    # Two ranks, 4 buckets, backward from 3 to 7: ready at 4, 5, 6 and 7.
    def end_of(bucket, overlap):
        calls = [call(REDUCE, 4, bucket)]
        return path_of(*uniform("gpipe", 1, 1, 1, 3, 4, 2, calls, overlap, count=2)).reduced

    assert end_of(0, 1) == 7
    assert end_of(0.5, 1) == 7.5  # each is done before the next is ready
    assert end_of(1, 1) == 8
    assert end_of(2, 1) == 4 + 8  # the network is the bottleneck from the first bucket on
    assert end_of(0.5, 0) == 7 + 2  # nothing overlaps
    assert end_of(0.5, 0.5) == 7 + 1


def test_what_zero_2_does_not_hide_is_no_bubble():
    calls = [call(REDUCE, 1, 0.5)]
    lowered, replicas = uniform("gpipe", 1, 1, 2, 1, 2, 1, calls, 0.0, each=True, count=2)
    timeline = path_of(lowered, replicas)
    assert timeline.computed == 6.5  # F0 F1 B0, half a second, B1
    assert timeline.reduced == 7
    assert abs(timeline.bubble(replicas)) < 1e-12


def test_a_reduction_waits_for_the_slowest_replica_of_its_own_group():
    lowered, replicas = uniform("gpipe", 1, 1, 2, 1, 2, 1, [call(REDUCE, 1, 0.5)], count=3)
    for i, replica in enumerate(replicas):
        replica.shard_group = i
    replicas[2].reduce_group = 1
    timeline = path_of(lowered, replicas, Stragglers({1: 1.5}))
    assert timeline.computed == 9
    assert timeline.ends[0][-1] == [9.5, 9.5, 6.5]
    assert timeline.reduced == 9.5


def test_sharded_parameters_what_computing_does_not_hide_and_replicas_in_step():
    # Two units: a block hides the second gather, and the first reduction. It computes 1 s in
    # forward, and 1 s for each kind of call in backward.
    calls = [call("F", 2, 1.5, 1), call("I", 2, 0.5, 1), call("W", 2, 1.25, 1)]

    def sharded(overlap, count=1):
        return uniform("gpipe", 1, 1, 1, 2, 4, 2, calls, overlap, blocks=2.0, count=count)

    assert path_of(*sharded(1.0)).computed == 2 + (3 - 1) + 4 + (1 - 0.5) + (2.5 - 1)
    assert path_of(*sharded(0.0)).computed == 2 + 3 + 4 + 1 + 2.5
    lowered, replicas = sharded(1.0, 2)
    timeline = path_of(lowered, replicas, Stragglers({1: 2.0}))
    assert timeline.ends[0][0][0] == 4 + 2
    assert timeline.ends[0][1][0] == 6 + 8 + 0.5 + 1.5


def test_context_parallel_carries_what_the_account_counts_and_hides_behind_attention():
    model, h100 = find_model("llama3-8b"), find_machine("h100")
    for exchange in ("all_gather", "ring", "ulysses"):
        for mesh in ("cp=2", "cp=4,tp=2", "pp=2,dp=2,cp=2,tp=2", "fsdp=2,cp=4"):
            for recompute in (Recomputation(), Recomputation("full", 1)):
                plan = plan_on(mesh, m=4, sequence=8192, exchange=exchange, recompute=recompute)
                s, counted = simulate(model, plan, h100), account(model, plan, h100)
                near(sent_along(s, "cp"), accounted_along(counted, "cp"), 1e-9)
                # Attention over 8,192 tokens is longer than the messages of a ring over NVLink.
                if exchange == "ring":
                    assert exposed_along(s, "cp") < 0.2 * counted.step_seconds
                    # Without overlap a ring is waited for, too.
                    assert simulate(model, plan, replace(h100, overlap=0.0)).step > s.step
                else:
                    assert exposed_along(s, "cp") > 0
    assert refusal(model, plan_on("cp=2,dp=2", sequence=8192), h100) == (
        "the mesh cp=2,dp=2 is not simulated: with cp the axes are expected in the order pp, dp, "
        "fsdp, cp, tp, or with pp before cp"
    )
    # With pp between dp and cp a ring of gradients has as many ranks in a server.
    for mesh, stride in (("dp=4,pp=2,cp=2,tp=2", 4), ("pp=2,dp=4,cp=2,tp=2", 2)):
        assert MeshRanks(plan_on(mesh)).group("dp", 0, 0).stride == stride


def test_expert_parallel_carries_what_the_account_counts_and_waits_for_the_busiest_rank():
    model, h100 = find_model("mixtral-8x7b"), find_machine("h100")
    for mesh in ("ep=8", "dp=2,ep=4", "pp=2,ep=4,tp=2", "fsdp=2,ep=4", "ep=8,dp=2"):
        for imbalance in (1.0, 1.5):
            plan = plan_on(mesh, m=4, sequence=4096, imbalance=imbalance)
            s = simulate(model, plan, h100)
            near(sent_along(s, "ep"), accounted_along(account(model, plan, h100), "ep"), 1e-9)
            assert exposed_along(s, "ep") > 0
    # 4,096 tokens of a rank, 2 experts for each, 4,096 numbers of 2 bytes; 8 counts of 8 bytes.
    plan, network = plan_on("ep=4", m=3, sequence=4096), Network(h100)

    def all_to_all(size):
        return network.seconds("all_to_all", RankGroup(0, 4, 1), size)

    rows, tokens, d = 4096.0 * 2 * 4096 * 2, 3 * 32, 4096.0
    calls = tokens * (4 * all_to_all(rows) + all_to_all(8.0 * 8))
    # All but the experts: q and output, k and v, the router and two norms; embedding, head, norm.
    shared = 32 * (2 * d * d + 2 * d * 1024 + 8 * d + 2 * d) + 2 * 32000 * d + d
    average = network.seconds("all_reduce", RankGroup(0, 4, 1), 2 * shared)
    silent = replace(
        h100, levels=(replace(h100.levels[0], latency=0.0, bytes_per_second=1e30), *h100.levels[1:])
    )
    s, without = simulate(model, plan, h100), simulate(model, plan, silent).step
    near(s.step - without, calls + average, 1e-9)
    near(exposed_along(s, "ep"), calls + average, 1e-9)
    # The busiest rank has half as many rows again: of 3 matrices of an expert, there and back.
    flops = tokens * 3 * 0.5 * 2 * 4096 * 2 * 3 * d * 14336
    more = flops / (h100.peak * h100.matmul_efficiency_at(4096))
    near(simulate(model, replace(plan, imbalance=1.5), silent).step - without, more, 1e-9)
    # The other ranks of ep wait for a slow one in every block.
    plan = plan_on("dp=2,ep=4", m=3, sequence=4096)
    undisturbed = simulate(model, plan, silent).step
    for fold in (True, False):
        slow = simulate(model, plan, silent, Stragglers({3: 2.0}), fold)
        near(slow.step, 2 * undisturbed, 1e-6)
        ends = slow.timeline.ends[0][0]
        assert ends[0] == ends[3] > ends[4]


def test_the_links_carry_the_bytes_that_the_account_counts():
    machine = machine_with_free_messages()

    def agree(model, plan):
        s, formulas = simulate(model, plan, machine), account(model, plan, machine)
        p = plan.mesh.size("pp")
        for axis in plan.mesh.axes():
            counted, carried = accounted_along(formulas, axis), sent_along(s, axis)
            # The links show the rank that sends most, the account the one that computes most.
            if axis == "pp":
                counted *= (
                    pipeline_part(model, plan, p // 2).messages
                    / pipeline_part(model, plan, formulas.busiest).messages
                )
            if p > 1 and plan.shards_parameters and axis == "fsdp":
                # The links do not know of units that stay whole from one action to the next.
                assert counted <= carried < 1.05 * counted
            else:
                # Nor that the last norm is gathered again, without the head.
                near(carried, counted, 1e-5 if plan.shards_parameters else 1e-12)

    for mesh in ("pp=4,dp=2,tp=2", "pp=2,fsdp=4", "dp=4,tp=8"):
        agree(blocks_only(), plan_on(mesh))
    for zero in range(4):  # one stage with embedding and head
        for sequence_parallel in (False, True):
            agree(
                find_model("llama3-8b"),
                plan_on("dp=4,tp=8", zero=zero, sequence_parallel=sequence_parallel),
            )


def test_all_micro_batches_but_the_first_add_their_gradients_to_a_sum():
    machine = machine_with_free_messages()
    bandwidth = machine.memory_bandwidth * machine.memory_efficiency
    for gradients in (2.0, 4.0):
        plan = plan_on("", m=1)
        plan = replace(plan, types=replace(plan.types, gradients=gradients))
        one = simulate(blocks_only(), plan, machine)
        # Each reads a gradient in 16 bits and the sum, and writes the sum.
        sums = 3 * 24.0 * 2 * 1024 * 4096 * (2 + 2 * gradients) / bandwidth
        expected = 4 * (one.step - one.optimizer) + sums + one.optimizer
        for fused, step in ((False, expected), (True, expected - sums)):
            four = replace(plan, micro_batches=4, fused_gradients=fused)
            near(simulate(blocks_only(), four, machine).step, step)
            near(account(blocks_only(), four, machine).step_seconds, step)


def test_a_slow_rank_slows_its_unit_its_pipeline_and_all_who_wait_for_its_gradients():
    machine, plan = machine_with_free_messages(), plan_on("pp=2,dp=2,tp=2", m=4)
    undisturbed = simulate(blocks_only(), plan, machine).step
    for rank in (0, 3, 5, 7):
        slow = simulate(blocks_only(), plan, machine, Stragglers({rank: 1.5}))
        assert slow.undisturbed == undisturbed
        assert 1.1 * undisturbed < slow.step < 1.5 * undisturbed
        assert len(slow.replicas) == 2  # that of the slow rank, and the other one
        every = simulate(blocks_only(), plan, machine, Stragglers({rank: 1.5}), fold=False)
        assert every.step == slow.step
    # One replica of four is slow: the other three weigh as much as they are.
    folded, every = (
        simulate(blocks_only(), plan_on("pp=2,dp=4", m=4), machine, Stragglers({0: 1.5}), fold)
        for fold in (True, False)
    )
    assert [replica.count for replica in folded.replicas] == [1, 3]
    near(folded.bubble, every.bubble)
    # Replicas that differ in the servers that their messages cross also differ in their slow ranks
    # where messages take no time.
    plan_of_servers = plan_on("dp=16,pp=3", "zb_v", m=1, zero=2)
    folded, every = (
        simulate(find_model("llama3-8b"), plan_of_servers, find_machine("llama3"), slow, fold)
        for slow in (Stragglers({20: 1.1}),)
        for fold in (True, False)
    )
    assert len(folded.replicas) == 4 and len(every.replicas) == 16
    assert folded.exposed == every.exposed
    # Alone, a slow rank takes as much longer for everything, also for the update.
    alone = simulate(blocks_only(), plan_on(""), machine, Stragglers({0: 1.5}))
    near(alone.step, 1.5 * alone.undisturbed)
    all_slow = Stragglers(dict.fromkeys(range(8), 1.5))
    assert len(simulate(blocks_only(), plan, machine, all_slow).replicas) == 1
    assert refusal(blocks_only(), plan, machine, Stragglers({8: 1.5})) == (
        "rank 8 cannot be slow: the mesh pp=2,dp=2,tp=2 has the ranks 0 to 7"
    )


def test_jitter_is_reproducible_bounded_and_depends_on_its_seed():
    # The numbers of base/random.hpp.
    assert [
        random_uniform(seed, stream, counter)
        for seed, stream, counter in ((0, 0, 0), (7, 3, 11), (2**64 - 1, 16383, 64))
    ] == RANDOM_NUMBERS
    machine, plan = machine_with_free_messages(), plan_on("pp=4,dp=4")
    undisturbed = simulate(blocks_only(), plan, machine).step

    def step(seed, slow=()):
        return simulate(blocks_only(), plan, machine, Stragglers(dict(slow), 0.2, seed)).step

    assert step(1) == step(1) != step(2)
    # The mean of a computation is 1.1, and a rank waits for others who are late.
    assert 1.1 * undisturbed < step(1) < 1.2 * undisturbed
    assert step(1, {0: 1.0}.items()) == step(1)  # the general way, and that for many ranks


def test_folded_replicas_give_the_bits_of_every_replica():
    model = find_model("llama3-8b")
    for mesh in ("pp=4,dp=8,tp=8", "dp=4,fsdp=8", "pp=2,fsdp=16,tp=4", "fsdp=8,pp=4"):
        for name in ("h100", "llama3", "a100"):
            machine, plan = find_machine(name), plan_on(mesh)
            folded, every = (simulate(model, plan, machine, fold=fold) for fold in (True, False))
            assert folded.step == every.step
            assert abs(folded.bubble - every.bubble) < 1e-12
            assert len(folded.replicas) == 1
            assert len(every.replicas) == plan.mesh.data_ranks()


def test_a_group_communicates_over_the_innermost_level_that_joins_its_ranks():
    machine = find_machine("llama3")
    network = Network(machine)
    for group, level in (((0, 8, 1), 0), ((4, 8, 1), 1), ((0, 384, 8), 1), ((8, 384, 8), 2)):
        assert network.level_of(RankGroup(*group)) == level
    near(network.seconds("point_to_point", pair(0, 1), 450e9), 3e-6 + 1 / 0.82)
    near(network.seconds("point_to_point", pair(9, 1), 45e9), 8e-6 + 1)
    near(network.seconds("point_to_point", pair(3071, 3072), 45e9), 12e-6 + 7)
    first = network.seconds("all_gather", RankGroup(0, 8, 1), 8e6)
    near(first, 7 * (3e-6 + 1e6 / 369e9))
    assert network.seconds("all_gather", RankGroup(16, 8, 1), 8e6) == first
    try:
        network.level_of(RankGroup(0, 2, 24576))
        raise AssertionError
    except RingsideError as error:
        assert str(error) == (
            "ranks 0 and 24576 are in different groups of RoCE, pods, the widest level of llama3"
        )


def test_replicas_differ_where_one_of_their_messages_crosses_servers():
    # Of the rings along cp, whose ranks are 3 apart, one has its first hop inside a server of 8.
    plan = plan_on("fsdp=3,cp=4,pp=3", sequence=512)
    assert len(simulate(find_model("llama3-8b"), plan, find_machine("a100")).replicas) == 2


def test_a_stage_may_have_the_head_alone_and_one_rank_has_one_stage():
    model, h100 = replace(find_model("llama3-8b"), layers=6), find_machine("h100")
    assert simulate(model, plan_on("pp=4,fsdp=4,tp=2", "zb_v"), h100).step > 0
    alone, usual = (simulate(model, plan_on("dp=2", name), h100) for name in ("zb_v", "1f1b"))
    assert alone.step == usual.step


def test_another_topology_another_time():
    model, plan, machine = find_model("llama3-70b"), plan_on("pp=4,dp=8,tp=8"), find_machine("h100")
    nvlink, cards = machine.levels
    narrow = replace(machine, levels=(nvlink, replace(cards, bytes_per_second=12.5e9)))
    slower = simulate(model, plan, narrow)
    assert slower.step > simulate(model, plan, machine).step
    adding = replace(narrow, levels=(replace(nvlink, in_network_efficiency=0.61), narrow.levels[1]))
    assert simulate(model, plan, adding).step < slower.step
    # Tensor parallel across servers.
    across = simulate(model, plan_on("tp=8,dp=8,pp=4"), narrow)
    assert exposed_along(across, "tp") > 5 * exposed_along(slower, "tp")


def test_a_trace_shows_what_each_stage_computes_without_its_waits():
    # Two steps of a rank with two stages: forward of 3 s, 1 s of which it waits; an update of 4 s.
    trace = RankTrace(0)
    for begin in (0.0, 20.0):
        trace.spans.append(Span("phase", f"step {begin}", "", begin, begin + 18))
        for stage, at in ((0, begin), (1, begin + 7)):
            trace.spans += [
                Span("phase", "forward", f"{stage}F0", at, at + 3),
                Span("wait", "wait for communication", "", at + 2, at + 3),
                Span("phase", "backward", f"{stage}B0", at + 3, at + 7),
            ]
        trace.spans.append(Span("phase", "optimizer", "", begin + 14, begin + 18))
    assert stages_of_trace([trace]) == [(2.0, 4.0, 0.0, 2.0)] * 2
    assert step_parts([trace]) == {
        "step": 18.0,
        "forward": 6.0,
        "backward": 8.0,
        "update": 4.0,
        "waits": 2.0,
    }


def test_16384_ranks_folded_and_every_rank_in_ten_seconds():
    model, machine = replace(find_model("llama3-405b"), layers=128), find_machine("llama3")
    plan = plan_on("pp=16,dp=128,tp=8", m=32, sequence=8192)
    folded = simulate(model, plan, machine)
    began = time.process_time()
    every = simulate(model, plan, machine, Stragglers(jitter=0.05), fold=False)
    assert time.process_time() - began < 10
    assert len(every.replicas) == 128 and every.step > folded.step
