// What a topology file can say beside rates and latencies: rails, and efficiencies by width. And
// times that a run has measured, in place of the formulas'.
#include <doctest/doctest.h>

#include "base/error.hpp"
#include "planning/account.hpp"
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
  for (const Sent& each : result.traffic)
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
  CHECK(llama3.level_of_ring(2, 6144, 1).rate() == doctest::Approx(8 * 50e9 * 0.9 / 7));
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
    constant.matmul_efficiency = efficiency;
    const Plan plan = plan_on(mesh);
    CHECK(block_seconds(model, plan, machine).value() ==
          doctest::Approx(block_seconds(model, plan, constant).value()).epsilon(1e-12));
  }
  CHECK(step_of(plan_on("tp=8"), machine) > step_of(plan_on("tp=8"), find_machine("h100")));
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
