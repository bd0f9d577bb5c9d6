// Data parallelism with half the bytes: gradients travel as bf16, and what rounding takes from a
// gradient is added to the same gradient in the next step (error feedback).
//
//     x = g + error               of every rank
//     wire = bf16(x)              error = x - wire
//     all-to-all                  block r of all ranks comes to rank r
//     y = mean(blocks) + error'   in the dtype of g, by the owner of the block
//     wire = bf16(y)              error' = y - wire
//     all-gather                  of the blocks
//
// A ring all-reduce of bf16 would round partial sums on the way, which nobody remembers. Here every
// rounding happens on a rank that keeps its error, so errors do not add up over steps:
//
//     sum of what was applied  =  sum of all means  -  mean of the errors  -  error' of the owner
//
// Bytes that a rank sends: 2 (p-1)/p * 2 n for n numbers, half of those of a ring all-reduce of
// fp32. Memory: two more copies of the gradients in fp32, and 1/p.
//
// Source: Tang et al., "DoubleSqueeze: parallel stochastic gradient descent with double-pass
// error-compensated compression", ICML 2019, algorithm 1.
#pragma once

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"
#include "ddp/buckets.hpp"

namespace ringside::ddp {

class Bf16Wire {
 public:
  // As Flat; gradients are fp32 or fp64, on the CPU.
  Bf16Wire(const autograd::Module& module, collectives::ProcessGroup& group);

  // As Flat::finish(), but for the errors. A parameter without a gradient keeps its error.
  void finish();

  // What rounding has taken from this rank's gradients and is still to be sent: in the layout of
  // `bucket()`. And the same for the means of the block that this rank owns.
  const autograd::Tensor& error() const { return error_; }
  const autograd::Tensor& owner_error() const { return owner_error_; }
  const Bucket& bucket() const { return bucket_; }

 private:
  template <class T>
  std::vector<std::string> round_gradients();
  template <class T>
  void average_own_block();

  collectives::ProcessGroup& group_;
  Bucket bucket_;
  std::vector<std::size_t> counts_;  // [rank]: the numbers in its block
  std::size_t begin_ = 0;            // of this rank's block
  autograd::Tensor error_, owner_error_;
  autograd::Tensor wire_, received_;  // bf16; received: this rank's block of every rank
};

}  // namespace ringside::ddp
