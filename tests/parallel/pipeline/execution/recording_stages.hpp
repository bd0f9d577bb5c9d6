// Stages that compute nothing: they check what they are given, and sleep.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/trace/trace.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/execution/executor.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"

namespace ringside::tests {

using autograd::Tensor;
using collectives::Messages;
using pipeline_parallel::Action;
using pipeline_parallel::Executor;
using pipeline_parallel::Kind;
using pipeline_parallel::Schedule;

// Result of stage s for micro-batch i: 1000 i + s. Gradient of its input: -(1000 i + s).
class RecordingStages : public pipeline_parallel::StageWork {
 public:
  // `during` runs in every computation: it may sleep or throw.
  explicit RecordingStages(
      const Schedule& schedule, std::function<void(const Action&)> during = [](const Action&) {},
      std::int64_t elements = 1)
      : schedule_(schedule), during_(std::move(during)), elements_(elements) {}

  Tensor forward(int stage, int micro_batch, Tensor input) override {
    note({Kind::forward, stage, micro_batch});
    expect(input, stage > 0, 1000.0 * micro_batch + stage - 1);
    return made(1000.0 * micro_batch + stage);
  }
  Tensor backward(int stage, int micro_batch, Tensor gradient) override {
    note({Kind::backward, stage, micro_batch});
    return gradient_of_input(stage, micro_batch, gradient);
  }
  Tensor backward_input(int stage, int micro_batch, Tensor gradient) override {
    note({Kind::backward_input, stage, micro_batch});
    return gradient_of_input(stage, micro_batch, gradient);
  }
  void backward_weight(int stage, int micro_batch) override {
    note({Kind::backward_weight, stage, micro_batch});
  }
  void reduce_gradients(int stage) override { note({Kind::reduce_gradients, stage}); }
  Tensor empty_for(const Action&) override { return Tensor::empty({elements_}); }

  const std::vector<Action>& seen() const { return seen_; }

 private:
  void note(const Action& action) {
    during_(action);
    seen_.push_back(action);
  }
  Tensor made(double number) const { return Tensor::full({elements_}, number); }
  Tensor gradient_of_input(int stage, int micro_batch, const Tensor& gradient) {
    const bool has_next = stage + 1 < schedule_.stages();
    expect(gradient, has_next, -(1000.0 * micro_batch + stage + 1));
    return made(-(1000.0 * micro_batch + stage));
  }
  void expect(const Tensor& given, bool any, double number) const {
    require(given.defined() == any, "expected {} tensor", any ? "a" : "no");
    if (!any) return;
    for (const float element : given.values<float>())
      require(element == static_cast<float>(number), "expected {}, got {}", number, element);
  }

  const Schedule& schedule_;
  std::function<void(const Action&)> during_;
  std::int64_t elements_;
  std::vector<Action> seen_;
};

inline std::vector<Action> computations(const std::vector<Action>& actions) {
  std::vector<Action> only;
  for (const Action& action : actions)
    if (is_computation(action.kind) || action.kind == Kind::reduce_gradients)
      only.push_back(action);
  return only;
}

inline std::vector<std::string> texts(const std::vector<Action>& actions) {
  std::vector<std::string> all;
  for (const Action& action : actions) all.push_back(text_of(action));
  return all;
}

// What a trace says that ran: the phases, in order.
inline std::vector<std::string> phases_of(const Trace& trace) {
  std::vector<std::string> all;
  for (const Trace::Span& span : trace.spans())
    if (span.kind == Trace::Kind::phase) all.push_back(span.about);
  return all;
}

inline void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace ringside::tests
