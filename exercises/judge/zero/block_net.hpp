// The net of the judges of stage 3: embedding, blocks, and a root with norm and head.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/nn/layers.hpp"

namespace ringside::exercises {

struct BlockNetOptions {
  int depth = 3;
  bool tied = false;       // the head uses the table of the embedding
  bool recompute = false;  // activation checkpointing in every block
  bool history = true;     // for the judge: a step without it has a forward only
  std::int64_t width = 6;
  bool mixed = false;  // all in bf16 but the norm, which is in fp32; or else in fp64
};

class BlockNet final : public autograd::Module {
 public:
  using Options = BlockNetOptions;
  static constexpr Options plain = {}, tied = {.tied = true}, deep = {.depth = 10, .width = 32},
                           recomputed = {.recompute = true}, without_history = {.history = false},
                           mixed = {.mixed = true};

  // First weights depend on seed and rank.
  BlockNet(Options options, std::uint64_t seed, int rank);

  // The mean over the rows of ranks first .. first + ranks in this step.
  autograd::Tensor loss(std::uint64_t seed, int step, int first, int ranks) const;

  // Whether this is the name of the embedding, a block, the norm or the head.
  bool is_layer(const std::string& name) const;
  std::int64_t parameter_bytes() const;
  std::int64_t largest_unit_bytes() const;
  // The units with a parameter whose memory exists now, whatever the student's method says: in the
  // order of backward.
  std::vector<std::string> units_in_memory() const;

 private:
  struct Block final : Module {
    Block(std::int64_t width, autograd::Init init, autograd::DType dtype);
    autograd::Tensor forward(const autograd::Tensor& x) const;
    autograd::Linear inner;
  };
  struct List final : Module {
    std::vector<std::unique_ptr<Block>> blocks;
    void add(std::unique_ptr<Block> block);
  };
  Options options_;
  autograd::Embedding embed_;
  List layers_;
  autograd::RMSNorm norm_;
  autograd::Linear head_;
};

}  // namespace ringside::exercises
