// One transformer block under tensor parallel: who holds which rows and columns of each matrix, and
// where the calls are.
//
//     ─f─ backward: all-reduce
//     │   q_proj    k_proj    v_proj      [512, 512] each, by rows: outputs
//     │   00000000  00000000  00000000    rank 0: rows 0-255, heads 0-7
//     │   11111111  11111111  11111111    rank 1: rows 256-511, heads 8-15
//     │   attention                       each rank its heads, no call
//     │   o_proj                          [512, 512], by columns: inputs
//     │   00001111                        rank 0: columns 0-255, heads 0-7
//     │   00001111                        rank 1: columns 256-511, heads 8-15
//     ─g─ forward: all-reduce
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "autograd/tensor/dtype.hpp"
#include "cli/pictures/json_file.hpp"
#include "transformer/config.hpp"

namespace ringside::cli {

// A block, and the batch that goes through it.
struct TensorBlock {
  std::string model;  // its name
  transformer::Config config;
  int ranks = 2;
  std::int64_t batch = 1, tokens = 0;  // of a micro-batch: B and T
  autograd::DType dtype = autograd::DType::fp32;
  bool sequence_parallel = false;

  // Of the residual stream x [B, T, d_model].
  std::int64_t bytes_of_x() const {
    return batch * tokens * config.d_model * static_cast<std::int64_t>(autograd::size_of(dtype));
  }
};

// One collective call of the block.
struct BlockCall {
  std::string part;        // "attention", "mlp"
  bool forward = true;     // otherwise in backward
  std::string collective;  // "all_reduce"
  std::string tensor;      // what travels: "x", "y", or their gradients "dx", "dy"
  std::int64_t bytes = 0;  // of the whole tensor
  double sent_bytes = 0;   // by each rank, in a ring
};

// The calls of forward, then those of backward, each in the order in which they are made.
std::vector<BlockCall> calls_of(const TensorBlock& block);

// Throws Error, with the numbers of ranks that would fit, if the ranks cannot divide the heads, the
// columns of the feed-forward part, the vocabulary or, with sequence parallel, the tokens.
void require_divisible(const TensorBlock& block);

// Writes the picture, in lines of at most 80 columns, for at most 8 ranks.
void draw_block(std::ostream& out, const TensorBlock& block);

Json json_of(const TensorBlock& block);

}  // namespace ringside::cli
