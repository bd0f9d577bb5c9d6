// The ops of a mixture of experts: a router sends each token to K of E feed-forward parts, and the
// outputs are added up with the router's weights.
//
//     logits      [N, E]   of N tokens
//     chosen      [N, K]   choose_experts: the K experts of each token
//     weights     [N, K]   routing_weights: softmax over the logits of the chosen ones
//     rows        [N K, n] embedding(order.tokens, x): a row for each choice, sorted by expert
//     outputs     [N K, n] grouped_linear(rows, one matrix per expert, order.counts), ...
//     y           [N, n]   combine_experts(outputs, order.places, weights)
//
// No expert has a capacity, so no token is dropped; an expert without tokens is usual.
// Shazeer et al., "Outrageously large neural networks" (2017), section 2; the weights are those of
// Jiang et al., "Mixtral of experts" (2024), section 2.1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// logits [N, E] -> int32 [N, K] on the CPU, the largest first. Of equal logits the first counts as
// larger. Has no gradient.
Tensor choose_experts(const Tensor& logits, std::int64_t per_token);

// The rows of all choices, sorted by expert, and for one expert by token.
struct ExpertOrder {
  Tensor tokens;                     // int32 [N K]: the token of each row
  Tensor places;                     // int32 [N, K]: the row of each choice
  std::vector<std::int64_t> counts;  // [E]: rows of each expert
};
ExpertOrder sort_by_expert(const Tensor& chosen, std::int64_t experts);

// Pulls the router towards experts of equal load: the auxiliary loss of Fedus, Zoph and Shazeer,
// "Switch transformers" (2021), equation 4, for each sequence of T tokens:
//
//     loss = E * sum over i of  (choices of i in the sequence) / T  *  mean over t of p[t, i]
//
// with p = softmax(logits) over all experts. Its mean over the sequences, times `weight`, has its
// gradient added where the router's is computed; the number itself is not a part of any loss. A
// sequence at a time, as in DeepSeek-V3 (2024), section 2.1.2, so it does not depend on how ranks
// and micro-batches divide a batch.
struct LoadBalance {
  double weight = 0;  // 0: none
  // fp64 [sequences, E] on the CPU: choices of each expert in each whole sequence, which may have
  // tokens on other ranks. The N tokens are those of the sequences, one sequence after the other.
  Tensor counts;
};

// chosen [N, K] of sequences of equal length -> fp64 [sequences, E].
Tensor choices_of_sequences(const Tensor& chosen, std::int64_t sequences, std::int64_t experts);

// The loss above, not weighted, for a report and for tests.
double load_balance_loss(const Tensor& logits, const Tensor& counts);

// logits [N, E], chosen [N, K] -> [N, K], each row sums to 1: softmax over the chosen logits, which
// is softmax over all of them, divided by the sum of the chosen probabilities.
Tensor routing_weights(const Tensor& logits, const Tensor& chosen, const LoadBalance& balance = {});

// x [rows, in], one matrix [out, in] per group -> [rows, out]: the first counts[0] rows times the
// first matrix transposed, the next counts[1] rows times the second, ... A matrix without rows has
// a gradient of zeros.
Tensor grouped_linear(const Tensor& x, std::span<const Tensor> weights,
                      std::span<const std::int64_t> counts);

// rows [M, n], places int32 [N, K], weights [N, K] -> y [N, n]:
//
//     y[t] = sum over j of weights[t, j] rows[places[t, j]]
Tensor combine_experts(const Tensor& rows, const Tensor& places, const Tensor& weights);

}  // namespace ringside::autograd
