// Judges a sharded optimizer: the bits of a single AdamW, and 1/p of its memory. The gradients are
// random numbers, so no model is needed.
#include <algorithm>
#include <numeric>

#include "autograd/optim/adamw.hpp"
#include "base/random.hpp"
#include "base/trace.hpp"
#include "collectives/algorithms/binomial.hpp"
#include "collectives/selection/cost_model.hpp"
#include "collectives/transport/transport.hpp"
#include "exercises/19-sharded-optimizer/interface.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

Tensor random_tensor(std::int64_t elements, std::uint64_t seed, std::uint64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(random_normal(seed, stream, i));
  return Tensor::from(values, {elements});
}

// Parameters p0, p1, ... of these sizes, the same on every rank; but each rank allocates them in
// another order, so that their addresses tell nothing.
std::vector<NamedTensor> make_parameters(const std::vector<int>& sizes, std::uint64_t seed,
                                         int rank) {
  const MemoryScope kind(MemoryKind::parameters);
  std::vector<NamedTensor> parameters(sizes.size());
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::size_t i = (rank % 2 == 0 ? k : sizes.size() - 1 - k);
    parameters[i] = {fmt::format("p{}", i), random_tensor(sizes[i], seed, i)};
    parameters[i].tensor.set_requires_grad(true);
  }
  return parameters;
}

// `rank` -1: the mean, which all ranks hold.
void set_gradients(const std::vector<NamedTensor>& parameters, std::uint64_t seed, int step,
                   int rank = -1) {
  const MemoryScope kind(MemoryKind::gradients);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i].tensor.set_grad(random_tensor(parameters[i].tensor.elements(), seed,
                                                1000 + 100 * static_cast<std::uint64_t>(step) +
                                                    10000 * static_cast<std::uint64_t>(rank + 1) +
                                                    i));
}

Json values_of(const std::vector<NamedTensor>& parameters) {
  Json all = Json::object();
  for (const auto& [name, tensor] : parameters) {
    const auto values = tensor.values<float>();
    all[name] = std::vector<float>(values.begin(), values.end());
  }
  return all;
}

std::vector<int> random_sizes(std::uint64_t seed) {
  std::vector<int> sizes;
  for (std::uint64_t i = 0; i < 9; ++i)
    sizes.push_back(static_cast<int>(1 + random_below(40, seed, 7, i)));
  return sizes;
}

std::unique_ptr<Optimizer> make_adamw(std::vector<ParameterGroup> groups) {
  return std::make_unique<AdamW>(std::move(groups));
}

// The whole program of a case, with the student's optimizer or with a single AdamW: parameters of
// `sizes`; from `late` on they join in a second group after step 1; the rate changes before step 3.
struct Plan {
  std::vector<int> sizes;
  int steps = 10;
  std::size_t late = 1000;
  bool change_rate = false;
  bool own_gradients = false;  // each rank has others; `rank` says whose a single process takes
};

template <class MakeOptimizer>
Json train(const Plan& plan, std::uint64_t seed, int rank, int gradients_of,
           const MakeOptimizer& make) {
  const std::vector<NamedTensor> all = make_parameters(plan.sizes, seed, rank);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(std::min(plan.late, all.size()));
  const auto optimizer = make(std::vector<ParameterGroup>{{{all.begin(), middle}, 0.01, 0.1}});
  Json history = Json::array({values_of(all)});
  for (int step = 0; step < plan.steps; ++step) {
    if (step == 2 && middle != all.end()) optimizer->add_group({{middle, all.end()}, 0.02, 0});
    if (step == 3 && plan.change_rate) optimizer->set_learning_rate(0.1);
    set_gradients(all, seed, step, plan.own_gradients ? gradients_of : -1);
    optimizer->step();
    history.push_back(values_of(all));
  }
  return history;
}

Json train_student(World& world, const Plan& plan) {
  return train(plan, world.seed(), world.rank(), world.rank(),
               [&](std::vector<ParameterGroup> groups) {
                 return student_optimizer(std::move(groups), world.group(), make_adamw);
               });
}

