// What the judges of the GPU exercises share: numbers for a kernel, and sentences about its memory.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "exercises/judge/gpu/gpu.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

// Numbers of emulated global memory. The first one lies `offset` numbers behind a multiple of 128
// bytes. NaN are left and right of them.
template <class T>
class GpuNumbers {
 public:
  GpuNumbers(const char* name, const std::vector<float>& values, int offset = 0)
      : GpuNumbers(name, static_cast<std::int64_t>(values.size()), offset) {
    is_output_ = false;
    std::ranges::transform(values, data(), [](float x) { return T(x); });
  }
  // An output.
  GpuNumbers(const char* name, std::int64_t size, int offset = 0)
      : name_(name), size_(size), offset_(offset) {
    const std::size_t lines = (static_cast<std::size_t>(size + offset) * sizeof(T)) / 128 + 1;
    lines_.resize(lines);
    std::fill_n(reinterpret_cast<T*>(lines_.data()), lines * 128 / sizeof(T),
                T(std::is_same_v<T, int> ? 0.0f : std::numeric_limits<float>::quiet_NaN()));
  }
  // Read and written.
  void make_output() { is_output_ = true; }

  gpu::Global<T> global() { return {data(), size_, name_, is_output_}; }
  Json json() const;  // null where a number is not finite

 private:
  struct alignas(128) Line {
    std::byte bytes[128];
  };
  T* data() { return reinterpret_cast<T*>(lines_.data()) + offset_; }

  const char* name_;
  std::int64_t size_;
  int offset_;
  bool is_output_ = true;
  std::vector<Line> lines_;
};

Json json_of(const gpu::Report& report);
// Of a gpu::Launch.
const char* turns_text(bool last_first);

// Rows that blocks of threads share.
struct GpuRows {
  std::int64_t rows, n, blocks;
  int threads;
  std::string text(bool last_first) const;
};

// Of `calls` of a block's function by 1,024 threads. "" if none calls sync() more than twice.
std::string fault_of_syncs(const Json& report, const char* function, int calls);
// The first number that is not `expected`, to an error of tolerance (1 + |expected|):
// "y[17] is 3, expected 4". "" if there is none.
std::string fault_of_numbers(const std::string& name, const Json& seen,
                             const std::vector<double>& expected, double tolerance);
// The first line of the kernel whose requests touch more sectors than they need, but for one more
// where a request does not begin with a sector.
std::string fault_of_sectors(const Json& report);
// The first line whose requests of shared memory take more than one pass each.
std::string fault_of_banks(const Json& report);
// Requests of a warp, and the bytes that they ask for, of the lines that read or write `name`.
struct RequestsSeen {
  std::int64_t requests = 0, bytes = 0;
};
RequestsSeen requests_of(const Json& report, const std::string& name, bool writes);

}  // namespace ringside::exercises
