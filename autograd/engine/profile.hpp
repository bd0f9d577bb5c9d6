// Where the time of a training step goes: which op, forward or backward, and how much of it in
// matrix products.
//
//     Profile profile;                          the ops of this thread report to it while it lives
//     loss = model.loss(...);  backward(loss);
//     clip_grad_norm(...);     profile.mark("clip");
//     for (const auto& op : profile.ops()) ...
//
// Forward, an op is given the time since the last report: what is not an op itself counts for the
// op that comes next. Where a Trace (base/trace.hpp) records too, each report becomes a span there,
// and tells how much memory is held by then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/kernels/gemm.hpp"
#include "base/clock.hpp"

namespace ringside::autograd {

struct OpTime {
  std::string name;
  double forward = 0, backward = 0;  // seconds
  int calls = 0;                     // forward
};

// A product that was computed: C = op(A) op(B), m x k times k x n, so often.
struct Product {
  Transpose a, b;
  std::int64_t m, n, k;
  int calls = 0;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * calls;
  }
};

class Profile {
 public:
  // `settle` is called before every look at the clock: on a device, where ops only begin when they
  // are asked for, it waits until all are done. The step takes longer for it.
  explicit Profile(std::function<void()> settle = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // The time since the last report was that of `name`, which is no op.
  void mark(std::string_view name) { entry(name).forward += lap(name, ""); }

  const std::vector<OpTime>& ops() const { return ops_; }  // in the order of their first report
  double gemm_seconds() const { return gemm_seconds_; }    // of the ops' time
  const std::vector<Product>& products() const { return products_; }

  // What ops, the engine and gemm call. They do nothing on a thread that has no profile.
  static void note_forward(const char* op) {
    if (active_) active_->add_forward(op);
  }
  static void note_backward(const char* op) {
    if (active_) active_->add_backward(op);
  }
  static void note_gemm(const Product& product, double seconds) {
    if (active_) active_->add_gemm(product, seconds);
  }
  // What comes next begins now: the time since the last report was nobody's.
  static void begin() {
    if (active_) active_->last_ = Clock::now();
  }
  static bool on() { return active_ != nullptr; }

 private:
  OpTime& entry(std::string_view name);
  double lap(std::string_view op, const char* direction);
  void add_forward(const char* op);
  void add_backward(const char* op);
  void add_gemm(const Product& product, double seconds);

  static constinit thread_local Profile* active_;
  Profile* outer_;
  std::function<void()> settle_;
  Clock::time_point last_ = Clock::now();
  std::vector<OpTime> ops_;
  std::vector<Product> products_;
  double gemm_seconds_ = 0;
};

}  // namespace ringside::autograd
