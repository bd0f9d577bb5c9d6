// What a topology file can say beside rates and latencies: rails, and efficiencies by width. And
// times that a run has measured, in place of the formulas'.
#include <doctest/doctest.h>

#include "base/error.hpp"
#include "planning/account.hpp"
#include "planning/formulas/activations.hpp"
#include "planning/formulas/work.hpp"
#include "planning/simulation/simulation.hpp"

using namespace ringside;
using namespace ringside::planning;

namespace {

Plan plan_on(const char* mesh) {
  return {.mesh = planned_mesh(mesh), .micro_batches = 4, .sequence = 2048};
}

// Servers of 8; the network between them is oversubscribed.
Machine servers(bool rails, double oversubscription) {
  Machine machine = find_machine("h100");
  machine.levels[1].oversubscription = oversubscription;
  machine.levels[1].rails = rails;
  return machine;
}

double seconds_along(const char* axis, const char* mesh, const Machine& machine) {
  const Account result = account(find_model("llama3-8b"), plan_on(mesh), machine);
  double seconds = 0;
  for (const AxisTraffic& each : result.traffic)
    if (each.axis == axis) seconds += each.seconds;
  return seconds;
}

double step_of(const Plan& plan, const Machine& machine, bool congestion = false) {
  SimulationOptions options;
  options.congestion = congestion;
  return simulate(find_model("llama3-8b"), plan, machine, options).step;
}

}  // namespace

TEST_CASE("ranks of one rail have the full bandwidth, and those of several rails have not") {
  const Machine without = servers(false, 4), with = servers(true, 4), full = servers(false, 1);
  // Data ranks are 8 apart, one on each server: they share a rail.
  const char* along = "dp=16,tp=8";
  CHECK(seconds_along("dp", along, with) == seconds_along("dp", along, full));
  CHECK(seconds_along("dp", along, without) > 3 * seconds_along("dp", along, full));
  CHECK(step_of(plan_on(along), with) == step_of(plan_on(along), full));
  CHECK(step_of(plan_on(along), without) > step_of(plan_on(along), full));
  // Here the ranks of a group are neighbours: each channel of their ring stays on its rail.
  const char* across = "tp=8,dp=16";
  CHECK(seconds_along("dp", across, with) == seconds_along("dp", across, full));
  CHECK(seconds_along("dp", across, without) > 3 * seconds_along("dp", across, full));
  // Tensor ranks are 16 apart: two servers further, on the same rail.
  CHECK(seconds_along("tp", across, with) == seconds_along("tp", across, full));
  CHECK(step_of(plan_on(across), with) < step_of(plan_on(across), without));
  CHECK(step_of(plan_on(across), with) == step_of(plan_on(across), full));
}

TEST_CASE("a ring over several servers has a channel for each rank of a server") {
  const Machine h100 = find_machine("h100");
  const auto ring = [&](std::int64_t count, std::int64_t stride) {
    return h100.level_of_ring(h100.level_index_for(count * stride), count, stride);
  };
  CHECK(ring(8, 1).rate() == 450e9 * 0.82);
  CHECK(ring(16, 1).rate() == doctest::Approx(8 * 50e9 * 0.9));
  CHECK(ring(8, 2).rate() == doctest::Approx(4 * 50e9 * 0.9));
  CHECK(ring(4, 8).rate() == doctest::Approx(50e9 * 0.9));
  CHECK(ring(4, 16).rate() == doctest::Approx(50e9 * 0.9));
  // Two of 16 hops leave a server.
  CHECK(ring(16, 1).latency == doctest::Approx((14 * 3e-6 + 2 * 6e-6) / 16));
  CHECK(ring(4, 8).latency == doctest::Approx(6e-6));
  // Faster cards do not help beyond NVLink.
  Machine wide = h100;
  wide.levels[1].bytes_per_second *= 4;
  CHECK(wide.level_of_ring(1, 16, 1).rate() == 450e9 * 0.82);
  // A third level: its cards are the same, and the pods are oversubscribed.
  const Machine llama3 = find_machine("llama3");
  // A ring of 6,144 leaves each pod once, with 8 of its 3,072 cards: oversubscription costs
  // nothing. So do the rings of ranks that are 128 apart, 24 of them in a pod. Rings with one rank
  // in a pod, and those with 4 of which one leaves, have less.
  const auto pods = [&](std::int64_t count, std::int64_t stride) {
    return llama3.level_of_ring(2, count, stride).rate() / (50e9 * 0.9);
  };
  CHECK(pods(6144, 1) == doctest::Approx(8));
  CHECK(pods(64, 128) == doctest::Approx(1));
  CHECK(pods(4, 3072) == doctest::Approx(1 / 7.0));
  CHECK(pods(16, 768) == doctest::Approx(4 / 7.0));
}