// history[0] is the state before step 0.
std::string difference(const Json& seen, const Json& expected, int rank) {
  for (std::size_t step = 0; step + 1 < expected.size(); ++step)
    for (const auto& [name, numbers] : expected[step + 1].items()) {
      const Json& mine = seen.at(step + 1).at(name);
      if (mine == numbers) continue;
      std::size_t i = 0;
      while (mine.at(i) == numbers[i]) ++i;
      return fmt::format("rank {}, step {}: {}[{}] is {:.9g}, the single optimizer's is {:.9g}{}",
                         rank, step, name, i, mine[i].get<double>(), numbers[i].get<double>(),
                         mine == seen[step][name] ? ": it did not move in this step" : "");
    }
  return "";
}

Verdict judge_bits(const Run& run, const Plan& plan) {
  const Json expected = train(plan, run.seed, 0, 0, make_adamw);
  for (int rank = 0; rank < run.world; ++rank)
    if (const std::string fault = difference(run.ranks[rank], expected, rank); !fault.empty())
      return {{fault}};
  return {};
}

Plan bits_plan(std::uint64_t seed) {
  return {.sizes = random_sizes(seed)};
}

// Only the weights after the last step: how CS336's test judges. It shows what that lets pass.
Verdict judge_last_weights(const Run& run) {
  const Json expected = train(bits_plan(run.seed), run.seed, 0, 0, make_adamw).back();
  for (int rank = 0; rank < run.world; ++rank)
    if (run.ranks[rank].back() != expected) return {{fmt::format("rank {}: other weights", rank)}};
  return {};
}

Plan groups_plan(std::uint64_t seed) {
  return {.sizes = random_sizes(seed), .steps = 6, .late = 5, .change_rate = true};
}
Plan few_plan(std::uint64_t) {
  return {.sizes = {7, 3, 5}, .steps = 3};
}

Json collect_bits(World& world) {
  return train_student(world, bits_plan(world.seed()));
}
Verdict judge_same_bits(const Run& run) {
  return judge_bits(run, bits_plan(run.seed));
}
Json collect_groups(World& world) {
  return train_student(world, groups_plan(world.seed()));
}
Verdict judge_groups(const Run& run) {
  return judge_bits(run, groups_plan(run.seed));
}
Json collect_few(World& world) {
  return train_student(world, few_plan(world.seed()));
}
Verdict judge_few(const Run& run) {
  return judge_bits(run, few_plan(run.seed));
}

// Every p-th parameter is large: dealt out by their number, all of these go to rank 0.
std::vector<int> uneven_sizes(int ranks) {
  std::vector<int> sizes;
  for (int i = 0; i < 4 * ranks; ++i) sizes.push_back(i % ranks == 0 ? 600 : 6);
  return sizes;
}

// The ledger after each of two steps.
Json collect_memory(World& world) {
  const auto parameters = make_parameters(uneven_sizes(world.size()), world.seed(), world.rank());
  const auto optimizer = student_optimizer({{parameters, 0.01, 0}}, world.group(), make_adamw);
  Json bytes = Json::array();
  for (int step = 0; step < 2; ++step) {
    set_gradients(parameters, world.seed(), step);
    optimizer->step();
    bytes.push_back(memory_use(MemoryKind::optimizer_state).current);
  }
  return bytes;
}

Verdict judge_memory(const Run& run) {
  const std::vector<int> sizes = uneven_sizes(run.world);
  const double n = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  const double one = 8 * 600 + 64;  // one parameter, and the counts of steps
  const double most = 8 * n / run.world + one;
  double all = 0;
  for (const Json& each : run.ranks) all += each.at(1).get<double>();
  for (int rank = 0; rank < run.world; ++rank) {
    const double kept = run.ranks[rank].at(1);
    if (kept <= most) continue;
    const bool everybody = all > run.world * (8 * n - one);
    return {
        {fmt::format("{} {:.3g} n bytes of optimizer state ({:.0f} % of all), expected at most "
                     "8 n/{} + {:.1f} KB",
                     everybody ? fmt::format("each of {} ranks keeps", run.world)
                               : fmt::format("rank {} keeps", rank),
                     kept / n, 100 * kept / (8 * n), run.world, one / 1000)}};
  }
  return {};
}

