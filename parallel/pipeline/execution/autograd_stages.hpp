// AutogradStages: stages whose backward is that of the recorded graph.
//
//     forward     input ──[ graph of the stage ]── result ──▶ sent, then freed
//     backward    input's gradient ◀──[ graph ]── gradient of the result
//
// Between forward and backward a stage keeps the input, the graph with what it saved, and the node
// of the result. It does not keep the result's numbers.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/engine/deferred_gradients.hpp"
#include "parallel/pipeline/execution/stage_work.hpp"

namespace ringside::pipeline_parallel {

class AutogradStages : public StageWork {
 public:
  // The stages of `rank`. `schedule` must outlive this object.
  AutogradStages(const Schedule& schedule, int rank);

  // Under NoGrad nothing is kept: for evaluation.
  autograd::Tensor forward(int stage, int micro_batch, autograd::Tensor input) final;
  autograd::Tensor backward(int stage, int micro_batch, autograd::Tensor gradient) final;
  autograd::Tensor backward_input(int stage, int micro_batch, autograd::Tensor gradient) final;
  void backward_weight(int stage, int micro_batch) final;
  // The hooks of the last backward have started the reduction.
  void reduce_gradients(int) final {}

  // The mean of the losses since the last call, summed in the order of the micro-batches. On the
  // rank of the last stage; elsewhere 0.
  double take_mean_loss();

  // The most (stage, micro-batch) pairs whose activations were kept at a time.
  int most_held() const { return most_held_; }

 protected:
  // The computation of a stage on one micro-batch. `input` is undefined for stage 0. The last stage
  // returns its loss, a mean over the micro-batch; all micro-batches have equal weight.
  virtual autograd::Tensor compute(int stage, int micro_batch, const autograd::Tensor& input) = 0;

  // While the result lives, gradients are accumulated on this rank only. Used for every backward
  // but the last one that adds to the gradients of a stage.
  virtual std::shared_ptr<void> no_sync() { return nullptr; }

  // Whether backward of one stage adds to a gradient of the other.
  virtual bool share_gradients(int stage, int other) const { return stage == other; }

  const Schedule& schedule() const { return schedule_; }
  int rank() const { return rank_; }

 private:
  using Key = std::pair<int, int>;  // stage, micro-batch
  struct Kept {
    autograd::Tensor input;  // a leaf; undefined for stage 0
    std::shared_ptr<autograd::Node> result;
    autograd::DeferredGradients later;  // from I to W
  };
  Kept& kept(int stage, int micro_batch, const char* by);
  bool may_reduce(int stage, int micro_batch) const;
  void run_backward(Kept& of, int stage, int micro_batch, autograd::Tensor gradient);
  static autograd::Tensor input_gradient(Kept& of);

  const Schedule& schedule_;
  int rank_;
  std::map<Key, Kept> kept_;
  std::map<int, autograd::Tensor> losses_;  // by micro-batch
  int most_held_ = 0;
};

}  // namespace ringside::pipeline_parallel
