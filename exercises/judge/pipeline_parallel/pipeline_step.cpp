#include "exercises/judge/pipeline_parallel/pipeline_step.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/ranges.h>

#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "parallel/pipeline/execution/autograd_stages.hpp"
#include "parallel/pipeline/execution/executor.hpp"

using ringside::pipeline_parallel::Action;
using ringside::pipeline_parallel::Kind;

static constexpr const char* kinds[] = {"forward",         "backward",         "backward_input",
                                        "backward_weight", "send_activation",  "receive_activation",
                                        "send_gradient",   "receive_gradient", "reduce_gradients"};

ringside::Json ringside::JsonForm<Action>::to_json(const Action& action) {
  return {kinds[static_cast<std::size_t>(action.kind)], action.stage, action.micro_batch};
}

Action ringside::JsonForm<Action>::from_json(const Json& json) {
  const std::string name = json.at(0);
  const auto found = std::find(std::begin(kinds), std::end(kinds), name);
  ringside::require(found != std::end(kinds), "there is no action {}; there are {}", name,
                    fmt::join(kinds, ", "));
  return {static_cast<Kind>(found - std::begin(kinds)), json.at(1), json.at(2)};
}

namespace ringside::exercises {
namespace {

using namespace autograd;
using namespace pipeline_parallel;

constexpr std::int64_t rows = 4, width = 8;

Tensor numbers(std::uint64_t seed, const std::string& name) {
  const Tensor x = Tensor::empty({rows, width});
  fill_normal(x, 0, 1, {seed, name});
  return x;
}

Tensor loss_of(const Tensor& y, int micro_batch, std::uint64_t seed) {
  return mse_loss(y, numbers(seed, fmt::format("target {}", micro_batch)));
}

struct LayerStages final : AutogradStages {
  LayerStages(const Schedule& schedule, int rank, std::uint64_t its_seed)
      : AutogradStages(schedule, rank), seed(its_seed) {
    for (const int stage : stages_of(schedule, rank))
      layers.try_emplace(stage, width, width, true, Init{seed, fmt::format("stage {}", stage)});
  }
  Tensor compute(int stage, int micro_batch, const Tensor& input) override {
    const Tensor x = stage == 0 ? numbers(seed, fmt::format("input {}", micro_batch)) : input;
    const Tensor y = silu(layers.at(stage).forward(x));
    return stage + 1 == schedule().stages() ? loss_of(y, micro_batch, seed) : y;
  }
  Tensor empty_for(const Action&) override { return Tensor::empty({rows, width}); }

  std::uint64_t seed;
  std::map<int, Linear> layers;
};

Json gradients_of(const LayerStages& stages) {
  Json gradients;
  for (const auto& [stage, layer] : stages.layers)
    for (const auto& [name, parameter] : layer.named_parameters())
      gradients[fmt::format("stage {}, {}", stage, name)] = parameter.grad().values<float>();
  return gradients;
}

}  // namespace

Json gradients_of_step(const Schedule& lowered, World& world) {
  LayerStages stages(lowered, world.rank(), world.seed());
  collectives::Messages messages(world.group());
  Executor(lowered, world.rank(), messages, stages).run();
  return gradients_of(stages);
}

Json gradients_of_single(int stages, int micro_batches, std::uint64_t seed) {
  const Schedule one{micro_batches, std::vector<int>(stages, 0), {{}}};
  LayerStages all(one, 0, seed);
  for (int i = 0; i < micro_batches; ++i) {
    Tensor x;
    for (int s = 0; s < stages; ++s) x = all.forward(s, i, x);
    for (int s = stages - 1; s >= 0; --s) x = all.backward(s, i, s + 1 == stages ? Tensor() : x);
  }
  return gradients_of(all);
}

std::string difference(const Json& all_seen, const Json& all_expected) {
  for (const auto& [parameter, seen] : all_seen.items()) {
    const std::vector<float> a = seen, b = all_expected.at(parameter);
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (at.first != a.end())
      return fmt::format(
          "the gradient of {} has {} at [{}], one process has {}: does backward run "
          "in the order of the micro-batches?",
          parameter, *at.first, at.first - a.begin(), *at.second);
  }
  return "";
}

}  // namespace ringside::exercises
