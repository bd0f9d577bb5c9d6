#include "collectives/execution/executor.hpp"

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/warn.hpp"
#include "collectives/execution/executor_options.hpp"

namespace ringside::collectives {

void warn_on_stderr(const std::string& sentence) {
  warn("{}", sentence);
}

ExecutorKind executor_from_environment() {
  const std::string name = environment("RINGSIDE_EXECUTOR").value_or("pipelined");
  require(name == "pipelined" || name == "simple",
          "RINGSIDE_EXECUTOR must be pipelined or simple, not '{}'", name);
  return name == "simple" ? ExecutorKind::simple : ExecutorKind::pipelined;
}

std::unique_ptr<Executor> make_executor(Transport& transport, const ExecutorOptions& options) {
  if (options.kind.value_or(executor_from_environment()) == ExecutorKind::simple)
    return make_simple_executor(transport);
  return make_pipelined_executor(transport, options);
}

MessageHeader Executor::header(const Task& task, int step, std::size_t elements) const {
  MessageHeader header;
  header.job = transport_.job();
  header.sequence = task.sequence;
  header.call = task.call;
  if (task.call.unequal) header.call.count = elements;
  header.step = static_cast<std::uint32_t>(step);
  header.slice = MessageHeader::not_sliced;
  header.bytes = elements * size_of(task.call.type);
  return header;
}

}  // namespace ringside::collectives
