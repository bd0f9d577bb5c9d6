// Judges a sharded optimizer: the bits of a single AdamW, and 1/p of its memory. The gradients are
// random numbers, so no model is needed.
#include <algorithm>

#include "collectives/execution/traffic.hpp"
#include "exercises/19-sharded-optimizer/interface.hpp"
#include "exercises/judge/single.hpp"
#include "exercises/judge/zero/optimizer_training.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

using MakePlan = OptimizerPlan (*)(std::uint64_t seed);

OptimizerPlan ten_steps(std::uint64_t seed) {
  return {.sizes = random_sizes(seed)};
}
OptimizerPlan late_group(std::uint64_t seed) {
  return {.sizes = random_sizes(seed), .steps = 6, .late = 5, .change_rate = true};
}
OptimizerPlan few_parameters(std::uint64_t) {
  return {.sizes = {7, 3, 5}, .steps = 3};
}

MakeOptimizer student_in(World& world) {
  return [&world](std::vector<ParameterGroup> groups) {
    return student_optimizer(std::move(groups), world.group(), make_adamw);
  };
}

template <MakePlan plan>
Json collect_training(World& world) {
  world.doing("a training");
  return train(plan(world.seed()), world.seed(), world.rank(), world.rank(), student_in(world));
}

template <MakePlan plan>
Verdict judge_training(const Run& run) {
  return judge_like_single(run, plan(run.seed));
}

Verdict judge_last_weights(const Run& run) {
  return judge_last_weights_only(run, ten_steps(run.seed));
}

Json collect_memory(World& world) {
  world.doing("two steps");
  return ledger_after_two_steps(world, student_in(world));
}

// The ranks to which ranges() gives each parameter of the first group: [parameter][...].
Json owners_of(const zero::ShardedOptimizer& optimizer) {
  Json owners = Json::array();
  for (std::size_t i = 0; i < optimizer.groups()[0].parameters.size(); ++i) {
    std::vector<int> who;
    const auto ranges = optimizer.ranges(0, i);
    for (std::size_t rank = 0; rank < ranges.size(); ++rank)
      if (ranges[rank].count > 0) who.push_back(static_cast<int>(rank));
    owners.push_back(who);
  }
  return owners;
}

std::string sentence_of(std::string_view collective, std::uint64_t bytes, int root) {
  return fmt::format("{} of {} bytes from rank {}", collective, bytes, root);
}

// One step. With gradients of its own on each rank, a parameter moves by those of its owner.
template <bool own_gradients>
Json collect_step(World& world) {
  world.doing("one step");
  const auto parameters = make_parameters(random_sizes(world.seed()), world.seed(), world.rank());
  const auto optimizer = student_optimizer({{parameters, 0.01, 0}}, world.group(), make_adamw);
  set_gradients(parameters, world.seed(), 0, own_gradients ? world.rank() : -1);
  const auto before = world.group().traffic().payload_bytes_sent;
  world.calls().clear();
  std::string error;
  try {
    optimizer->step();
  } catch (const Error& thrown) {
    error = thrown.what();  // owners that differ explain it
  }
  Json calls = Json::array();
  for (const ObservedCall& each : world.calls().calls())
    calls.push_back(
        sentence_of(collectives::name_of(each.call.collective), each.bytes(), each.call.root));
  return {{"error", error},
          {"owners", owners_of(*optimizer)},
          {"values", values_of(parameters)},
          {"sent", world.group().traffic().payload_bytes_sent - before},
          {"calls", calls}};
}

// What an optimizer without weight decay makes of the gradients of this owner.
Json step_of_owner(const Run& run, const std::vector<int>& sizes, int owner) {
  if (const Json* single = single_process(run)) return single->at(owner);
  const OptimizerPlan plan{.sizes = sizes, .steps = 1, .own_gradients = true};
  return train(plan, run.seed, 0, owner, [](std::vector<ParameterGroup> groups) {
    groups[0].weight_decay = 0;
    return make_adamw(std::move(groups));
  })[1];
}

Verdict judge_owners(const Run& run) {
  const std::vector<int> sizes = random_sizes(run.seed);
  const Json& owners = run.ranks[0].at("owners");
  const Verdict fault = first_fault(run, [&](int, const Json& seen) -> std::string {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Json& who = seen.at("owners").at(i);
      if (who.size() != 1) return fmt::format("p{} has {} owners, expected 1", i, who.size());
      if (who != owners[i])
        return fmt::format("takes rank {} for the owner of p{}, rank 0 takes rank {}",
                           who[0].get<int>(), i, owners[i][0].get<int>());
    }
    return "";
  });
  if (!fault.says.empty()) return fault;
  if (Verdict error = first_error(run); !error.says.empty()) return error;
  for (int owner = 0; owner < run.world; ++owner) {
    const Json expected = step_of_owner(run, sizes, owner);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (int rank = 0; rank < run.world; ++rank) {
        if (owners[i][0] != owner) continue;
        const std::string name = fmt::format("p{}", i);
        if (run.ranks[rank].at("values").at(name) != expected.at(name))
          return {
              {fmt::format("{} on rank {} is not what its owner, rank {}, makes of its own "
                           "gradient",
                           name, rank, owner)}};
      }
  }
  return {};
}

// One broadcast for each parameter, from the owner that ranges() names, in any order and under any
// name: so many bytes from each rank.
Verdict judge_bytes(const Run& run) {
  if (Verdict error = first_error(run); !error.says.empty()) return error;
  const std::vector<int> sizes = random_sizes(run.seed);
  return first_fault(run, [&](int rank, const Json& mine) -> std::string {
    std::vector<std::string> calls = mine.at("calls"), expected;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const int owner = mine.at("owners").at(i).at(0);
      expected.push_back(sentence_of("broadcast", 4 * static_cast<std::uint64_t>(sizes[i]), owner));
      bytes += broadcast_bytes(sizes[i], run.world, rank, owner);
    }
    std::sort(calls.begin(), calls.end()), std::sort(expected.begin(), expected.end());
    if (calls != expected)
      return fmt::format(
          "a step made {}; expected one broadcast for each of {} parameters, from its owner",
          calls.empty() ? "no calls" : fmt::format("the calls {}", fmt::join(calls, ", ")),
          sizes.size());
    const std::uint64_t sent = mine.at("sent");
    return sent == bytes ? "" : fmt::format("sent {} bytes in a step, expected {}", sent, bytes);
  });
}

// What CS336 asks, and what it leaves open: no bits are compared, and parameters may be dealt out
// by their number.
Verdict judge_cs336_training(const Run& run) {
  return judge_like_single(run, {}, 1e-5);
}

const Judge judge("19-sharded-optimizer",
                  {{"same-bits", collect_training<ten_steps>, judge_training<ten_steps>},
                   {"memory", collect_memory, judge_ledger},
                   {"owners", collect_step<true>, judge_owners},
                   {"bytes", collect_step<false>, judge_bytes},
                   {"groups-and-rates", collect_training<late_group>, judge_training<late_group>},
                   {"more-ranks-than-parameters", collect_training<few_parameters>,
                    judge_training<few_parameters>},
                   {"weak", collect_training<ten_steps>, judge_last_weights},
                   {"cs336-same-weights", collect_in_torch, judge_cs336_training},
                   {"cs336-memory", collect_in_torch, judge_ledger_of_even_parameters},
                   {"cs336-groups", collect_in_torch, judge_cs336_training},
                   {"cs336-rates", collect_in_torch, judge_cs336_training},
                   {"cs336-balance", collect_in_torch, judge_ledger}});

}  // namespace
}  // namespace ringside::exercises
