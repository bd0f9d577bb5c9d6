// Flows that share links: max-min fairness by hand, the longest path where nothing is shared, and
// published bandwidths.
#include "planning/simulation/congestion/congestion.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "planning/collective_time.hpp"
#include "planning/simulation/congestion/fluid_network.hpp"
#include "planning/simulation/simulation.hpp"

using namespace ringside;
using namespace ringside::planning;

namespace {

std::vector<double> rates_of(const std::vector<double>& capacity,
                             const std::vector<FlowPath>& paths) {
  std::vector<const FlowPath*> flows;
  for (const FlowPath& path : paths) flows.push_back(&path);
  return fair_rates(capacity, flows);
}

// Two devices to a server; four servers behind uplinks that are oversubscribed.
Machine two_levels(double oversubscription) {
  Machine machine = find_machine("h100");
  machine.levels = {{.name = "server", .group = 2, .bytes_per_second = 100, .latency = 0},
                    {.name = "network", .group = 8, .bytes_per_second = 10, .latency = 0.5}};
  machine.levels[1].oversubscription = oversubscription;
  return machine;
}

Plan plan_on(const char* mesh, std::int64_t m = 8) {
  return {.mesh = planned_mesh(mesh), .micro_batches = m, .sequence = 2048};
}

double step_of(const char* mesh, const Machine& machine, bool congestion) {
  SimulationOptions options;
  options.congestion = congestion;
  return simulate(find_model("llama3-8b"), plan_on(mesh), machine, options).step;
}

}  // namespace

TEST_CASE("max-min fairness: nobody gets more without taking from one that has less") {
  // The example of the header: a on link 1, b on both, c on link 2.
  const auto rates = rates_of({10, 9}, {{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}}});
  CHECK(rates[1] == doctest::Approx(4.5));
  CHECK(rates[2] == doctest::Approx(4.5));
  CHECK(rates[0] == doctest::Approx(5.5));
  // A parking lot: the long flow crosses every link.
  const auto lot = rates_of({6, 9, 12}, {{{0, 1}, {1, 1}, {2, 1}}, {{0, 1}}, {{1, 1}}, {{2, 1}}});
  CHECK(lot == std::vector<double>{3, 3, 6, 9});
  // A flow that stands for three takes three shares.
  CHECK(rates_of({8}, {{{0, 3}}, {{0, 1}}}) == std::vector<double>{2, 2});
}

TEST_CASE("flows end one after the other, and the others speed up") {
  const Machine machine = two_levels(2);
  FluidNetwork network(machine);
  FlowPath first, second;
  network.add_path(first, 0, 2, 1);   // server 0 to server 1
  network.add_path(second, 1, 4, 1);  // server 0 to server 2
  CHECK(network.latency(0, 2) == 0.5);
  // The uplink of server 0 carries 2 x 10 / 2 = 10 bytes per second.
  network.start(7, first, 10);
  CHECK(network.next_end() == doctest::Approx(1));
  network.start(8, second, 20);
  CHECK(network.next_end() == doctest::Approx(2));  // 5 bytes per second each
  CHECK(network.advance(2) == std::vector<std::size_t>{7});
  CHECK(network.next_end() == doctest::Approx(3));  // 10 left, at 10 bytes per second
  CHECK(network.advance(3) == std::vector<std::size_t>{8});
  CHECK(network.idle());
}

TEST_CASE("what arrives shares the receiver's port, and its server's downlink") {
  const auto end_of_both = [](std::int64_t to, std::int64_t other, double oversubscription) {
    const Machine machine = two_levels(oversubscription);
    FluidNetwork network(machine);
    FlowPath first, second;
    network.add_path(first, 0, to, 1);  // from two servers
    network.add_path(second, 2, other, 1);
    network.start(0, first, 10), network.start(1, second, 10);
    return network.next_end();
  };
  CHECK(end_of_both(4, 6, 1) == doctest::Approx(1));  // to two servers, at 10 bytes per second each
  CHECK(end_of_both(4, 5, 1) == doctest::Approx(1));  // to two devices of a server
  CHECK(end_of_both(4, 4, 1) == doctest::Approx(2));  // to one device: 5 each
  CHECK(end_of_both(4, 6, 2) == doctest::Approx(1));
  CHECK(end_of_both(4, 5, 2) == doctest::Approx(2));  // a downlink of 10 bytes per second
}

TEST_CASE("where nothing is shared, congestion changes nothing") {
  for (const char* machine : {"h100", "a100"})
    for (const char* mesh : {"pp=4", "pp=4,tp=8", "dp=16,tp=8", "dp=64", "dp=24,tp=2", "tp=4,dp=16",
                             "cp=8", "cp=16", "dp=4,cp=4", "dp=4,cp=2,tp=8"}) {
      CAPTURE(machine);
      CAPTURE(mesh);
      const double alone = step_of(mesh, find_machine(machine), false);
      CHECK(step_of(mesh, find_machine(machine), true) == doctest::Approx(alone).epsilon(1e-9));
    }
}