TEST_CASE("flows along a rail do not share the uplink of their server") {
  for (const char* mesh : {"dp=16,tp=8", "pp=4,dp=4,tp=8"}) {
    CAPTURE(mesh);
    const Plan plan = plan_on(mesh);
    CHECK(step_of(plan, servers(true, 40), true) == step_of(plan, servers(false, 1), true));
    CHECK(step_of(plan, servers(false, 40), true) > step_of(plan, servers(false, 1), true));
  }
}

TEST_CASE("the efficiency of products follows the shortest side of their matrices") {
  Machine machine = find_machine("h100");
  machine.matmul_efficiency_by_width = {{512, 0.4}, {2048, 0.6}, {4096, 0.7}};
  CHECK(machine.matmul_efficiency_at(100) == 0.4);
  CHECK(machine.matmul_efficiency_at(512) == 0.4);
  CHECK(machine.matmul_efficiency_at(1024) == doctest::Approx(0.5));
  CHECK(machine.matmul_efficiency_at(2048) == doctest::Approx(0.6));
  CHECK(machine.matmul_efficiency_at(1e6) == 0.7);
  // Llama 3 8B has d_model 4096 and d_ff 14336. On 8 tensor ranks the queries are 512 wide.
  const Model model = find_model("llama3-8b");
  CHECK(block_width(model, plan_on("dp=8")) == 2048);  // the tokens
  CHECK(block_width(model, plan_on("tp=4")) == 1024);
  CHECK(block_width(model, plan_on("tp=8")) == 512);
  for (const auto& [mesh, efficiency] : {std::pair("dp=8", 0.6), {"tp=4", 0.5}, {"tp=8", 0.4}}) {
    CAPTURE(mesh);
    Machine constant = find_machine("h100");
    constant.matmul_efficiency_by_width.clear(), constant.matmul_efficiency = efficiency;
    const Plan plan = plan_on(mesh);
    CHECK(block_seconds(model, plan, machine).value() ==
          doctest::Approx(block_seconds(model, plan, constant).value()).epsilon(1e-12));
  }
  CHECK(step_of(plan_on("tp=8"), machine) > step_of(plan_on("tp=8"), find_machine("h100")));
}

TEST_CASE("each kernel has a fixed cost, which small micro-batches do not hide") {
  const Model model = find_model("llama3-8b");
  Machine free = find_machine("h100");
  free.kernel_seconds = 0;
  Machine slow = free;
  slow.kernel_seconds = 1e-5;
  const Plan plan = plan_on("tp=8");
  // 7 products, two of them again for each in backward, and 8 other ops, twice: 37 kernels.
  CHECK(block_forward_kernels(model).value() == 15);
  CHECK(block_kernels(model, plan).value() == 3 * 7 + 2 * 8);
  CHECK(block_seconds(model, plan, slow).value() - block_seconds(model, plan, free).value() ==
        doctest::Approx(37e-5));
  Plan again = plan;
  again.recompute = Recompute::full;
  CHECK(block_kernels(model, again).value() == 4 * 7 + 3 * 8);
  // Of a step: 32 blocks and the head, in each of 4 micro-batches.
  const double all = 4 * (32 * 37 + 6) * 1e-5;
  CHECK(step_of(plan, slow) - step_of(plan, free) == doctest::Approx(all));
  const Account account = ringside::planning::account(model, plan, slow);
  CHECK(account.step_seconds - ringside::planning::account(model, plan, free).step_seconds ==
        doctest::Approx(all));
  for (const TimeRow& row : account.time)
    if (row.part == "launches of kernels")
      CHECK(row.seconds ==
            doctest::Approx(4 * 32 * 37 * 1e-5));  // the head's are with its products
  // The same tokens in smaller micro-batches have more kernels.
  Plan whole = plan, divided = plan;
  whole.micro_batch = 4, whole.micro_batches = 1;
  divided.micro_batch = 1, divided.micro_batches = 4;
  const Machine h100 = find_machine("h100");
  CHECK(step_of(divided, h100) > 1.02 * step_of(whole, h100));
  // A GPT writes its scores, unless attention is fused: then 10 kernels instead of 13.
  CHECK(block_forward_kernels(find_model("megatron-1.7b")).value() == 13);
  CHECK(block_forward_kernels(find_model("mpt-1b")).value() == 10);
  CHECK(block_forward_kernels(find_model("mixtral-8x7b")).value() == 5 + 11 + 4 * 8);
}

