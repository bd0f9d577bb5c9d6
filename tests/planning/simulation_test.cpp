// The longest path through a step: held against the pipeline's proof, the account's formulas, and
// cases that can be computed by hand.
#include "planning/simulation/simulation.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/formulas.hpp"
#include "planning/account.hpp"
#include "planning/formulas/work.hpp"
#include "planning/simulation/network.hpp"

using namespace ringside;
using namespace ringside::planning;
using context_parallel::Exchange;
using pipeline_parallel::Durations;

namespace {

// One replica whose stages all take these durations.
PathInput uniform(const pipeline_parallel::Schedule& schedule, const Durations& durations) {
  PathInput input{lower(schedule), {}, 1, {}};
  Replica& replica = input.replicas.emplace_back();
  for (int stage = 0; stage < schedule.stages(); ++stage)
    replica.stages.push_back({.forward = durations.forward,
                              .input = durations.input(),
                              .weight = durations.weight,
                              .message_on = durations.message,
                              .message_back = durations.message});
  for (int rank = 0; rank < schedule.ranks(); ++rank) replica.units.push_back({rank, 1, 1});
  return input;
}

// Blocks of two matrices and nothing else, so that all stages take the same time.
Model blocks_only(std::int64_t layers = 24) {
  Model model;
  model.name = "blocks", model.kind = Model::Kind::feed_forward;
  model.d_model = 1024, model.d_ff = 4096, model.layers = layers, model.sequence = 1024;
  return model;
}

// Messages between stages take no time; all other communication does.
Machine machine_with_free_messages() {
  Machine machine = find_machine("h100");
  machine.levels = {{.name = "inner", .group = 8, .bytes_per_second = 4e11, .latency = 3e-6},
                    {.name = "outer", .group = 4096, .bytes_per_second = 1e30, .latency = 0}};
  return machine;
}

Plan plan_on(const char* mesh, const std::string& schedule = "1f1b", std::int64_t m = 8) {
  Plan plan{.mesh = planned_mesh(mesh), .schedule = schedule, .micro_batches = m, .sequence = 1024};
  if (schedule == "interleaved") plan.chunks = 3;
  return plan;
}

double exposed_along(const Simulation& simulation, const char* axis) {
  const auto found = std::ranges::find(simulation.exposed, axis, &Exposed::axis);
  REQUIRE(found != simulation.exposed.end());
  return found->seconds;
}

// The plan of the specification: 16,384 ranks.
Plan large_plan() {
  return {.mesh = MeshShape("pp=16,dp=128,tp=8"), .micro_batches = 32, .sequence = 8192};
}
Model large_model() {
  Model model = find_model("llama3-405b");
  model.layers = 128;
  return model;
}

}  // namespace

TEST_CASE("context parallel: bytes as in the account, exposed what attention does not hide") {
  const Model model = find_model("llama3-8b");
  const Machine h100 = find_machine("h100");
  for (const auto exchange : {Exchange::all_gather, Exchange::ring, Exchange::ulysses})
    for (const char* mesh : {"cp=2", "cp=4,tp=2", "pp=2,dp=2,cp=2,tp=2", "fsdp=2,cp=4"})
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        CAPTURE(mesh);
        CAPTURE(name_of(exchange));
        Plan plan{.mesh = MeshShape(mesh),
                  .micro_batches = 4,
                  .sequence = 8192,
                  .context = {.exchange = exchange},
                  .recompute = recompute};
        const Simulation simulated = simulate(model, plan, h100);
        const Account accounted = account(model, plan, h100);
        double sent = 0, expected = 0;
        for (const LinkLoad& load : simulated.loads)
          if (load.axis == "cp") sent += load.bytes;
        for (const AxisTraffic& each : accounted.traffic)
          if (each.axis == "cp") expected += each.bytes;
        CHECK(sent == doctest::Approx(expected).epsilon(1e-9));
        const auto exposed = std::ranges::find(simulated.exposed, "cp", &Exposed::axis);
        REQUIRE(exposed != simulated.exposed.end());
        // Attention over 8,192 tokens is longer than the messages of a ring over NVLink.
        if (exchange == Exchange::ring)
          CHECK(exposed->seconds < 0.2 * accounted.step_seconds);
        else
          CHECK(exposed->seconds > 0);
        // Without overlap a ring is waited for, too.
        Machine serial = h100;
        serial.overlap = 0;
        if (exchange == Exchange::ring) CHECK(simulate(model, plan, serial).step > simulated.step);
      }
}

