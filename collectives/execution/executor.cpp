#include "collectives/execution/executor.hpp"

#include "collectives/execution/watchdog.hpp"

namespace ringside::collectives {

void warn_on_stderr(const std::string& sentence) {
  fmt::print(stderr, "ringside: {}\n", sentence);
}

Executor::Executor(Transport& transport, ControlChannel& control, ExecutorOptions options)
    : transport_(transport),
      options_(std::move(options)),
      watchdog_(std::make_unique<Watchdog>(transport_, control, options_)) {
  if (options_.slice_bytes == 0) options_.slice_bytes = transport.slice_bytes();
}

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

Completion Executor::wait(const Progress& progress) {
  return watchdog_->wait(progress);
}

MessageHeader Executor::header(const Task& task, int step, std::uint32_t slice,
                               std::size_t bytes) const {
  MessageHeader header;
  header.job = transport_.job();
  header.sequence = task.sequence;
  header.call = task.call;
  header.step = static_cast<std::uint32_t>(step);
  header.slice = slice;
  header.bytes = bytes;
  return header;
}

}  // namespace ringside::collectives