TEST_CASE("fused attention keeps no scores, and moves none") {
  Model model = find_model("mpt-1b");
  const Plan plan = plan_on("");
  Plan selective = plan;
  selective.recompute = Recompute::selective;
  const double fused = block_activations(model, plan).value();
  CHECK(block_recomputed_flops(model, selective).value() == 0);
  CHECK(scores_traffic(model, plan).value() == 0);
  model.fused_attention = false;
  CHECK(block_activations(model, plan).value() > fused);
  CHECK(block_activations(model, selective).value() == fused);
  CHECK(block_recomputed_flops(model, selective).value() > 0);
  CHECK(scores_traffic(model, plan).value() > 0);
}

TEST_CASE("measured times of the stages take the place of the formulas'") {
  const Model model = find_model("llama3-8b");
  const Machine machine = find_machine("h100");
  SimulationOptions one;
  one.measured = {{.forward = 1, .backward = 2.5, .weight = 1, .optimizer = 0.25}};
  CHECK(simulate(model, plan_on(""), machine, one).step == 4 * (1 + 2.5) + 0.25);
  // Where the run had W apart, its time counts: zb_h1 is idle for F + I - W, here 2 s.
  Plan two = plan_on("pp=2");
  two.schedule = "zb_h1";
  const MeasuredStage apart{.forward = 1, .backward = 2.5, .weight = 0.75, .optimizer = 0};
  one.measured = {apart, apart};
  CHECK(simulate(model, two, machine, one).step == doctest::Approx(4 * 3.5 + 2).epsilon(1e-3));
  for (const std::string schedule : {"1f1b", "zb_h1", "zb_v"}) {
    Plan plan = plan_on("pp=4,dp=2,tp=2");
    plan.schedule = schedule;
    const Simulation formulas = simulate(model, plan, machine);
    SimulationOptions options;
    for (const StageLoad& stage : formulas.load.stages)
      options.measured.push_back(
          {stage.forward, stage.input + stage.weight, stage.weight, stage.optimizer});
    CHECK(simulate(model, plan, machine, options).step == doctest::Approx(formulas.step));
    // A backward that was measured whole is divided as by the formulas.
    for (MeasuredStage& stage : options.measured) stage.weight = 0;
    CHECK(simulate(model, plan, machine, options).step == doctest::Approx(formulas.step));
    // A slower stage slows the pipeline; a slower update only the end of the step.
    options.measured[1].forward *= 2;
    const double slower = simulate(model, plan, machine, options).step;
    CHECK(slower > formulas.step);
    for (MeasuredStage& stage : options.measured) stage.optimizer += 1;
    const double stages_of_a_rank = schedule == "zb_v" ? 2 : 1;
    CHECK(simulate(model, plan, machine, options).step ==
          doctest::Approx(slower + stages_of_a_rank));
    options.measured.pop_back();
    const std::size_t stages = formulas.load.stages.size();
    CHECK_THROWS_WITH_AS(
        simulate(model, plan, machine, options),
        fmt::format("the trace has {} stages, but the plan has {}: name the mesh and the schedule "
                    "of that run",
                    stages - 1, stages)
            .c_str(),
        Error);
  }
}
