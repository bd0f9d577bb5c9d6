#include "collectives/execution/executor.hpp"

#include "base/trace.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/execution/watchdog.hpp"

namespace ringside::collectives {

void warn_on_stderr(const std::string& sentence) {
  fmt::print(stderr, "ringside: {}\n", sentence);
}

Executor::Executor(Transport& transport, ControlChannel& control, const ExecutorOptions& options)
    : transport_(transport), watchdog_(std::make_unique<Watchdog>(transport_, control, options)) {}

Executor::~Executor() = default;

void Executor::run(const Task& task) {
  watchdog_->begin(task);
  try {
    move_data(task);
    watchdog_->end();
  } catch (...) {
    watchdog_->give_up();
  }
}

void Executor::abort(const RankFailure& cause) noexcept {
  watchdog_->abort(cause);
}

Completion Executor::wait(const Progress& progress) {
  const Completion completion = watchdog_->wait(progress);
  if (Trace* trace = Trace::here(); trace && completion.kind == Completion::received)
    trace->add(Trace::Message{.kind = Trace::Message::received,
                              .peer = progress.peer,
                              .step = progress.step,
                              .time = Clock::now()});
  return completion;
}

void send_message(Transport& transport, int peer, const MessageHeader& header,
                  std::span<const std::byte> payload) {
  if (Trace* trace = Trace::here())
    trace->add(Trace::Message{.kind = Trace::Message::sent,
                              .peer = peer,
                              .step = static_cast<int>(header.step),
                              .slice = header.slice,
                              .bytes = header.bytes,
                              .time = Clock::now()});
  transport.post_send(peer, header, payload);
}

MessageHeader Executor::header(const Task& task, int step, ChunkRange chunks) const {
  MessageHeader header;
  header.job = transport_.job();
  header.sequence = task.sequence;
  header.call = task.call;
  header.step = static_cast<std::uint32_t>(step);
  header.slice = MessageHeader::not_sliced;
  header.bytes = task.chunks.size(chunks) * size_of(task.call.type);
  return header;
}

}  // namespace ringside::collectives
