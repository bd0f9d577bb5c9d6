// ModelRanks: what a model asks of the ranks that share its matrices (tensor parallel), the tokens
// of its sequences (context parallel) and its experts (expert parallel). Nothing else in the layers
// knows that there are other ranks.
//
//     x ── column ──┬── q, k, v: some heads ── attention ──┬── row: o ───── y
//                   └── gate, up: some of d_ff ── swiglu ──┴── row: down ── y
//
// The names are those of Shoeybi et al., "Megatron-LM" (2019), section 3: docs/tensor_parallel.md.
// The default is one rank, which holds everything: column and row are linear, attention is that of
// all heads. training/mesh/mesh_model_ranks gives the layers of parallel/tensor/, the attention of
// parallel/context/ and the exchange of tokens of parallel/experts/ for them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/tensor.hpp"

namespace ringside::transformer {

class ModelRanks {
 public:
  using Linears = std::initializer_list<const autograd::Linear*>;

  virtual ~ModelRanks() = default;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }

  // Layers without bias that read the same x, with divided outputs: q, k and v together, or gate
  // and up. The result has one tensor for each.
  virtual std::vector<autograd::Tensor> column(const autograd::Tensor& x, Linears layers) const;
  // A layer without bias whose inputs are divided: o or down. The sum of what the ranks compute.
  virtual autograd::Tensor row(const autograd::Tensor& x, const autograd::Linear& layer) const;

  // The embedding, and head and loss. `weight` is `range` of the rows of the whole matrix.
  virtual autograd::Tensor embedding(const autograd::Tensor& ids, const autograd::Tensor& weight,
                                     autograd::VocabularyRange range) const;
  virtual autograd::Tensor cross_entropy(const autograd::Tensor& x, const autograd::Tensor& weight,
                                         const autograd::Tensor& targets,
                                         autograd::VocabularyRange range) const;

  // Causal attention: q [B, H, T, D], k and v [B, H_kv, T, D] of this rank's tokens and heads,
  // after the rotation -> y [B, H, T, D]. Where the ranks of context parallel have T of the tokens
  // each, a query sees the keys of all of them up to its own position.
  virtual autograd::Tensor attention(const autograd::Tensor& q, const autograd::Tensor& k,
                                     const autograd::Tensor& v) const;
  // The rows of `table` that are the positions of this rank's tokens, in their order: the first
  // `tokens` rows where no rank has only some of a sequence.
  virtual autograd::RopeTable positions(const autograd::RopeTable& table,
                                        std::int64_t tokens) const;
  // Whether a rank has only some tokens of every sequence, from the embedding to the loss.
  virtual bool divides_context() const { return false; }

  // The experts of a block: rank r of expert_ranks() has experts r E / ranks to (r + 1) E / ranks.
  virtual int expert_rank() const { return 0; }
  virtual int expert_ranks() const { return 1; }
  // rows [M, d]: a row for each choice of this rank's tokens, sorted by expert; counts [E]: how
  // many each expert has -> what the experts make of them, in the same order. `compute` does so for
  // the rows and counts of the experts of one rank; under tensor parallel it gives a term of the
  // sum.
  using ComputeExperts =
      std::function<autograd::Tensor(const autograd::Tensor&, std::span<const std::int64_t>)>;
  virtual autograd::Tensor experts(const autograd::Tensor& rows,
                                   std::span<const std::int64_t> counts,
                                   const ComputeExperts& compute) const;
  // Adds up numbers of this rank's tokens over the ranks that share their sequences, in place.
  virtual void add_over_sequences(const autograd::Tensor& /*numbers*/) const {}

  // Whether row and embedding leave a rank 1/size() of the tokens, and column and cross_entropy
  // gather them (sequence parallel). The gradients of norms are then sums over a rank's tokens.
  virtual bool divides_sequence() const { return false; }
};

}  // namespace ringside::transformer
