#include "collectives/execution/executor.hpp"

#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/execution/watchdog.hpp"

namespace ringside::collectives {

void warn_on_stderr(const std::string& sentence) {
  fmt::print(stderr, "ringside: {}\n", sentence);
}

Executor::Executor(Transport& transport, ControlChannel& control, ExecutorOptions options)
    : transport_(transport),
      control_(control),
      options_(std::move(options)),
      recorder_(std::make_unique<FlightRecorder>(
          transport.rank(), transport.size(), flight_folder_from_environment(), options_.group)) {
  if (options_.slice_bytes == 0) options_.slice_bytes = transport.slice_bytes();
}

Executor::~Executor() = default;

void Executor::run(const Task& task) {
  Watchdog watchdog(transport_, control_, options_, *recorder_, task);
  try {
    move_data(task, watchdog);
    watchdog.done();
  } catch (...) {
    watchdog.give_up();
  }
}

MessageHeader Executor::header(const Task& task, int step, int slice, std::size_t bytes) const {
  MessageHeader header;
  header.job = transport_.job();
  header.sequence = task.sequence;
  header.call = task.call;
  header.step = static_cast<std::uint32_t>(step);
  header.slice = static_cast<std::uint32_t>(slice);
  header.bytes = bytes;
  return header;
}

}  // namespace ringside::collectives
