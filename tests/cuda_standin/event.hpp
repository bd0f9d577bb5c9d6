// An event: how often it was recorded, and how many of these records its stream has reached. For an
// interprocess event both counts lie in memory that other processes map.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include "tests/cuda_standin/stream.hpp"

namespace ringside::standin {

class Event : public std::enable_shared_from_this<Event> {
 public:
  static std::shared_ptr<Event> make(unsigned flags);
  static std::shared_ptr<Event> open(const cudaIpcEventHandle_t& handle);  // nullptr: not there
  static std::shared_ptr<Event> of(cudaEvent_t handle);                    // nullptr: destroyed
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t handle() { return reinterpret_cast<cudaEvent_t>(this); }
  bool share(cudaIpcEventHandle_t& handle) const;  // false: not an interprocess event
  bool is_opened() const { return opened_; }

  void record(Stream& stream);
  // The stream waits for the latest record at the time of this call, and not for a later one.
  void hold_back(Stream& stream);
  void wait() const;
  // From the latest record of `earlier` to that of this event, which must both be done.
  cudaError_t milliseconds_since(const Event& earlier, float& milliseconds) const;
  bool captured() const { return !captured_.expired(); }  // its latest record is in a graph
  void destroy();

 private:
  struct Counts {
    std::atomic<std::uint64_t> recorded = 0, done = 0;
  };
  Event() = default;
  void wait_for(std::uint64_t record) const;
  bool is_timed() const { return timing_ && counts_->recorded > 0; }

  Counts own_;
  Counts* counts_ = &own_;
  int file_ = -1;  // of an interprocess event that this process has made
  bool opened_ = false, timing_ = false;
  std::weak_ptr<Capture> captured_;
  const Stream* recorded_on_ = nullptr;
  std::atomic<std::int64_t> nanoseconds_ = 0;  // when the latest record was done
  char tokens_[64] = {};                       // [record % 64], for edges.hpp
};

}  // namespace ringside::standin
