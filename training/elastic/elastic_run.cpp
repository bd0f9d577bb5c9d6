#include "training/elastic/elastic_run.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text/words.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "ddp/tensor_collectives.hpp"
#include "training/interrupt.hpp"
#include "training/plan/same_options.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::training {

using collectives::ProcessGroup;
using collectives::ReduceOp;

ElasticRun::ElasticRun(const Plan& plan, collectives::RankInfo rank_info, std::string backend,
                       const transformer::Corpus& corpus, Reporter& reporter)
    : Run(plan, corpus, reporter), membership_(std::move(rank_info), std::move(backend)) {
  make_trainer(alone_);
  if (saves()) catch_interrupts();
}

Observer ElasticRun::observer() {
  Observer observer = Run::observer();
  observer.after_step = [this, then = std::move(observer.after_step)](const StepReport& report) {
    last_ = report;
    last_->members = membership_.members();
    then(*last_);
  };
  observer.interrupted = [this] { return interrupted_by() != 0 || membership_.somebody_waits(); };
  return observer;
}

void ElasticRun::run() {
  std::string loss;                  // of a member: what this rank was told of it
  for (std::int64_t steps = -1;;) {  // whose state this rank has
    std::optional<ProcessGroup> group = membership_.join(steps);
    if (!group) return;
    const auto strategy = make_strategy(plan_.strategy, *group, plan_.bucket_mb);
    try {
      meet(*group);
      // It counts as one without a state until it has all of it.
      if (membership_.newest_step() != steps) steps = -1;
      share_state(*strategy, *group, steps < 0);
      steps = trainer_->steps_taken();
      std::vector<int> members = membership_.members();
      std::ranges::sort(members);
      begin(*group, fmt::format("{} after step {}{}", ranks_in_words(members), steps, loss));
      // The rank that wrote before may have been lost after this step.
      if (metrics_ && last_ && last_->step == steps && steps > metrics_->last_step())
        metrics_->step(*last_);
      if (!membership_.too_few()) trainer_->run(plan_.stop_at);
      if (is_over(*group)) return end();
      loss.clear();
    } catch (const collectives::RankFailure& failure) {
      const std::string reason = failure.what();
      loss = ": " + reason.substr(0, reason.find(" ["));  // without the calls of all ranks
    } catch (const std::exception& error) {
      group->abort(error.what());
      throw;
    }
    if (steps >= 0) steps = trainer_->steps_taken();
  }
}

// A new group, before rank 0 has heard from this rank: then it may write to the same folder.
void ElasticRun::meet(ProcessGroup& group) {
  if (group.rank() != 0) saving_.finish();
  Options options = shared_options(plan_);
  std::erase_if(options, [](const auto& option) { return option.first == "--resume"; });
  require_same_options(options, group);
}

// All ranks go on from rank 0's number of steps and parameters and, unless all have taken equally
// many, the state of its optimizer. `is_new`: this rank has come without a state.
void ElasticRun::share_state(ParallelStrategy& strategy, ProcessGroup& group, bool is_new) {
  std::array<std::int64_t, 1> steps{trainer_->steps_taken()};
  group.broadcast(std::span(steps), 0, "steps taken");
  std::array<std::int64_t, 1> lacks_state{is_new || steps[0] != trainer_->steps_taken()};
  trainer_->change_strategy(strategy, steps[0]);
  group.all_reduce(std::span(lacks_state), ReduceOp::max, "ranks without the state");
  if (lacks_state[0] == 0) return;
  for (const auto& [name, tensor] : trainer_->optimizer().state())
    ddp::broadcast(tensor, 0, group, name);
}

// Whether the run has come to its end, and not to another generation. A signal, unlike a rank that
// waits, ends it: if any rank has had it.
bool ElasticRun::is_over(ProcessGroup& group) {
  if (trainer_->steps_taken() >= plan_.last_step() || membership_.too_few()) return true;
  std::array<std::int64_t, 1> signal{interrupted_by()};
  group.all_reduce(std::span(signal), ReduceOp::max, "signals");
  return signal[0] != 0;
}

}  // namespace ringside::training
