// Judges one step of a pipeline: the gradient of each stage against a single process that takes the
// whole batch at once, what travels between the ranks, and how many micro-batches are on their way.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/46-pipeline-by-hand/interface.hpp"
#include "exercises/judge/judge.hpp"
#include "exercises/judge/tensor_parallel/divided_tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;
using collectives::Collective;

constexpr std::int64_t rows = 3, width = 8;  // of a micro-batch
constexpr std::uint64_t size = rows * width;
constexpr double tolerance = 1e-5;  // of the largest number: all is fp32

int micro_batches_in(int world) {
  return 2 * world + 1;
}

// With larger weights GELUs may let almost nothing through, and then the largest number of a
// gradient is not much larger than its rounding.
Tensor weight_of(int stage, std::uint64_t seed) {
  return scale(numbers({width, width}, seed, fmt::format("stage {}", stage), DType::fp32), 0.25);
}

// "x" or "target" of a micro-batch.
Tensor rows_of(const char* name, int micro_batch, std::uint64_t seed) {
  return numbers({rows, width}, seed, fmt::format("{} {}", name, micro_batch), DType::fp32);
}

// ---- Beside the student's code

// Of all micro-batches on the rank that has them; elsewhere of the same shapes, without numbers.
std::vector<Tensor> batch_of(const char* name, int micro_batches, bool here, std::uint64_t seed) {
  std::vector<Tensor> batch;
  for (int m = 0; m < micro_batches; ++m) {
    batch.push_back(rows_of(name, m, seed));
    if (!here) batch.back().fill_(std::numeric_limits<double>::quiet_NaN());
  }
  return batch;
}

// {"gradient": [...], "calls": [{"from", "to", "count"}, or {"other": "all_reduce of ..."}]}
Json step_of_student(World& world, int micro_batches) {
  world.doing(fmt::format("training_step, {} micro-batch{}", micro_batches,
                          micro_batches == 1 ? "" : "es"));
  const Tensor weight = weight_of(world.rank(), world.seed()).set_requires_grad(true);
  const auto x = batch_of("x", micro_batches, world.rank() == 0, world.seed()),
             targets =
                 batch_of("target", micro_batches, world.rank() + 1 == world.size(), world.seed());
  world.group().barrier();
  world.calls().clear();
  student_training_step(weight, x, targets, world.group());
  Json calls = Json::array();
  for (const ObservedCall& each : world.calls().calls())
    if (each.call.collective == Collective::point_to_point)
      calls.push_back(
          {{"from", each.call.root}, {"to", each.call.peer}, {"count", each.call.count}});
    else
      calls.push_back({{"other", collectives::describe(each.call)}});
  return {{"gradient", values(weight.grad())}, {"calls", calls}};
}

Json collect_chain(World& world) {
  return step_of_student(world, 1);
}

Json collect_step(World& world) {
  return step_of_student(world, micro_batches_in(world.size()));
}

// ---- One process

// The gradients of all stages, of the mean loss over the micro-batches from `first` to before
// `end`.
std::vector<std::vector<double>> gradients(int stages, int first, int end, std::uint64_t seed) {
  std::vector<Tensor> weights;
  for (int s = 0; s < stages; ++s) weights.push_back(weight_of(s, seed).set_requires_grad(true));
  for (int m = first; m < end; ++m) {
    Tensor y = rows_of("x", m, seed);
    for (const Tensor& weight : weights) y = gelu(linear(y, weight));
    backward(scale(mse_loss(y, rows_of("target", m, seed)), 1.0 / (end - first)));
  }
  std::vector<std::vector<double>> all;
  for (const Tensor& weight : weights) all.push_back(values(weight.grad()));
  return all;
}

// ---- The judge

bool is_near(const Json& seen, const std::vector<double>& expected, double factor = 1) {
  const auto largest =
      std::abs(*std::max_element(expected.begin(), expected.end(),
                                 [](double a, double b) { return std::abs(a) < std::abs(b); }));
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::abs(seen.at(i).get<double>() - factor * expected[i]) > factor * tolerance * largest)
      return false;
  return true;
}

