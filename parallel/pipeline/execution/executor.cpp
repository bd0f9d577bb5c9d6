#include "parallel/pipeline/execution/executor.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "autograd/kernels/profile.hpp"
#include "base/error.hpp"
#include "base/trace/trace.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "parallel/pipeline/lower.hpp"

namespace ringside::pipeline_parallel {

using autograd::Tensor;

namespace {

const char* phase_of(Kind kind) {
  constexpr std::array computations{"forward", "backward", "backward input", "backward weight"};
  return is_computation(kind) ? computations.at(static_cast<std::size_t>(kind))
                              : "reduce gradients";
}

}  // namespace

Executor::Executor(const Schedule& lowered, int rank, Lanes& lanes, StageWork& work,
                   std::vector<std::string> names)
    : schedule_(lowered), rank_(rank), lanes_(lanes), work_(work), names_(std::move(names)) {
  require(has_messages(lowered) || lowered.ranks() == 1,
          "the executor needs the messages between ranks: call lower() on the schedule first");
  for (int r = static_cast<int>(names_.size()); r < lowered.ranks(); ++r)
    names_.push_back(fmt::format("rank {} of the pipeline", r));
}

void Executor::run() {
  const Action* current = nullptr;
  try {
    for (const Action& action : schedule_.actions[rank_]) {
      current = &action;
      carry_out(action);
      lanes_.release_received();
    }
    lanes_.wait_for_sends();
    require(held_.empty(), "{} tensors were left over: some action of the schedule is missing",
            held_.size());
  } catch (const collectives::RankFailure& failure) {
    // Another rank's sentence is passed on as it is.
    give_up(failure.heard_from_another()
                ? failure.cause
                : fmt::format("{}: {}", current ? describe(*current) : "", failure.what()));
  } catch (const std::exception& error) {
    give_up(fmt::format("{}: {}", current ? describe(*current) : "", error.what()));
  }
}

void Executor::give_up(const std::string& cause) {
  held_.clear();
  lanes_.abort(cause);
  throw Error(cause);
}

void Executor::carry_out(const Action& action) {
  if (is_send(action.kind)) return send(action);
  if (is_receive(action.kind)) return receive(action);
  Trace* const trace = Trace::here();
  autograd::Profile::begin();
  const auto start = trace ? Clock::now() : Clock::time_point{};
  compute(action);
  if (trace)
    trace->add({Trace::Track::compute, Trace::Kind::phase, phase_of(action.kind), start,
                Clock::now(), text_of(action)});
}

void Executor::compute(const Action& action) {
  const int stage = action.stage, micro_batch = action.micro_batch;
  switch (action.kind) {
    case Kind::forward:
      return hand_on(action, work_.forward(stage, micro_batch, take(input_of(action), action)));
    case Kind::backward:
      return hand_on(action, work_.backward(stage, micro_batch, take(input_of(action), action)));
    case Kind::backward_input:
      return hand_on(action,
                     work_.backward_input(stage, micro_batch, take(input_of(action), action)));
    case Kind::backward_weight:
      return work_.backward_weight(stage, micro_batch);
    case Kind::reduce_gradients:
      return work_.reduce_gradients(stage);
    default:
      fail("{} is no computation", text_of(action));
  }
}

// What a computation made goes to the neighbouring stage: on this rank at once, to another rank
// with the send that follows.
void Executor::hand_on(const Action& action, Tensor made) {
  const Action message = output_of(action);
  const int next = other_stage(message);
  if (!schedule_.has_stage(next)) return;
  const bool here = schedule_.rank_of[next] == rank_;
  held_[here ? matching(message) : message] = std::move(made);
}

void Executor::send(const Action& action) {
  lanes_.send(action, take(action, action));
}

void Executor::receive(const Action& action) {
  const Tensor tensor = work_.empty_for(action);
  lanes_.receive(action, tensor);
  held_[action] = tensor;
}

// The first stage has no input, the last stage no gradient of its result: undefined.
Tensor Executor::take(const Action& message, const Action& by) {
  if (!schedule_.has_stage(other_stage(message))) return {};
  auto taken = held_.extract(message);
  require(!taken.empty(), "no earlier action of this rank made or received what {} needs",
          text_of(by));
  return std::move(taken.mapped());
}

std::string Executor::stage_name(int stage) const {
  const int rank = schedule_.rank_of[stage];
  return fmt::format("stage {} ({})", stage, names_[rank]);
}

// "stage 2 (pp=1,dp=0) failed in forward of micro-batch 3"
std::string Executor::describe(const Action& action) const {
  const std::string stage = stage_name(action.stage);
  if (is_computation(action.kind))
    return fmt::format("{} failed in {} of micro-batch {}", stage, phase_of(action.kind),
                       action.micro_batch);
  if (action.kind == Kind::reduce_gradients)
    return fmt::format("{} failed in the reduction of its gradients", stage);
  return fmt::format("{} could not {} {} of micro-batch {} {} {}", stage,
                     is_send(action.kind) ? "send" : "receive",
                     carries_gradient(action.kind) ? "the gradients" : "the activations",
                     action.micro_batch, is_send(action.kind) ? "to" : "from",
                     stage_name(other_stage(action)));
}

Schedule forward_only(const std::vector<int>& rank_of, int micro_batches) {
  Schedule schedule{.micro_batches = micro_batches, .rank_of = rank_of, .actions = {}};
  schedule.actions.resize(*std::max_element(rank_of.begin(), rank_of.end()) + 1);
  for (int i = 0; i < micro_batches; ++i)
    for (int stage = 0; stage < schedule.stages(); ++stage)
      schedule.actions[rank_of[stage]].push_back({Kind::forward, stage, i});
  return lower(schedule);
}

}  // namespace ringside::pipeline_parallel
