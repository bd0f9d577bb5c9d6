// Gradients that are never all there at once: stages 2 and 3 keep this rank's shard of each bucket,
// and the bucket itself only while it is filled and on its way.
//
//     first gradient of a bucket     memory for the bucket is fetched; backward's gradient is copied in, and its own memory freed
//     last gradient                  reduce-scatter starts
//     reduce-scatter is done         this rank's block of the mean is added to its shard; the bucket's memory is freed
//
// Backward runs ahead of the network by at most `most_under_way` buckets; then it waits, so that
// memory is bounded, and not the time.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ddp/bucket_queue.hpp"
#include "zero/slices.hpp"

namespace ringside::zero {

class GradientShards {
 public:
  static constexpr std::size_t most_under_way = 2;

  // `plan` and `group` must outlive this. `slices` get their gradients at finish().
  GradientShards(const ShardPlan& plan, collectives::ProcessGroup& group, Slices slices);

  // What comes from here on is of another backward, and is added to what the shards have of this
  // step. (The buckets that parameters without a gradient have held up set out when it begins.)
  void end_backward() noexcept { ended_ = true; }

  // Ends a step: waits, and gives every slice its gradient, or none where no backward since the
  // last finish() brought one.
  void finish();

  int launched() const { return queue_.launched(); }  // in this backward
  std::size_t open() const;                           // buckets whose memory is there now
  const std::vector<std::vector<bool>>& has_gradient() const {
    return has_gradient_;
  }  // [bucket][entry]: at the last finish()

 private:
  struct UnderWay {
    std::size_t bucket;
    collectives::Work work;
  };

  void finish_backward();
  void settle(std::size_t bucket, std::size_t entry);
  void launch(std::size_t bucket, const std::string& label);
  void open(std::size_t bucket);
  void close_first();

  const ShardPlan& plan_;
  collectives::ProcessGroup& group_;
  Slices slices_;
  std::vector<autograd::Tensor>
      flats_;  // [bucket]: end to end, filled up; dropped while there is nothing in it
  std::vector<autograd::Tensor>
      shards_;  // [bucket]: this rank's block of the mean, of all backwards of this step
  std::vector<bool> begun_;  // [bucket]: the shard holds something of this step
  std::vector<std::vector<bool>>
      seen_;  // [bucket][entry]: a gradient came in an earlier backward of this step
  std::vector<std::vector<bool>> has_gradient_;
  bool ended_ = false;
  std::deque<UnderWay> under_way_;
  ddp::BucketQueue queue_;  // last: its hooks go before what they use
};

// For no_sync(): a backward of a step that has more of them.
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