TEST_CASE("context parallel: an all-gather and a reduce-scatter of keys in each block, by hand") {
  const Model model = find_model("llama3-8b");
  const Machine h100 = find_machine("h100");
  const Plan plan{.mesh = MeshShape("cp=4"),
                  .micro_batches = 3,
                  .sequence = 8192,
                  .context = {.exchange = Exchange::all_gather}};
  const Simulation simulated = simulate(model, plan, h100);
  // 2,048 tokens of a rank, keys and values of 1,024 numbers, 2 bytes each, gathered on 4 ranks.
  Network network(h100);
  const double gather = network.collective_seconds(collectives::Collective::all_gather, {0, 4, 1},
                                                   4.0 * 2048 * 2 * 1024 * 2);
  Machine silent = h100;
  silent.levels[0].latency = 0, silent.levels[0].bytes_per_second = 1e30;
  const double without = simulate(model, plan, silent).step;
  const double calls = 3 * 32 * 2 * gather;
  CHECK(simulated.step - without > calls);  // and the gradients' last bucket
  CHECK(simulated.step - without < 1.05 * calls);
  // A slow rank holds up all that exchange keys with it.
  SimulationOptions options;
  options.stragglers.slow[3] = 2;
  const Simulation slow = simulate(model, plan, h100, options);
  CHECK(slow.step > 1.8 * (simulated.step - calls));
  CHECK_THROWS_WITH(simulate(model, {.mesh = MeshShape("cp=2,dp=2"), .sequence = 8192}, h100),
                    "the mesh cp=2,dp=2 is not simulated: with cp the axes are expected in the "
                    "order pp, dp, fsdp, cp, tp, or with pp before cp");
  // With pp between dp and cp a ring of gradients has as many ranks in a server.
  const MeshRanks far(MeshShape("dp=4,pp=2,cp=2,tp=2")), near(MeshShape("pp=2,dp=4,cp=2,tp=2"));
  CHECK(far.state_group(Axis::dp, 0, 0).stride == 4);
  CHECK(near.state_group(Axis::dp, 0, 0).stride == 2);
  const Plan apart{.mesh = MeshShape("dp=4,pp=2,cp=2,tp=2"), .sequence = 8192};
  CHECK(simulate(model, apart, h100).step > 0);
  options.stragglers.slow.clear(), options.congestion = true;
  CHECK_THROWS_WITH(simulate(model, apart, h100, options),
                    "the mesh dp=4,pp=2,cp=2,tp=2 is not simulated with --congestion: dp is "
                    "expected before cp");
}

TEST_CASE("expert parallel: the links carry the bytes that the account counts") {
  const Model model = find_model("mixtral-8x7b");
  for (const char* mesh : {"ep=8", "dp=2,ep=4", "pp=2,ep=4,tp=2", "fsdp=2,ep=4", "ep=8,dp=2"})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      for (const double imbalance : {1.0, 1.5}) {
        CAPTURE(mesh);
        CAPTURE(imbalance);
        const Plan plan{.mesh = MeshShape(mesh),
                        .micro_batches = 4,
                        .sequence = 4096,
                        .recompute = recompute,
                        .imbalance = imbalance};
        const Simulation simulated = simulate(model, plan, find_machine("h100"));
        double sent = 0, expected = 0;
        for (const LinkLoad& load : simulated.loads)
          if (load.axis == "ep") sent += load.bytes;
        for (const AxisTraffic& each : account(model, plan, find_machine("h100")).traffic)
          if (each.axis == "ep") expected += each.bytes;
        CHECK(sent == doctest::Approx(expected).epsilon(1e-9));
        CHECK(exposed_along(simulated, "ep") > 0);
      }
}

