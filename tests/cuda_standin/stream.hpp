// A stream: a thread that carries out the work of one stream in order.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda_standin/edges.hpp"

namespace ringside::standin {

class Stream;

// What streams put into a graph, from cudaStreamBeginCapture on one of them.
struct Capture {
  const Stream* origin = nullptr;
  std::vector<std::function<void()>> work;
  std::set<const Stream*> unjoined;  // other streams whose last work no event has led back from
  std::atomic<bool> ended = false;
};

class Stream {
 public:
  // Made on a device; the thread lives until destroy() and the end of the work.
  static std::shared_ptr<Stream> make(int device);

  // Of a handle that is not destroyed; nullptr otherwise. The handle nullptr is the legacy default
  // stream of the current device. All our streams are non-blocking, so nothing orders the two.
  static std::shared_ptr<Stream> of(cudaStream_t handle);

  // Returns when all streams of a device are done.
  static void wait_for_device(int device);

  cudaStream_t handle() { return reinterpret_cast<cudaStream_t>(this); }
  int device() const { return device_; }

  // What the caller did before is visible to the work. `late`: always delayed.
  void add(std::function<void()> work, bool late = false);
  bool idle() const;                         // if true, what the work did is visible to the caller
  void wait() const;                         // until the work so far is done and visible
  std::shared_ptr<Capture> capture() const;  // nullptr: its work is carried out
  void join(std::shared_ptr<Capture> capture);
  void destroy();  // returns at once; the work so far is still carried out

 private:
  explicit Stream(int device);
  struct Work;
  void serve();
  void delay(std::uint64_t number, bool late) const;

  const int device_;
  const std::uint64_t number_;  // of this stream
  mutable Lock lock_;           // guards queue_ and capture_
  std::shared_ptr<Capture> capture_;
  std::deque<std::unique_ptr<Work>> queue_;
  std::atomic<std::uint32_t> added_ = 0, done_ = 0, changes_ = 0;
  std::atomic<bool> closing_ = false;
};

}  // namespace ringside::standin
