// How an executor runs: which one, how it divides messages, and how long it waits.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"

namespace ringside::collectives {

enum class ExecutorKind { pipelined, simple };

// The kind that RINGSIDE_EXECUTOR names, "pipelined" or "simple"; pipelined if it is unset. Throws
// Error where it names anything else.
ExecutorKind executor_from_environment();

void warn_on_stderr(const std::string& sentence);

struct ExecutorOptions {
  std::optional<ExecutorKind> kind = {};  // none: what RINGSIDE_EXECUTOR says
  std::size_t slice_bytes = 0;  // of a message at most, the same on every rank; 0: the transport's
  int slices_per_segment = 4;
  bool announces = true;   // what the transport can announce, instead of sending messages
  std::string group = {};  // the name of a sub-group; empty: all ranks of the job
  Seconds timeout{120};    // how long a rank may wait without any progress
  Seconds warn_after{10};  // how long a rank waits before it warns; 0: it never warns
  std::function<void(const std::string& sentence)> warn = warn_on_stderr;
  // Called about 20 times a second by a thread that waits for other ranks. What it throws ends the
  // call.
  std::function<void()> check = {};
};

}  // namespace ringside::collectives