// The ranks to which ranges() gives each parameter of the first group: [parameter][...].
Json owners_of(const zero::PartitionedOptimizer& optimizer) {
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

// Each rank has gradients of its own: a parameter moves by those of its owner.
Json collect_owners(World& world) {
  const std::vector<int> sizes = random_sizes(world.seed());
  const auto parameters = make_parameters(sizes, world.seed(), world.rank());
  const auto optimizer = student_optimizer({{parameters, 0.01, 0}}, world.group(), make_adamw);
  set_gradients(parameters, world.seed(), 0, world.rank());
  std::string error;
  try {
    optimizer->step();
  } catch (const Error& thrown) {
    error = thrown.what();  // owners that differ explain it
  }
  return {{"owners", owners_of(*optimizer)}, {"values", values_of(parameters)}, {"error", error}};
}

Verdict judge_owners(const Run& run) {
  const std::vector<int> sizes = random_sizes(run.seed);
  const Json& owners = run.ranks[0].at("owners");
  for (int rank = 0; rank < run.world; ++rank)
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Json& who = run.ranks[rank].at("owners").at(i);
      if (who.size() != 1)
        return {{fmt::format("rank {}: ranges() gives p{} to {} ranks, expected 1", rank, i,
                             who.size())}};
      if (who != owners[i])
        return {{fmt::format("rank {} takes rank {} for the owner of p{}, rank 0 takes rank {}",
                             rank, who[0].get<int>(), i, owners[i][0].get<int>())}};
    }
  for (const Json& each : run.ranks)
    if (each.at("error") != "") return {{each["error"].get<std::string>()}};
  for (int owner = 0; owner < run.world; ++owner) {
    const Json expected = train({.sizes = sizes, .steps = 1, .own_gradients = true}, run.seed, 0,
                                owner, [](std::vector<ParameterGroup> groups) {
                                  groups[0].weight_decay = 0;
                                  return make_adamw(std::move(groups));
                                })[1];
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

Json collect_bytes(World& world) {
  const auto parameters = make_parameters(random_sizes(world.seed()), world.seed(), world.rank());
  const auto optimizer = student_optimizer({{parameters, 0.01, 0}}, world.group(), make_adamw);
  set_gradients(parameters, world.seed(), 0);
  Trace trace;
  const auto before = world.group().traffic().payload_bytes_sent;
  {
    const Trace::On on(trace);
    optimizer->step();
  }
  Json calls = Json::array();
  for (const Trace::Span& span : trace.spans())
    if (span.kind == Trace::Kind::call) calls.push_back(span.name + " of " + span.about);
  return {{"sent", world.group().traffic().payload_bytes_sent - before},
          {"calls", calls},
          {"owners", owners_of(*optimizer)}};
}

// One broadcast for each parameter, from the owner that ranges() names: so many bytes from each
// rank.
Verdict judge_bytes(const Run& run) {
  const std::vector<int> sizes = random_sizes(run.seed);
  for (int rank = 0; rank < run.world; ++rank) {
    const Json& mine = run.ranks[rank];
    std::vector<std::string> calls = mine.at("calls"), expected;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      expected.push_back(fmt::format("broadcast of p{}", i));
      std::vector<collectives::Schedule> schedules;
      for (int r = 0; r < run.world; ++r)
        schedules.push_back(
            collectives::binomial_broadcast(run.world, r, mine.at("owners").at(i).at(0)));
      const auto count = static_cast<std::size_t>(sizes[i]);
      bytes += collectives::cost_of(schedules, collectives::Chunks::even(count, 1), 4, {})
                   .sent[rank]
                   .bytes;
    }
    std::sort(calls.begin(), calls.end());
    if (calls != expected)
      return {
          {fmt::format("rank {}: a step made the calls {}; expected one broadcast for each of "
                       "{} parameters, under its name",
                       rank, fmt::join(calls, ", "), sizes.size())}};
    if (mine.at("sent") != bytes)
      return {{fmt::format("rank {}: sent {} bytes in a step, expected {}", rank,
                           mine["sent"].get<std::uint64_t>(), bytes)}};
  }
  return {};
}

const Judge judge("19-sharded-optimizer", {{"same-bits", collect_bits, judge_same_bits},
                                           {"memory", collect_memory, judge_memory},
                                           {"owners", collect_owners, judge_owners},
                                           {"bytes", collect_bytes, judge_bytes},
                                           {"groups-and-rates", collect_groups, judge_groups},
                                           {"more-ranks-than-parameters", collect_few, judge_few},
                                           {"weak", collect_bits, judge_last_weights}});

}  // namespace
}  // namespace ringside::exercises