TEST_CASE(
    "expert parallel: the all-to-alls of each block and what the busiest rank adds, by hand") {
  const Model model = find_model("mixtral-8x7b");
  const Machine h100 = find_machine("h100");
  Plan plan{.mesh = MeshShape("ep=4"), .micro_batches = 3, .sequence = 4096};
  // 4,096 tokens of a rank, 2 experts for each, 4,096 numbers of 2 bytes; 8 counts of 8 bytes.
  Network network(h100);
  using collectives::Collective;
  const auto all_to_all = [&](double bytes) {
    return network.collective_seconds(Collective::all_to_all, {0, 4, 1}, bytes);
  };
  const double rows = 4096.0 * 2 * 4096 * 2, tokens = 3 * 32;
  const double calls = tokens * (4 * all_to_all(rows) + all_to_all(8 * 8));
  // All but the experts: q and output, k and v, the router and two norms; embedding, head, norm.
  const double d = 4096,
               shared = 32 * (2 * d * d + 2 * d * 1024 + 8 * d + 2 * d) + 2 * 32000 * d + d;
  const double average = network.collective_seconds(Collective::all_reduce, {0, 4, 1}, 2 * shared);
  Machine silent = h100;
  silent.levels[0].latency = 0, silent.levels[0].bytes_per_second = 1e30;
  const Simulation simulated = simulate(model, plan, h100);
  const double without = simulate(model, plan, silent).step;
  CHECK(simulated.step - without == doctest::Approx(calls + average).epsilon(1e-9));
  CHECK(exposed_along(simulated, "ep") == doctest::Approx(calls + average).epsilon(1e-9));
  // The busiest rank has half as many rows again: of 3 matrices of an expert, forward and backward.
  plan.imbalance = 1.5;
  const double flops = tokens * 3 * 0.5 * 2 * 4096 * 2 * 3 * d * 14336,
               more = flops / (h100.peak * h100.matmul_efficiency_at(4096));
  CHECK(simulate(model, plan, silent).step - without == doctest::Approx(more).epsilon(1e-9));
  CHECK(simulate(model, plan, h100).step - simulated.step ==
        doctest::Approx(more + tokens * 4 * (all_to_all(1.5 * rows) - all_to_all(rows))));
  CHECK(account(model, plan, silent).step_seconds == doctest::Approx(without + more).epsilon(1e-9));
  // Without other ranks, all experts are on this one, and it computes every row.
  plan.mesh = MeshShape("dp=4");
  const double whole = simulate(model, plan, silent).step;
  plan.imbalance = 1;
  CHECK(simulate(model, plan, silent).step == whole);
  // The other ranks of ep wait for a slow one in every block.
  plan.mesh = MeshShape("dp=2,ep=4");
  SimulationOptions options;
  const double undisturbed = simulate(model, plan, silent).step;
  options.stragglers.slow[3] = 2;
  for (const bool fold : {true, false}) {
    options.fold = fold;
    const Simulation slow = simulate(model, plan, silent, options);
    CHECK(slow.step == doctest::Approx(2 * undisturbed));
    CHECK(slow.timeline.replicas[0].spans[0][0].end == slow.timeline.replicas[3].spans[0][0].end);
    CHECK(slow.timeline.replicas[4].spans[0][0].end < slow.timeline.replicas[3].spans[0][0].end);
  }
}

TEST_CASE("all micro-batches but the first add their gradients to a sum") {
  const Machine machine = machine_with_free_messages();
  const double parameters = 24.0 * 2 * 1024 * 4096,
               bandwidth = machine.memory_bandwidth * machine.memory_efficiency;
  for (const double gradients : {2.0, 4.0}) {
    Plan plan = plan_on("", "1f1b", 1);
    plan.types.gradients = gradients;
    const Simulation one = simulate(blocks_only(), plan, machine);
    plan.micro_batches = 4;
    // Each reads a gradient in 16 bits and the sum, and writes the sum.
    const double sums = 3 * parameters * (2 + 2 * gradients) / bandwidth,
                 expected = 4 * (one.step - one.optimizer) + sums + one.optimizer;
    CHECK(simulate(blocks_only(), plan, machine).step == doctest::Approx(expected).epsilon(1e-12));
    CHECK(account(blocks_only(), plan, machine).step_seconds ==
          doctest::Approx(expected).epsilon(1e-12));
    plan.fused_gradients = true;
    CHECK(simulate(blocks_only(), plan, machine).step ==
          doctest::Approx(expected - sums).epsilon(1e-12));
    CHECK(account(blocks_only(), plan, machine).step_seconds ==
          doctest::Approx(expected - sums).epsilon(1e-12));
    plan.fused_gradients = false;
    // Stage 2 of ZeRO adds up shards.
    plan.mesh = MeshShape("dp=4");
    const double whole = accumulation_traffic(parameters, plan).value();
    CHECK(4 * whole == doctest::Approx(sums * bandwidth));
    plan.zero = 2;
    CHECK(accumulation_traffic(parameters, plan).value() == whole / 4);
  }
}

