// Which gradients have come, and which bucket sets out next: the bookkeeping that all forms with
// buckets share.
//
//     a hook of autograd fires     arrived(b, e)      the form brings that gradient to its place in bucket b
//     a bucket has all of its own  launch(b, label)   the form starts its call
//     finish()                     launch_rest()      those that a parameter without a gradient has held up
//                                  start_over()       and the next step begins
//
// Every rank launches its buckets in the order of their numbers, whatever the order in which they
// become ready: otherwise two ranks could wait for each other in different calls. What a bucket
// lacks is in its label ("bucket 1 without fc2.bias"), and labels travel with calls: so ranks that
// lack different gradients find out by name.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ddp/buckets.hpp"
#include "ddp/hooks.hpp"

namespace ringside::ddp {

class BucketQueue {
 public:
  using Arrived = std::function<void(std::size_t bucket, std::size_t entry)>;
  using Launch = std::function<void(std::size_t bucket, const std::string& label)>;

  // Hangs a hook on every parameter of the plan. `arrived` and `launch` are called during backward,
  // on its thread; both have returned before anything else of that backward happens. `arrived` may
  // call launch_rest() and start_over(), where it finds that a new backward has begun.
  BucketQueue(std::vector<Bucket> plan, Arrived arrived, Launch launch);

  void launch_rest();
  void start_over();

  // Since the last start_over(), also while paused.
  bool has_gradient(std::size_t bucket, std::size_t entry) const {
    return ready_[bucket][entry] || held_[bucket][entry];
  }

  // While the result lives, gradients arrive and nothing is launched.
  [[nodiscard]] Paused pause() { return Paused(launching_); }

  int launched() const { return static_cast<int>(next_); }  // since the last start_over()
  const std::vector<Bucket>& buckets() const { return plan_; }

 private:
  void on_gradient(std::size_t bucket, std::size_t entry);
  void launch_next();

  std::vector<Bucket> plan_;
  Arrived arrived_;
  Launch launch_;
  std::vector<std::vector<bool>> ready_,
      held_;  // [bucket][entry]: has its gradient; has one from a backward that was paused
  std::vector<std::size_t> ready_count_;  // [bucket]
  std::size_t next_ = 0;                  // the bucket to launch next
  bool launching_ = true;
  HookList hooks_;  // last: they go before what they use
};

}  // namespace ringside::ddp
