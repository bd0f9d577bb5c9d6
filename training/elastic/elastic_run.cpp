#include "training/elastic/elastic_run.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text/words.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "ddp/tensor_collectives.hpp"
#include "training/interrupt.hpp"
#include "training/state/training_state.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::training {

using collectives::ProcessGroup;
using collectives::ReduceOp;

namespace {

std::unique_ptr<transformer::Model> model_of(const Plan& plan) {
  auto model = std::make_unique<transformer::Model>(plan.config, plan.dtype, plan.device);
  if (!plan.init.empty()) transformer::load_parameters(plan.init, *model);
  return model;
}

}  // namespace

ElasticRun::ElasticRun(const Plan& plan, collectives::RankInfo rank_info, std::string backend,
                       const transformer::Corpus& corpus, Observer observer)
    : plan_(plan),
      membership_(std::move(rank_info), std::move(backend)),
      model_(model_of(plan)),
      trainer_(*model_, corpus, alone_, plan.options, watched(std::move(observer))) {
  if (plan.resumed) load_state(*plan.resumed, *model_, trainer_);
}

Observer ElasticRun::watched(Observer observer) {
  observer.after_step = [this, then = std::move(observer.after_step)](const StepReport& report) {
    last_ = report;
    last_->members = membership_.members();
    if (then) then(*last_);
  };
  observer.interrupted = [this] { return interrupted_by() != 0 || membership_.somebody_waits(); };
  return observer;
}

void ElasticRun::run(ElasticRank& rank) {
  std::string loss;                  // of a member: what this rank was told of it
  for (std::int64_t steps = -1;;) {  // whose state this rank has
    std::optional<ProcessGroup> group = membership_.join(steps);
    if (!group) return;
    const auto strategy = make_strategy(plan_.strategy, *group, plan_.bucket_mb);
    try {
      rank.meet(*group);
      // It counts as one without a state until it has all of it.
      if (membership_.newest_step() != steps) steps = -1;
      share_state(*strategy, *group, steps < 0);
      steps = trainer_.steps_taken();
      std::vector<int> members = membership_.members();
      std::ranges::sort(members);
      rank.begin({*group, trainer_, membership_.newest_step() < 0,
                  fmt::format("{} after step {}{}", ranks_in_words(members), steps, loss),
                  last_ && last_->step == steps ? &*last_ : nullptr});
      if (!membership_.too_few()) trainer_.run(plan_.stop_at);
      if (is_over(*group)) return rank.end();
      loss.clear();
    } catch (const collectives::RankFailure& failure) {
      const std::string reason = failure.what();
      loss = ": " + reason.substr(0, reason.find(" ["));  // without the calls of all ranks
    } catch (const std::exception& error) {
      group->abort(error.what());
      throw;
    }
    if (steps >= 0) steps = trainer_.steps_taken();
  }
}

// All ranks go on from rank 0's number of steps and parameters and, unless all have taken equally
// many, the state of its optimizer. `is_new`: this rank has come without a state.
void ElasticRun::share_state(ParallelStrategy& strategy, ProcessGroup& group, bool is_new) {
  std::array<std::int64_t, 1> steps{trainer_.steps_taken()};
  group.broadcast(std::span(steps), 0, "steps taken");
  std::array<std::int64_t, 1> lacks_state{is_new || steps[0] != trainer_.steps_taken()};
  trainer_.change_strategy(strategy, steps[0]);
  group.all_reduce(std::span(lacks_state), ReduceOp::max, "ranks without the state");
  if (lacks_state[0] == 0) return;
  for (const auto& [name, tensor] : trainer_.optimizer().state())
    ddp::broadcast(tensor, 0, group, name);
}

// Whether the run has come to its end, and not to another generation. A signal, unlike a rank that
// waits, ends it: if any rank has had it.
bool ElasticRun::is_over(ProcessGroup& group) {
  if (trainer_.steps_taken() >= plan_.last_step() || membership_.too_few()) return true;
  std::array<std::int64_t, 1> signal{interrupted_by()};
  group.all_reduce(std::span(signal), ReduceOp::max, "signals");
  return signal[0] != 0;
}

}  // namespace ringside::training
