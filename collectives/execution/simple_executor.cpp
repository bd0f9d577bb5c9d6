#include "collectives/execution/simple_executor.hpp"

#include <algorithm>

#include "collectives/execution/reduce.hpp"

namespace ringside::collectives {
namespace {

// The bytes of the chunks of `range`, in a buffer that begins with chunk `first`.
template <class Byte>
std::span<Byte> bytes_of(const Task& task, Byte* buffer, int first, ChunkRange range) {
  const std::size_t element = size_of(task.call.type);
  const std::size_t offset = task.chunks.begin(range) - task.chunks.begin(first);
  return {buffer + offset * element, task.chunks.size(range) * element};
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

void SimpleExecutor::move_data(const Task& task) {
  const auto& [input, given, output, kept] = task.buffers;
  workspace_.resize(task.chunks.count() * size_of(task.call.type));
  copy(bytes_of(task, input, given.first, given), bytes_of(task, workspace_.data(), 0, given));

  const int steps = static_cast<int>(task.schedule.steps.size());
  for (int step = 0; step < steps; ++step) {
    exchange_messages(task, step);
    const auto& receive = task.schedule.steps[step].receive;
    if (receive) apply(task, *receive);
  }

  copy(bytes_of(task, workspace_.data(), 0, kept), bytes_of(task, output, kept.first, kept));
}

// Sends this rank's message of the step, and waits until it is sent and the other has arrived in
// incoming_. It is applied afterwards: a rank sends what it held before the step. And every rank
// takes its message before it waits for anything else, so two ranks that exchange chunks do not
// wait for each other.
void SimpleExecutor::exchange_messages(const Task& task, int step) {
  const auto& [send, receive] = task.schedule.steps[step];
  if (send && send->to == transport_.rank()) {  // to itself, without the transport
    const auto payload = outgoing(task, *send);
    incoming_.assign(payload.begin(), payload.end());
    return;
  }
  if (send) {
    const auto payload = outgoing(task, *send);
    transport_.post_send(send->to, header(task, step, MessageHeader::not_sliced, payload.size()),
                         payload);
  }
  if (receive) {
    incoming_.resize(task.chunks.size(receive->chunks) * size_of(task.call.type));
    transport_.post_receive(
        receive->from, header(task, step, MessageHeader::not_sliced, incoming_.size()), incoming_);
  }
  bool sent = !send, received = !receive;
  while (!sent || !received) {
    const int peer = received ? send->to : receive->from;
    const Completion completion = wait({step, peer, !received});
    if (completion.kind == Completion::sent) {
      sent = true;
    } else {
      received = true;
      transport_.release();
    }
  }
}

// What a send carries: what this rank holds now, or its input as it was given.
std::span<const std::byte> SimpleExecutor::outgoing(const Task& task, const Send& send) const {
  if (!send.input) return bytes_of(task, workspace_.data(), 0, send.chunks);
  const auto& [input, given, output, kept] = task.buffers;
  return bytes_of(task, input, given.first, {*send.input, send.chunks.count});
}

// Adds the message that has arrived to what this rank holds, or replaces that.
void SimpleExecutor::apply(const Task& task, const Receive& receive) {
  const auto held = bytes_of(task, workspace_.data(), 0, receive.chunks);
  if (receive.action == Action::overwrite)
    copy(incoming_, held);
  else
    combine(task.call.type, task.call.reduce, held.data(), held.data(), incoming_.data(),
            held.size() / size_of(task.call.type));
}

}  // namespace ringside::collectives
