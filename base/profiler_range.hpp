// Ranges that a profiler outside of this process sees, beside what the GPU does meanwhile: NVTX,
// which Nsight Systems reads. Whoever tells the recorder (trace.hpp) of a phase, a call or a wait
// opens one for the same time.
//
//     nsys profile --trace=cuda,nvtx ringside train -n 2 ...
//
// There is nothing to switch on. A profiler that starts the program names itself in the environment
// (NVTX_INJECTION64_PATH); where none does, a range costs a look at a pointer. In a build without
// the CUDA Toolkit there are none.
#pragma once

#include <string_view>

namespace ringside {

// From its making to its end, on the calling thread. Ranges of a thread lie within each other.
class ProfilerRange {
 public:
  // Named by all of these, with blanks between: "backward", "wait for all_reduce bucket 3".
  explicit ProfilerRange(std::string_view name, std::string_view what = {},
                         std::string_view about = {});
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace ringside
