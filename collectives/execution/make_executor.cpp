#include "collectives/execution/make_executor.hpp"

#include "base/environment.hpp"
#include "collectives/execution/pipelined_executor.hpp"

namespace ringside::collectives {

ExecutorKind executor_from_environment() {
  const std::string name = environment("RINGSIDE_EXECUTOR").value_or("pipelined");
  require(name == "pipelined" || name == "simple",
          "RINGSIDE_EXECUTOR must be pipelined or simple, not '{}'", name);
  return name == "simple" ? ExecutorKind::simple : ExecutorKind::pipelined;
}

std::unique_ptr<Executor> make_executor(Transport& transport, ControlChannel& control,
                                        const ExecutorOptions& options) {
  if (options.kind.value_or(executor_from_environment()) == ExecutorKind::simple)
    return make_simple_executor(transport, control, options);
  return std::make_unique<PipelinedExecutor>(transport, control, options);
}

}  // namespace ringside::collectives