TEST_CASE("for every schedule, spans and bubble are those of the pipeline's own proof") {
  // The last one has long messages: a lane carries one at a time.
  const Durations all[] = {{1, 2, 1, 0}, {1, 2, 1, 0.25}, {0.7, 1.9, 0.6, 0.125}, {1, 2, 1, 3}};
  int cases = 0;
  for (const auto& generator : pipeline_parallel::all_generators())
    for (const int p : {1, 2, 3, 4, 8, 16})
      for (const int m : {1, 2, 4, 8, 16, 48})
        for (const int v : {1, 2, 4}) {
          if (!why_not(generator, p, m, v).empty()) continue;
          const auto schedule = make_schedule(generator, p, m, v);
          for (const Durations& durations : all) {
            ++cases;
            const PathInput input = uniform(schedule, durations);
            const Timeline timeline = longest_path(input);
            const auto proved = time_of(input.lowered, durations);
            CAPTURE(generator.name);
            CAPTURE(p);
            CAPTURE(m);
            CHECK(timeline.computed == proved.step);
            CHECK(timeline.bubble(input.replicas) ==
                  doctest::Approx(proved.bubble()).epsilon(1e-12));
            bool same = true;
            for (int rank = 0; rank < p; ++rank)
              for (std::size_t i = 0; i < proved.spans[rank].size(); ++i) {
                const auto [start, end] = timeline.replicas[0].spans[rank][i];
                if (input.lowered.actions[rank][i].kind !=
                    pipeline_parallel::Kind::reduce_gradients)
                  same = same && start == proved.spans[rank][i].start &&
                         end == proved.spans[rank][i].end;
              }
            CHECK(same);
            const auto formula = bubble_by_formula({generator.name, p, m, v}, durations);
            if (formula)
              CHECK(timeline.bubble(input.replicas) == doctest::Approx(*formula).epsilon(1e-12));
          }
        }
  CHECK(cases > 500);
}

TEST_CASE("the longest path is the account where both apply") {
  // Equal stages, messages between them that take no time, and data ranks whose communication is
  // hidden, or gathers and scatters that are not.
  const Machine machine = machine_with_free_messages();
  const auto agree = [&](const Plan& plan) {
    const Account formulas = account(blocks_only(), plan, machine);
    const Simulation path = simulate(blocks_only(), plan, machine);
    CAPTURE(plan.mesh.text());
    CAPTURE(plan.schedule);
    CHECK(path.step == doctest::Approx(formulas.step_seconds).epsilon(1e-12));
    CHECK(path.utilization == doctest::Approx(formulas.utilization).epsilon(1e-12));
    return path;
  };
  agree(plan_on("tp=8"));
  agree(plan_on("fsdp=8"));  // exposed: 400 GB/s are little for one short sequence
  agree(plan_on("pp=4,fsdp=64,tp=8"));
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb_h1"})
    for (const char* mesh : {"pp=2,tp=8", "pp=4,tp=8", "pp=8,tp=8", "pp=8"}) {
      // zb_h1: the formula takes F = I = W, and tensor-parallel calls are in F and I.
      if (schedule == "zb_h1" && std::string(mesh) != "pp=8") continue;
      if (std::string(mesh) == "pp=8") {
        Machine wide = machine;
        wide.levels[0].group = 1;
        wide.levels[0].bytes_per_second = 1;
        // The formula takes F = I = W, and gradients are added up in W.
        if (schedule == "zb_h1") wide.memory_bandwidth = 1e30;
        const Plan plan = plan_on(mesh, schedule);
        CHECK(simulate(blocks_only(), plan, wide).step ==
              doctest::Approx(account(blocks_only(), plan, wide).step_seconds).epsilon(1e-12));
        continue;
      }
      const Simulation path = agree(plan_on(mesh, schedule));
      CHECK(path.bubble ==
            doctest::Approx(account(blocks_only(), plan_on(mesh, schedule), machine).bubble_share)
                .epsilon(1e-12));
    }
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    Plan plan = plan_on("pp=4,tp=8");
    plan.recompute = recompute;
    agree(plan);
  }
}

