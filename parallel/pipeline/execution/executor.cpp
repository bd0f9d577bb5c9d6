#include "parallel/pipeline/execution/executor.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "autograd/kernels/profile.hpp"
#include "base/error.hpp"
#include "base/trace/trace.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "ddp/tensor_collectives.hpp"
#include "parallel/pipeline/lower.hpp"

namespace ringside::pipeline_parallel {

using autograd::Tensor;

namespace {

const char* phase_of(Kind kind) {
  constexpr std::array computations{"forward", "backward", "backward input", "backward weight"};
  return is_computation(kind) ? computations.at(static_cast<std::size_t>(kind))
                              : "reduce gradients";
}

// Both ends name a message by what its receiver does with it: a number for each tensor that crosses
// a boundary in a step, and words for errors and traces.
Action as_received(const Action& message) {
  return is_send(message.kind) ? matching(message) : message;
}
std::int32_t tag_of(const Action& message, const Schedule& schedule) {
  const Action received = as_received(message);
  return 2 * (received.micro_batch * schedule.stages() + received.stage) +
         (carries_gradient(received.kind) ? 1 : 0);
}
std::string label_of(const Action& message) {
  return fmt::format("{} of micro-batch {} to stage {}",
                     carries_gradient(message.kind) ? "gradients" : "activations",
                     message.micro_batch, as_received(message).stage);
}

}  // namespace

Executor::Executor(const Schedule& lowered, int rank, collectives::Messages& messages,
                   StageWork& work, std::vector<std::string> names)
    : schedule_(lowered), rank_(rank), messages_(messages), work_(work), names_(std::move(names)) {
  require(messages.size() == lowered.ranks(),
          "the schedule is for {} ranks, but the pipeline has {}", lowered.ranks(),
          messages.size());
  require(has_messages(lowered) || lowered.ranks() == 1,
          "the executor needs the messages between ranks: call lower() on the schedule first");
  for (int r = static_cast<int>(names_.size()); r < lowered.ranks(); ++r)
    names_.push_back(fmt::format("rank {} of the pipeline", r));
}

void Executor::run() {
  doing_.reset();
  try {
    for (const Action& action : schedule_.actions[rank_]) {
      carry_out(action);
      free_what_has_left();
    }
    for (const Message& each : leaving_) each.work.wait();
    leaving_.clear();
    require(held_.empty(), "{} tensors were left over: some action of the schedule is missing",
            held_.size());
  } catch (const collectives::RankFailure& failure) {
    // Another rank's sentence is passed on as it is.
    give_up(failure.heard_from_another()
                ? failure.cause
                : fmt::format("{}: {}", doing_ ? describe(*doing_) : "", failure.what()));
  } catch (const std::exception& error) {
    give_up(fmt::format("{}: {}", doing_ ? describe(*doing_) : "", error.what()));
  }
}

void Executor::give_up(const std::string& cause) {
  messages_.abort(cause);
  posted_.clear();
  leaving_.clear();
  held_.clear();
  throw Error(cause);
}

void Executor::carry_out(const Action& action) {
  doing_ = action;
  if (is_send(action.kind)) return send(action);
  if (is_receive(action.kind)) return post(action);
  if (const auto needed = receive_before(schedule_, action)) {
    doing_ = *needed;
    wait_for(*needed);
    doing_ = action;
  }
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
  Tensor tensor = take(action, action);
  const std::string label = label_of(action);
  const collectives::Buffer buffer = ddp::buffer_of(tensor, label);
  const int to = schedule_.rank_of[other_stage(action)];
  leaving_.push_back(
      {std::move(tensor), messages_.send(buffer, to, tag_of(action, schedule_), label)});
}

void Executor::free_what_has_left() {
  leaving_.remove_if([](const Message& message) {
    if (!message.work.done()) return false;
    message.work.wait();  // throws what the send threw
    return true;
  });
}

// Gives a message a tensor to come into.
void Executor::post(const Action& receive) {
  Tensor tensor = work_.empty_for(receive);
  const std::string label = label_of(receive);
  const collectives::Buffer buffer = ddp::buffer_of(tensor, label);
  const int from = schedule_.rank_of[other_stage(receive)];
  auto work = messages_.recv(buffer, from, tag_of(receive, schedule_), label);
  posted_.emplace(receive, Message{std::move(tensor), std::move(work)});
}

void Executor::wait_for(const Action& receive) {
  const auto found = posted_.find(receive);
  require(found != posted_.end(), "{} is needed before it is posted", text_of(receive));
  found->second.work.wait();
  held_[receive] = std::move(found->second.tensor);
  posted_.erase(found);
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
