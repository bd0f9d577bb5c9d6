// Profile: the time that each op takes in a training step, forward and backward, and the part of it
// that matrix products take.
//
//     Profile profile;                          while it lives, the ops of this thread report to it
//     loss = model.loss(...);  backward(loss);
//     clip_grad_norm(...);     profile.mark("clip");
//     for (const auto& op : profile.ops()) ...
//
// Each report charges the op with the time since the previous report. So in forward, time outside
// of ops is charged to the next op. If this thread records a Trace (base/trace/trace.hpp), each
// report also becomes a span there, with the memory in use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/kernels/products/gemm.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "base/clock.hpp"
#include "base/scoped_value.hpp"

namespace ringside::autograd {

struct OpTime {
  std::string name;
  double forward = 0, backward = 0;  // seconds
  int calls = 0;                     // of forward
};

// C = op(A) op(B), m x k times k x n, computed `calls` times.
struct Product {
  Transpose a, b;
  std::int64_t m, n, k;
  bool bf16 = false;  // op(A) and op(B) are bf16 numbers, the sums are fp32
  int calls = 0;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * calls;
  }
};

class Profile {
 public:
  // The times are those of the host; or of `device`, which starts an op when the host has long gone
  // on. Then each report marks the stream, and nobody waits.
  explicit Profile(Device device = Device::cpu);

  // Charges the time since the last report to `name`, which is no op.
  void mark(std::string_view name) { end_lap(entry(name), &OpTime::forward, name, ""); }

  // In the order of their first report. Waits for the device.
  const std::vector<OpTime>& ops();
  double gemm_seconds() const { return gemm_seconds_; }  // included in the times of the ops
  const std::vector<Product>& products() const { return products_; }

  // Reports of ops, the engine and gemm. On a thread without a profile they do nothing.
  static void note_forward(const char* op);
  static void note_backward(const char* op);
  static void note_gemm(const Product& product, double seconds);
  // The time since the last report is charged to nothing: the next op begins now.
  static void begin();
  static bool on() { return active_ != nullptr; }

 private:
  // A part of a device's stream.
  struct Lap {
    std::size_t op;
    double OpTime::*time;
    std::shared_ptr<StreamMark> begin, end;
  };

  OpTime& entry(std::string_view name);
  void end_lap(OpTime& op, double OpTime::*time, std::string_view name, const char* direction);

  static constinit thread_local Profile* active_;
  ScopedValue<Profile*> here_;
  DeviceMemory* device_;  // nullptr: the times are the host's
  Clock::time_point last_ = Clock::now();
  std::shared_ptr<StreamMark> last_mark_;
  std::vector<Lap> laps_;
  std::vector<OpTime> ops_;
  std::vector<Product> products_;
  double gemm_seconds_ = 0;
};

}  // namespace ringside::autograd