TEST_CASE("a message and a reduction over one port slow each other down") {
  const Machine machine = find_machine("h100");
  const double alone = step_of("pp=4,dp=16,tp=8", machine, false),
               shared = step_of("pp=4,dp=16,tp=8", machine, true);
  CHECK(shared >= alone * (1 - 1e-9));
  CHECK(shared < 1.1 * alone);
}

TEST_CASE("oversubscription costs only as much as is sent at the same time") {
  // Pods of 16 devices, joined with a seventh of the bandwidth. A ring of 16 ranks has 4 in a pod,
  // and leaves it with 2 channels: 8 of 16 cards of a pod, so a ring has 3.5 times less.
  Machine machine = find_machine("h100");
  machine.levels.push_back(machine.levels[1]);
  machine.levels[1].group = 16;
  machine.levels[2].oversubscription = 7;
  const char* mesh = "dp=16,tp=4";
  CHECK(machine.level_of_ring(2, 16, 4).oversubscription == 3.5);
  const double shared = step_of(mesh, machine, true);
  CHECK(step_of(mesh, machine, false) == doctest::Approx(shared).epsilon(1e-9));
  machine.levels[2].oversubscription = 1;
  CHECK(shared > step_of(mesh, machine, true));
  machine.levels[2].oversubscription = 70;
  CHECK(step_of(mesh, machine, true) > shared);
}

TEST_CASE("context ranks reduce gradients in the ring of the data ranks") {
  // 2 sequences, each on 4 ranks with 2 tensor ranks: a ring of 8 ranks for each tensor rank.
  Machine machine = find_machine("h100");
  machine.levels[1].oversubscription = 40;
  const char* mesh = "dp=2,cp=4,tp=2";
  CHECK(machine.level_of_ring(1, 8, 2).oversubscription == 40);
  const double alone = step_of(mesh, machine, false);
  CHECK(step_of(mesh, machine, true) == doctest::Approx(alone).epsilon(1e-9));
  machine.levels[1].oversubscription = 1;
  CHECK(step_of(mesh, machine, true) < alone);
  // Messages between stages share the ports.
  const double apart = step_of("pp=4,dp=2,cp=4,tp=2", machine, false),
               shared = step_of("pp=4,dp=2,cp=4,tp=2", machine, true);
  CHECK(shared >= apart * (1 - 1e-9));
  CHECK(shared < 1.1 * apart);
}

TEST_CASE("experts: their all-to-alls keep their times, and gradients share the links") {
  const Model model = find_model("mixtral-8x7b");
  SimulationOptions options;
  options.congestion = true;
  for (const char* mesh : {"ep=8", "dp=4,ep=8", "ep=4,dp=4", "fsdp=2,ep=4"}) {
    CAPTURE(mesh);
    const Machine h100 = find_machine("h100");
    CHECK(simulate(model, plan_on(mesh), h100, options).step ==
          doctest::Approx(simulate(model, plan_on(mesh), h100).step).epsilon(1e-9));
  }
}

TEST_CASE("8 x H100: 450 GB/s line rate, 370 by a ring, 480 with in-network reduction") {
  constexpr std::uint64_t large = 8'000'000'000;
  const auto busbw = [](const char* algorithm, const Machine& machine) {
    return collective_time(collectives::Collective::all_reduce, algorithm, 8, large, machine)
               .busbw() /
           1e9;
  };
  Machine line_rate = find_machine("h100");
  line_rate.levels[0].efficiency = 1;
  CHECK(busbw("ring", line_rate) == doctest::Approx(450).epsilon(0.05));
  CHECK(busbw("ring", find_machine("h100")) == doctest::Approx(370).epsilon(0.05));
  CHECK(busbw("in_network", find_machine("h100-nvls")) == doctest::Approx(480).epsilon(0.05));
  // A plan takes what is faster.
  CHECK(step_of("tp=8", find_machine("h100-nvls"), false) <
        step_of("tp=8", find_machine("h100"), false));
}

TEST_CASE("16,384 ranks with congestion") {
  Model model = find_model("llama3-405b");
  model.layers = 128;
  const Plan plan{.mesh = MeshShape("pp=16,dp=128,tp=8"), .micro_batches = 32, .sequence = 8192};
  SimulationOptions options;
  options.congestion = true;
  const Simulation shared = simulate(model, plan, find_machine("llama3"), options);
  CHECK(shared.replicas_simulated == 128);
  CHECK(shared.step < simulate(model, plan, find_machine("llama3")).step);
}

TEST_CASE("slow ranks with sharded parameters and congestion are refused") {
  SimulationOptions options;
  options.congestion = true;
  options.stragglers.slow[0] = 2;
  CHECK_NOTHROW(simulate(find_model("llama3-8b"), plan_on("dp=8"), find_machine("h100"), options));
  CHECK_THROWS_WITH_AS(
      simulate(find_model("mixtral-8x7b"), plan_on("ep=8"), find_machine("h100"), options),
      doctest::Contains("slow ranks, sharded parameters or experts, and --congestion"), Error);
  CHECK_THROWS_WITH_AS(
      simulate(find_model("llama3-8b"), plan_on("fsdp=8"), find_machine("h100"), options),
      "slow ranks, sharded parameters or experts, and --congestion cannot be simulated together: "
      "leave out one of them",
      Error);
}