TEST_CASE("gradients are reduced in buckets while backward runs, and the last bucket is exposed") {
  // Two ranks, 4 buckets, backward from 3 to 7: ready at 4, 5, 6 and 7.
  const auto end_of = [](double bucket, double overlap) {
    PathInput input = uniform(pipeline_parallel::make_schedule("gpipe", 1, 1), {3, 4, 2, 0});
    input.overlap = overlap;
    input.replicas.push_back(input.replicas[0]);
    for (Replica& replica : input.replicas)
      replica.stages[0].buckets = 4, replica.stages[0].bucket = bucket;
    return longest_path(input).reduced;
  };
  CHECK(end_of(0, 1) == 7);
  CHECK(end_of(0.5, 1) == 7.5);  // each is done before the next is ready
  CHECK(end_of(1, 1) == 8);
  CHECK(end_of(2, 1) == 4 + 8);    // the network is the bottleneck from the first bucket on
  CHECK(end_of(0.5, 0) == 7 + 2);  // nothing overlaps
  CHECK(end_of(0.5, 0.5) == 7 + 1);
}

TEST_CASE("ZeRO 2 reduces after every micro-batch, and what is not hidden is no bubble") {
  PathInput input = uniform(pipeline_parallel::make_schedule("gpipe", 1, 2), {1, 2, 1, 0});
  input.overlap = 0;
  input.replicas.push_back(input.replicas[0]);
  for (Replica& replica : input.replicas) {
    replica.stages[0].buckets = 1, replica.stages[0].bucket = 0.5;
    replica.stages[0].reduces_each = true;
  }
  const Timeline timeline = longest_path(input);
  CHECK(timeline.computed == 6.5);  // F0 F1 B0, half a second, B1
  CHECK(timeline.reduced == 7);
  CHECK(timeline.bubble(input.replicas) == doctest::Approx(0));
}

TEST_CASE("a reduction waits for the slowest replica, and delays only its own group") {
  PathInput input = uniform(pipeline_parallel::make_schedule("gpipe", 1, 2), {1, 2, 1, 0});
  for (int i = 1; i < 3; ++i) input.replicas.push_back(input.replicas[0]);
  for (int i = 0; i < 3; ++i) {
    input.replicas[i].units[0].first = i, input.replicas[i].shard_group = i;
    input.replicas[i].stages[0].buckets = 1, input.replicas[i].stages[0].bucket = 0.5;
  }
  input.replicas[2].reduce_group = 1;
  input.stragglers.slow[1] = 1.5;
  const Timeline timeline = longest_path(input);
  const auto reduced = [&](int i) { return timeline.replicas[i].spans[0].back().end; };
  CHECK(timeline.computed == 9);
  CHECK(reduced(0) == 9.5);
  CHECK(reduced(1) == 9.5);
  CHECK(reduced(2) == 6.5);
  CHECK(timeline.reduced == 9.5);
}

TEST_CASE("sharded parameters: what computing does not hide, and replicas in step") {
  PathInput input = uniform(pipeline_parallel::make_schedule("gpipe", 1, 1), {2, 4, 2, 0});
  StageTimes& stage = input.replicas[0].stages[0];
  // Two units: a block hides the second gather, and the first reduction. It computes 1 s in
  // forward, and 1 s for each kind of call in backward.
  stage.blocks = 2;
  stage.gather_forward = {2, 1.5, 1}, stage.gather_backward = {2, 0.5, 1};
  stage.scatter = {2, 1.25, 1};
  CHECK(longest_path(input).computed == 2 + (3 - 1) + 4 + (1 - 0.5) + (2.5 - 1));
  input.overlap = 0;
  CHECK(longest_path(input).computed == 2 + 3 + 4 + 1 + 2.5);
  input.overlap = 1;
  input.replicas.push_back(input.replicas[0]);
  input.replicas[1].units[0].first = 1;
  input.stragglers.slow[1] = 2;
  const Timeline timeline = longest_path(input);
  CHECK(timeline.replicas[0].spans[0][0].end == 4 + 2);
  CHECK(timeline.replicas[0].spans[0][1].end == 6 + 8 + 0.5 + 1.5);
}

