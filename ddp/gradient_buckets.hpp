// Gradients that live in buckets: what Bucketed and stage 1 of ZeRO share.
//
// Each step the buckets lend their memory to backward (Tensor::lend_grad_memory). It computes the
// gradients of matrices where the collective reads them, and the optimizer reads the results there.
// Other gradients, of norms and biases, are copied there. A gradient that is elsewhere, because it
// was set or dropped between micro-batches, is copied when its hook fires.
//
// While a bucket's collective is under way, its parameters have no gradient: a second backward
// without finish() must not add to memory that the collective reads and writes.
#pragma once

#include "ddp/bucket_queue.hpp"

namespace ringside::ddp {

class GradientBuckets : public BucketQueue {
 public:
  ~GradientBuckets() override;

  // While the result lives, backward only accumulates gradients on this rank. Use it for all but
  // the last micro-batch of a step.
  [[nodiscard]] Paused no_sync() { return pause(); }

 protected:
  using BucketQueue::BucketQueue;

  // Allocates the next bucket's memory, `elements` zeros: the bucket's own and, at the end,
  // padding. Lends it to backward. Derived constructors call this for each bucket in turn, after
  // they have moved the parameters.
  void allocate_next(std::int64_t elements);

  const autograd::Tensor& memory(std::size_t bucket) const { return memory_[bucket]; }
  // Derived classes call this when they launch a bucket: its parameters lose their gradients.
  void take_gradients(std::size_t bucket) const;
  // And this when all collectives are done: parameters get their gradients back, and the memory is
  // lent again. Entries without a gradient in this step get none, so that the optimizer skips them.
  void return_gradients() const;

 private:
  void copy_into_bucket(std::size_t bucket, std::size_t entry) final;
  void zero_in_bucket(std::size_t bucket, std::size_t entry) final;
  autograd::Tensor view(std::size_t bucket, std::size_t entry) const;

  std::vector<autograd::Tensor> memory_;  // [bucket]: gradients end to end, then padding
};

}  // namespace ringside::ddp
