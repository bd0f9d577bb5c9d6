// The executor that the options, or else the environment, ask for.
#pragma once

#include <memory>

#include "collectives/execution/executor.hpp"
#include "collectives/execution/executor_options.hpp"

namespace ringside::collectives {

// The kind that RINGSIDE_EXECUTOR names, "pipelined" or "simple"; pipelined if it is unset. Throws
// Error where it names anything else.
ExecutorKind executor_from_environment();

// An executor of the kind options.kind; without one, of executor_from_environment().
std::unique_ptr<Executor> make_executor(Transport& transport, ControlChannel& control,
                                        const ExecutorOptions& options);

}  // namespace ringside::collectives