TEST_CASE("the links carry the bytes that the account counts") {
  const auto agree = [](const Model& model, const Plan& plan) {
    const Machine machine = machine_with_free_messages();
    CAPTURE(plan.mesh.text());
    CAPTURE(plan.zero);
    const Simulation simulation = simulate(model, plan, machine);
    const Account formulas = account(model, plan, machine);
    for (const Axis axis : plan.mesh.axes()) {
      const std::string name(name_of(axis));
      CAPTURE(name);
      double counted = 0, carried = 0;
      for (const AxisTraffic& each : formulas.traffic)
        if (each.axis == name) counted += each.bytes;
      for (const LinkLoad& each : simulation.loads)
        if (each.axis == name) carried += each.bytes;
      // The links show the rank that sends most, the account the one that computes most.
      const std::int64_t p = plan.mesh.size(Axis::pp);
      const auto messages = [&](std::int64_t rank) {
        return pipeline_part(model, plan, rank).messages;
      };
      if (axis == Axis::pp) counted *= messages(p / 2) / messages(formulas.busiest);
      if (p > 1 && plan.shards_parameters() && axis == Axis::fsdp) {
        // The links do not know of units that stay whole from one action to the next.
        CHECK(carried >= counted);
        CHECK(carried < 1.05 * counted);
      } else {
        // Nor that the last norm is gathered again, without the head.
        CHECK(carried == doctest::Approx(counted).epsilon(plan.shards_parameters() ? 1e-5 : 1e-12));
      }
    }
  };
  for (const char* mesh : {"pp=4,dp=2,tp=2", "pp=2,fsdp=4", "dp=4,tp=8"})
    agree(blocks_only(), plan_on(mesh));
  // One stage with embedding and head.
  for (const int zero : {0, 1, 2, 3})
    for (const bool sequence_parallel : {false, true}) {
      Plan plan = plan_on("dp=4,tp=8");
      plan.zero = zero, plan.sequence_parallel = sequence_parallel;
      agree(find_model("llama3-8b"), plan);
    }
}

TEST_CASE("a slow rank slows its tensor group, its pipeline, and all who wait for its gradients") {
  const Machine machine = machine_with_free_messages();
  const Plan plan = plan_on("pp=2,dp=2,tp=2", "1f1b", 4);
  const double undisturbed = simulate(blocks_only(), plan, machine).step;
  SimulationOptions options;
  for (const std::int64_t rank : {0, 3, 5, 7}) {
    options.stragglers.slow = {{rank, 1.5}};
    const Simulation slow = simulate(blocks_only(), plan, machine, options);
    CHECK(slow.undisturbed == undisturbed);
    CHECK(slow.step > 1.1 * undisturbed);
    CHECK(slow.step < 1.5 * undisturbed);
    // The replica of the slow rank, and the other one.
    CHECK(slow.replicas_simulated == 2);
    options.fold = false;
    CHECK(simulate(blocks_only(), plan, machine, options).step == slow.step);
    options.fold = true;
  }
  // Alone, a slow rank takes as much longer for everything, also for the update.
  options.stragglers.slow = {{0, 1.5}};
  const Simulation alone = simulate(blocks_only(), plan_on(""), machine, options);
  CHECK(alone.step == doctest::Approx(1.5 * alone.undisturbed).epsilon(1e-12));
  options.stragglers.slow.clear();
  for (std::int64_t rank = 0; rank < 8; ++rank) options.stragglers.slow[rank] = 1.5;
  CHECK(simulate(blocks_only(), plan, machine, options).replicas_simulated == 1);
  options.stragglers.slow = {{8, 1.5}};
  CHECK_THROWS_WITH_AS(simulate(blocks_only(), plan, machine, options),
                       "rank 8 cannot be slow: the mesh pp=2,dp=2,tp=2 has the ranks 0 to 7",
                       Error);
}

