// The simple executor: one step after the other, each chunk in one message.
//
// It does what a schedule says and nothing more, so it is the one to read first, and to step
// through first:
//
//     RINGSIDE_EXECUTOR=simple gdb --args build/debug/bin/ringside hello -n 4 --backend threads
//     (gdb) break SimpleExecutor::exchange_messages
//
// The whole buffer lies in a workspace: the input is copied in before the first step, and the
// result is copied out after the last. Slow is fine here; the results are those of the pipelined
// executor, bit for bit.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/execution/executor.hpp"

namespace ringside::collectives {

class SimpleExecutor final : public Executor {
 public:
  using Executor::Executor;

 private:
  void move_data(const Task& task) override;
  void exchange_messages(const Task& task, int step);
  std::span<const std::byte> outgoing(const Task& task, const Send& send) const;
  void apply(const Task& task, const Receive& receive);

  std::vector<std::byte> workspace_;  // all chunks of the buffer
  std::vector<std::byte> incoming_;   // the message that arrived in this step
};

}  // namespace ringside::collectives
