#include "exercises/judge/zero/optimizer_training.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/optim/adamw.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/tree/binomial.hpp"
#include "collectives/selection/cost_model.hpp"
#include "exercises/judge/single.hpp"

namespace ringside::exercises {

using namespace autograd;

static Tensor random_tensor(std::int64_t elements, std::uint64_t seed, std::uint64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(random_normal(seed, stream, i));
  return Tensor::from(values, {elements});
}

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

void set_gradients(const std::vector<NamedTensor>& parameters, std::uint64_t seed, int step,
                   int rank) {
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

Json train(const OptimizerPlan& plan, std::uint64_t seed, int rank, int gradients_of,
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

std::string difference(const Json& seen, const Json& expected, int rank, double tolerance) {
  for (std::size_t step = 0; step + 1 < expected.size(); ++step)
    for (const auto& [name, numbers] : expected[step + 1].items()) {
      const Json& mine = seen.at(step + 1).at(name);
      if (mine == numbers) continue;
      const auto differs = [&](std::size_t i) {
        return mine.at(i) != numbers[i] &&
               !(std::abs(mine.at(i).get<double>() - numbers[i].get<double>()) <= tolerance);
      };
      std::size_t i = 0;
      while (i < numbers.size() && !differs(i)) ++i;
      if (i == numbers.size()) continue;
      return fmt::format("rank {}, step {}: {}[{}] is {:.9g}, the single optimizer's is {:.9g}{}",
                         rank, step, name, i, mine[i].get<double>(), numbers[i].get<double>(),
                         mine == seen[step][name] ? ": it did not move in this step" : "");
    }
  return "";
}

static Json single_training(const Run& run, const OptimizerPlan& plan) {
  if (const Json* single = single_process(run)) return *single;
  return train(plan, run.seed, 0, 0, make_adamw);
}

Verdict judge_like_single(const Run& run, const OptimizerPlan& plan, double tolerance) {
  const Json expected = single_training(run, plan);
  for (int rank = 0; rank < run.world; ++rank) {
    const std::string fault = difference(run.ranks[rank], expected, rank, tolerance);
    if (!fault.empty()) return {{fault}};
  }
  return {};
}

Verdict judge_last_weights_only(const Run& run, const OptimizerPlan& plan) {
  const Json expected = single_training(run, plan).back();
  for (int rank = 0; rank < run.world; ++rank)
    if (run.ranks[rank].back() != expected) return {{fmt::format("rank {}: other weights", rank)}};
  return {};
}

// Every p-th parameter is large: dealt out by their number, all of these go to rank 0.
static std::vector<int> uneven_sizes(int ranks) {
  std::vector<int> sizes;
  for (int i = 0; i < 4 * ranks; ++i) sizes.push_back(i % ranks == 0 ? 600 : 6);
  return sizes;
}

Json ledger_after_two_steps(World& world, const MakeOptimizer& make) {
  const auto parameters = make_parameters(uneven_sizes(world.size()), world.seed(), world.rank());
  set_gradients(parameters, world.seed(), 0);
  const std::int64_t before = memory_use().current;  // of all kinds: a kind is the student's word
  const auto optimizer = make({{parameters, 0.01, 0}});
  Json bytes = Json::array();
  for (int step = 0; step < 2; ++step) {
    set_gradients(parameters, world.seed(), step);
    optimizer->step();
    bytes.push_back(
        std::max(memory_use(MemoryKind::optimizer_state).current, memory_use().current - before));
  }
  return bytes;
}

static Verdict judge_ledger_of(const Run& run, const std::vector<int>& sizes) {
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

Verdict judge_ledger(const Run& run) {
  return judge_ledger_of(run, uneven_sizes(run.world));
}

Verdict judge_ledger_of_even_parameters(const Run& run) {
  return judge_ledger_of(run, std::vector<int>(4 * static_cast<std::size_t>(run.world), 600));
}

std::uint64_t broadcast_bytes(int floats, int ranks, int rank, int root) {
  std::vector<collectives::Schedule> schedules;
  for (int r = 0; r < ranks; ++r)
    schedules.push_back(collectives::binomial_broadcast(ranks, r, root));
  const auto chunks = collectives::Chunks::even(static_cast<std::size_t>(floats), 1);
  return collectives::cost_of(schedules, chunks, 4, {}).sent[rank].bytes;
}

}  // namespace ringside::exercises