TEST_CASE("jitter is reproducible, bounded, and depends on its seed") {
  const Machine machine = machine_with_free_messages();
  const Plan plan = plan_on("pp=4,dp=4");
  const double undisturbed = simulate(blocks_only(), plan, machine).step;
  const auto step = [&](std::uint64_t seed) {
    SimulationOptions options;
    options.stragglers.jitter = 0.2, options.stragglers.seed = seed;
    return simulate(blocks_only(), plan, machine, options).step;
  };
  CHECK(step(1) == step(1));
  CHECK(step(1) != step(2));
  // The mean of a computation is 1.1, and a rank waits for others who are late.
  CHECK(step(1) > 1.1 * undisturbed);
  CHECK(step(1) < 1.2 * undisturbed);
}

TEST_CASE("folded replicas give the bits of every replica") {
  for (const char* mesh : {"pp=4,dp=8,tp=8", "dp=4,fsdp=8", "pp=2,fsdp=16,tp=4", "fsdp=8,pp=4"})
    for (const char* machine : {"h100", "llama3", "a100"}) {
      CAPTURE(mesh);
      SimulationOptions every;
      every.fold = false;
      const Model model = find_model("llama3-8b");
      const Plan plan = plan_on(mesh);
      const Simulation folded = simulate(model, plan, find_machine(machine)),
                       all = simulate(model, plan, find_machine(machine), every);
      CHECK(folded.step == all.step);
      CHECK(folded.bubble == doctest::Approx(all.bubble).epsilon(1e-12));
      CHECK(folded.replicas_simulated == 1);
      CHECK(all.replicas_simulated == plan.mesh.data_ranks());
    }
}

TEST_CASE("a group communicates over the innermost level that joins its ranks") {
  const Machine machine = find_machine("llama3");
  Network network(machine);
  CHECK(network.level_of({0, 8, 1}) == 0);
  CHECK(network.level_of({4, 8, 1}) == 1);  // half on the next server
  CHECK(network.level_of({0, 384, 8}) == 1);
  CHECK(network.level_of({8, 384, 8}) == 2);  // the last rank is in the next pod
  CHECK(network.message_seconds(0, 1, 450e9) == doctest::Approx(3e-6 + 1 / 0.82));
  CHECK(network.message_seconds(9, 1, 45e9) == doctest::Approx(8e-6 + 1));
  CHECK(network.message_seconds(3071, 3072, 45e9) == doctest::Approx(12e-6 + 7));
  const auto gather = collectives::Collective::all_gather;
  const double first = network.collective_seconds(gather, {0, 8, 1}, 8e6);
  CHECK(first == doctest::Approx(7 * (3e-6 + 1e6 / 369e9)));
  CHECK(network.collective_seconds(gather, {16, 8, 1}, 8e6) == first);
  CHECK(network.computed() == 1);
  CHECK_THROWS_WITH_AS(network.level_of({0, 2, 24576}),
                       "ranks 0 and 24576 are in different groups of RoCE, pods, the widest level "
                       "of llama3",
                       Error);
}

TEST_CASE("another topology, another time") {
  const Model model = find_model("llama3-70b");
  Plan plan = plan_on("pp=4,dp=8,tp=8");
  Machine machine = find_machine("h100");
  const double step = simulate(model, plan, machine).step;
  machine.levels[1].bytes_per_second /= 4;
  const Simulation slower = simulate(model, plan, machine);
  CHECK(slower.step > step);
  machine.levels[0].in_network_efficiency = 0.61;
  CHECK(simulate(model, plan, machine).step < slower.step);
  // Tensor parallel across servers.
  plan.mesh = MeshShape("tp=8,dp=8,pp=4");
  CHECK(exposed_along(simulate(model, plan, machine), "tp") > 5 * exposed_along(slower, "tp"));
}

TEST_CASE("16,384 ranks: folded, and every rank") {
  const Machine machine = find_machine("llama3");
  const Simulation folded = simulate(large_model(), large_plan(), machine);
  SimulationOptions options;
  options.fold = false;
  options.stragglers.jitter = 0.05;
  const Simulation every = simulate(large_model(), large_plan(), machine, options);
  CHECK(every.replicas_simulated == 128);
  CHECK(every.step > folded.step);
}
