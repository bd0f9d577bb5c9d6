// A function with a stack of its own, on the thread that resumes it: how the threads of
// emulated GPUs, and the ranks of a simulated job (tests/collectives/simulation), run on one
// thread, one at a time, and in an order that only the emulation or simulation chooses.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ringside::exercises {

class Fiber {
 public:
  // `body` runs with the first resume(), and must not throw.
  explicit Fiber(std::function<void()> body);
  ~Fiber();  // does not run the rest of the body: its objects are not destroyed
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it calls suspend(), or returns.
  void resume();
  void suspend();  // in the body: returns with the next resume()
  bool done() const { return done_; }

 private:
  struct Context;
  static void enter(unsigned low, unsigned high);
  void run();

  std::function<void()> body_;
  std::unique_ptr<Context> context_;
  bool done_ = false;
};

}  // namespace ringside::exercises
