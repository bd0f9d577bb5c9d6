// When a bucket's collective starts: the bookkeeping of all methods with buckets.
//
//     the hook of a gradient fires     copy_into_bucket(b, e)    brings it into bucket b
//     bucket b is complete             launch(b, label)          starts its collective
//     finish() of the derived class    launch_rest()             starts incomplete buckets too
//                                      start_over()              begins the next step
//
// Every rank launches buckets in the order of their numbers, in whatever order they become
// complete. Otherwise two ranks could wait for each other in different calls.
//
// A bucket that lacks gradients is launched with zeros in their place, and its label says which are
// missing (gradient_errors.hpp). Ranks that lack different gradients therefore throw.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "ddp/buckets.hpp"
#include "ddp/gradient_hooks.hpp"
#include "ddp/scoped_work.hpp"

namespace ringside::ddp {

class BucketQueue {
 public:
  static constexpr double default_bucket_mb = 25;

  virtual ~BucketQueue() = default;
  BucketQueue(const BucketQueue&) = delete;
  BucketQueue& operator=(const BucketQueue&) = delete;

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Buckets launched since the last start_over().
  int launched() const { return static_cast<int>(next_); }

 protected:
  // Registers a hook on every parameter in the buckets. `group` must outlive this object.
  BucketQueue(std::vector<Bucket> buckets, collectives::ProcessGroup& group);

  // The functions that a method implements. They run during backward, on its thread; launch() and
  // zero_in_bucket() also run in launch_rest().
  //
  // Called first for every gradient. A method whose step has several backwards can end the previous
  // one here, with launch_rest() and start_over().
  virtual void before_gradient() {}
  // The gradient of this entry is complete: brings it into the memory of the bucket.
  virtual void copy_into_bucket(std::size_t bucket, std::size_t entry) = 0;
  // The bucket is about to be launched, and this entry has no gradient.
  virtual void zero_in_bucket(std::size_t bucket, std::size_t entry) = 0;
  // Starts the bucket's collective.
  virtual void launch(std::size_t bucket, const std::string& label) = 0;

  void launch_rest();
  // launch_rest() of the buckets that are needed; it passes over the others.
  void launch_needed(const std::vector<bool>& needed);
  void start_over();
  // Waits for a bucket's collective. If it fails, the error names the gradients that are missing.
  void wait(const ScopedWork& work, std::size_t bucket) const;
  // While the result lives, gradients are accepted and nothing is launched.
  [[nodiscard]] Paused pause() { return Paused(launching_, false); }

  // Since the last start_over(), gradients under pause() included.
  bool has_gradient(std::size_t bucket, std::size_t entry) const {
    return ready_[bucket][entry] || held_[bucket][entry];
  }

  collectives::ProcessGroup& group_;

 private:
  void on_gradient(std::size_t bucket, std::size_t entry);
  bool is_complete(std::size_t bucket) const;
  void launch_next();
  std::vector<std::string> missing_in(std::size_t bucket) const;

  std::vector<Bucket> buckets_;
  std::vector<std::vector<bool>> ready_;  // [bucket][entry]: has a gradient that may be sent
  std::vector<std::vector<bool>> held_;   // [bucket][entry]: got a gradient under pause()
  std::vector<std::size_t> ready_count_;  // [bucket]
  // [bucket]: the parameters that had no gradient when it was last launched.
  std::vector<std::vector<std::string>> missing_;
  std::size_t next_ = 0;  // the bucket to launch next
  bool launching_ = true;
  GradientHooks hooks_;  // the last member: destroyed before those that the hooks use
};

}  // namespace ringside::ddp
