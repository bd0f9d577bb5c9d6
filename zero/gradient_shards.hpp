// The reduce-scatter of gradients in stages 2 and 3: a rank keeps its shard of every bucket, and
// the whole bucket only while it is filled and reduced.
//
//     first gradient of a bucket    allocate the bucket's memory
//     every gradient                copy it into the bucket, and free what backward allocated
//     last gradient of a bucket     start the reduce-scatter
//     the reduce-scatter is done    add this rank's shard of the mean to its shard; free the bucket
//
// A step may have several backwards. One that is not the last leaves out the buckets of which it
// brings no gradient: a pipeline with several stages on a rank runs a backward for each of them.
// What no backward has brought is reduced at the end, as zeros, so that all ranks make the same
// calls.
//
// At most `most_under_way` reduce-scatters are under way. Backward waits before it starts another
// one, so that a slow network costs time and not memory.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ddp/bucket_queue.hpp"
#include "zero/parameter_shards.hpp"

namespace ringside::zero {

class GradientShards final : public ddp::BucketQueue {
 public:
  static constexpr std::size_t most_under_way = 2;

  // `plan` and `group` must outlive this object. finish() sets the gradients of `shards`.
  GradientShards(const ShardLayout& plan, collectives::ProcessGroup& group, ParameterShards shards);

  // Ends a backward that is not the last one of its step: the gradients of the next backward are
  // added to those in the shards. Buckets that still lack gradients are launched when that backward
  // brings its first gradient.
  void end_backward() noexcept { backward_ended_ = true; }

  // Ends a step: waits for all buckets, and gives every parameter shard its gradient, or none if no
  // backward since the last finish() brought one.
  void finish();

  std::size_t under_way() const { return under_way_.size(); }
  // Buckets whose memory is allocated now: under way, or being filled.
  std::size_t in_memory() const;
  // [bucket][entry]: whether the step that the last finish() ended brought a gradient.
  const HasGradient& had_gradient() const { return had_gradient_; }

 private:
  struct UnderWay {
    std::size_t bucket;
    ddp::ScopedWork work;
  };

  void before_gradient() override;
  void copy_into_bucket(std::size_t bucket, std::size_t entry) override;
  void zero_in_bucket(std::size_t bucket, std::size_t entry) override;
  void launch(std::size_t bucket, const std::string& label) override;

  void allocate(std::size_t bucket);
  void finish_oldest();
  bool has_any_gradient(std::size_t bucket) const;
  void finish_backward(bool is_last);

  const ShardLayout& plan_;
  ParameterShards parameter_shards_;
  // [bucket]: gradients end to end, then padding. Dropped while the bucket is not in use.
  std::vector<autograd::Tensor> flats_;
  // [bucket]: this rank's shard of the mean, accumulated over the backwards of this step.
  std::vector<autograd::Tensor> shards_;
  std::vector<bool> accumulated_;  // [bucket]: the shard holds gradients of this step
  HasGradient seen_;               // in an earlier backward of this step
  HasGradient had_gradient_;
  bool backward_ended_ = false;
  std::deque<UnderWay> under_way_;  // the oldest first
};

// What no_sync() of stages 2 and 3 returns: its lifetime spans one backward of a step that has
// more.
class MicroBatch {
 public:
  explicit MicroBatch(GradientShards& gradients) : gradients_(gradients) {}
  ~MicroBatch() { gradients_.end_backward(); }
  MicroBatch(const MicroBatch&) = delete;
  MicroBatch& operator=(const MicroBatch&) = delete;

 private:
  GradientShards& gradients_;
};

}  // namespace ringside::zero
