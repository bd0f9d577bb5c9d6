// The simple executor: one step after the other, each chunk in one message.
//
// It does what a schedule says and nothing more, so it is the one to read first, and to step
// through first:
//
//     RINGSIDE_EXECUTOR=simple gdb --args build/debug/bin/ringside hello -n 4 --backend threads
//     (gdb) break SimpleExecutor::exchange_messages
//
// The whole buffer lies in a workspace: the input is copied in before the first step, and the
// result is copied out after the last. The results are the pipelined executor's, bit for bit.
#include <algorithm>
#include <vector>

#include "collectives/execution/executor.hpp"
#include "collectives/execution/reduce.hpp"

namespace ringside::collectives {

// The bytes of the chunks of `range`, in a buffer that begins with chunk `first`.
template <class Byte>
static std::span<Byte> bytes_of(const Task& task, const Chunks& chunks, Byte* buffer, int first,
                                ChunkRange range) {
  const std::size_t element = size_of(task.call.type);
  const std::size_t offset = chunks.begin(range) - chunks.begin(first);
  return {buffer + offset * element, chunks.size(range) * element};
}

static void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

class SimpleExecutor final : public Executor {
 public:
  using Executor::Executor;

  void run(const Task& task) override {
    const auto& [input, given, output, kept] = task.buffers;
    workspace_.resize(task.chunks.count() * size_of(task.call.type));
    // If input and output are divided differently, only this rank's own block is as long in both.
    const bool differ = task.call.unequal && task.call.collective == Collective::all_to_all;
    const ChunkRange held_first = differ ? ChunkRange{transport_.rank(), 1} : given;
    copy(input_bytes(task, held_first), held(task, held_first));
    for (int step = 0; step < static_cast<int>(task.schedule.steps.size()); ++step) {
      exchange_messages(task, step);
      if (const auto& receive = task.schedule.steps[step].receive) apply(task, *receive);
    }
    copy(held(task, kept), bytes_of(task, task.chunks, output, kept.first, kept));
  }

 private:
  // Sends this rank's message of the step, and waits until it is sent and the other has arrived in
  // incoming_. It is applied afterwards: a rank sends what it held before the step. And every rank
  // takes its message before it waits for anything else, so two ranks that exchange chunks do not
  // wait for each other.
  void exchange_messages(const Task& task, int step) {
    const auto& [send, receive] = task.schedule.steps[step];
    if (receive) incoming_.resize(task.extent(*receive).elements() * size_of(task.call.type));
    if (send && send->to == transport_.rank())  // to itself, without the transport
      return copy(outgoing(task, *send), incoming_);
    if (send)
      transport_.post_send(send->to, header(task, step, task.extent(*send).elements()),
                           outgoing(task, *send));
    if (receive)
      transport_.post_receive(receive->from, header(task, step, task.extent(*receive).elements()),
                              incoming_);
    for (bool sent = !send, received = !receive; !sent || !received;) {
      const bool arrived = transport_.wait(Deadline::never())->kind == Completion::received;
      if (arrived) transport_.release();
      (arrived ? received : sent) = true;
    }
  }

  // A copy of what a send carries: what this rank holds now, or its input as it was given.
  std::span<const std::byte> outgoing(const Task& task, const Send& send) {
    packed_.clear();
    for (int i = 0; i < send.taken().pieces(); ++i) {
      const ChunkRange piece = send.taken().piece(i);
      const auto bytes = send.input ? input_bytes(task, piece) : held(task, piece);
      packed_.insert(packed_.end(), bytes.begin(), bytes.end());
    }
    return packed_;
  }

  static std::span<const std::byte> input_bytes(const Task& task, ChunkRange range) {
    return bytes_of(task, task.input_chunks, task.buffers.input, task.buffers.given.first, range);
  }

  // Adds the message that has arrived to what this rank holds, or replaces that.
  void apply(const Task& task, const Receive& receive) {
    std::span<const std::byte> arrived = incoming_;
    for (int i = 0; i < receive.chunks.pieces(); ++i) {
      const auto into = held(task, receive.chunks.piece(i));
      if (receive.action == Action::overwrite)
        copy(arrived.first(into.size()), into);
      else
        combine(task.call.type, task.call.reduce, into.data(), into.data(), arrived.data(),
                into.size() / size_of(task.call.type));
      arrived = arrived.subspan(into.size());
    }
  }

  std::span<std::byte> held(const Task& task, ChunkRange range) {
    return bytes_of(task, task.chunks, workspace_.data(), 0, range);
  }

  std::vector<std::byte> workspace_;  // all chunks of the buffer
  std::vector<std::byte> incoming_;   // the message that arrived in this step
  std::vector<std::byte> packed_;     // the message that leaves in this step
};

std::unique_ptr<Executor> make_simple_executor(Transport& transport) {
  return std::make_unique<SimpleExecutor>(transport);
}

}  // namespace ringside::collectives