std::string fault_of_gradient(const Run& run, int micro_batches, int rank, const Json& seen) {
  if (seen.empty()) return "the weight has no gradient";
  const auto of_stage = [&](int first, int end) {
    return gradients(run.world, first, end, run.seed)[static_cast<std::size_t>(rank)];
  };
  const std::vector<double> expected = of_stage(0, micro_batches);
  if (!std::all_of(seen.begin(), seen.end(), [](const Json& each) { return each.is_number(); }))
    return "the gradient is not a number: rank 0 alone has x, and the last rank the targets";
  if (is_near(seen, expected)) return "";
  const auto at = [&](std::size_t i) { return std::abs(seen.at(i).get<double>() - expected[i]); };
  std::size_t worst = 0;
  for (std::size_t i = 1; i < expected.size(); ++i)
    if (at(i) > at(worst)) worst = i;
  std::string that;
  if (micro_batches > 1) {
    if (is_near(seen, expected, micro_batches))
      that =
          fmt::format(": that is {} times as much, the sum over the micro-batches", micro_batches);
    for (const int only : {0, micro_batches - 1})
      for (const double factor : {1.0, 1.0 / micro_batches})
        if (is_near(seen, of_stage(only, only + 1), factor))
          that = fmt::format(": that is what micro-batch {} says alone", only);
  }
  return fmt::format("the gradient has {:.6g} at [{}], one process has {:.6g}{}",
                     seen.at(worst).get<double>(), worst, expected[worst], that);
}

// From the last rank to the first, as gradients travel.
Verdict judge_gradients_of(const Run& run, int micro_batches) {
  for (int rank = run.world - 1; rank >= 0; --rank)
    if (const std::string found = fault_of_gradient(
            run, micro_batches, rank, run.ranks[static_cast<std::size_t>(rank)].at("gradient"));
        !found.empty())
      return {{fmt::format("{} micro-batch{}, rank {}: {}", micro_batches,
                           micro_batches == 1 ? "" : "es", rank, found)}};
  return {};
}

Verdict judge_chain(const Run& run) {
  return judge_gradients_of(run, 1);
}

Verdict judge_gradients(const Run& run) {
  return judge_gradients_of(run, micro_batches_in(run.world));
}

// Each neighbour gets each micro-batch once, forward or backward; nobody gets anything else.
Verdict judge_messages(const Run& run) {
  const std::uint64_t all = static_cast<std::uint64_t>(micro_batches_in(run.world)) * size;
  return first_fault(run, [&](int rank, const Json& seen) -> std::string {
    std::map<int, std::uint64_t> to;
    for (const Json& call : seen.at("calls")) {
      if (call.contains("other"))
        return fmt::format("made the call {}, expected messages between two ranks",
                           call.at("other").get<std::string>());
      if (call.at("from") == rank)
        to[call.at("to").get<int>()] += call.at("count").get<std::uint64_t>();
    }
    for (int other = 0; other < run.world; ++other) {
      const std::uint64_t expected = std::abs(other - rank) == 1 ? all : 0;
      if (to[other] != expected)
        return fmt::format("sent {} numbers to rank {}, expected {}{}", to[other], other, expected,
                           expected == 0
                               ? ""
                               : fmt::format(": {} of {} micro-batches of {} x {}",
                                             other > rank ? "the activations" : "the gradients",
                                             micro_batches_in(run.world), rows, width));
    }
    return "";
  });
}

// So many micro-batches start before the first gradient is waited for that each rank behind has
// one. 1F1B sends one more, GPipe all.
Verdict judge_pipelined(const Run& run) {
  return first_fault(run, [&](int rank, const Json& seen) -> std::string {
    const std::uint64_t behind = static_cast<std::uint64_t>(run.world - 1 - rank);
    std::uint64_t sent = 0;
    for (const Json& call : seen.at("calls")) {
      if (call.at("from") == rank && call.at("to") == rank + 1)
        sent += call.at("count").get<std::uint64_t>();
      if (call.at("from") == rank + 1 && call.at("to") == rank) break;
    }
    if (sent >= behind * size) return "";
    return fmt::format(
        "waits for the first gradient after it has sent {} micro-batch{}, expected {} or more: one "
        "for each rank behind it",
        sent / size, sent / size == 1 ? "" : "es", behind);
  });
}

const Judge judge("46-pipeline-by-hand", {{"chain", collect_chain, judge_chain},
                                          {"gradients", collect_step, judge_gradients},
                                          {"messages", collect_step, judge_messages},
                                          {"pipelined", collect_step, judge_pipelined}});

}  // namespace
}  // namespace ringside::exercises
