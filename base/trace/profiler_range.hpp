// NVTX ranges, which Nsight Systems shows beside the work of the GPU. Code that records a phase, a
// call or a wait in a Trace (trace.hpp) opens a range for the same time.
//
//     nsys profile --trace=cuda,nvtx ringside train -n 2 ...
//
// There is no switch. A profiler announces itself in the environment (NVTX_INJECTION64_PATH);
// without one, a range only tests a pointer. In a build without the CUDA Toolkit ranges do nothing.
#pragma once

#include <string_view>

namespace ringside {

// A range from construction to destruction, on the calling thread. Ranges of a thread are nested.
class ProfilerRange {
 public:
  // The name of the range is the three arguments joined by spaces: "backward", "wait for all_reduce
  // bucket 3".
  explicit ProfilerRange(std::string_view name, std::string_view what = {},
                         std::string_view about = {});
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace ringside
