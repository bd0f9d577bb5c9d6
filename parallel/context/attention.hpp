// Causal attention over a sequence whose tokens are divided among the ranks of a group (context
// parallel). A rank has the queries, keys and values of its tokens, and gets their outputs.
//
//                     forward                                       limit
//     all_gather      all-gather of k and v                         all keys in memory
//     ring            c - 1 exchanges of k and v, each while the    none
//                     block before it is computed
//     ulysses         all-to-all from tokens to heads for q, k      c divides the heads
//                     and v, and back for y
//
// All are exact: the results are those of causal_attention on one rank but for rounding.
//
// all_gather: Llama team, "The Llama 3 herd of models" (2024), section 3.3.2. ring: Liu, Zaharia
// and Abbeel (2023); two blocks are merged as in Milakov and Gimelshein, "Online normalizer
// calculation for softmax" (2018). ulysses: Jacobs et al., "DeepSpeed Ulysses" (2023), section 3.
#pragma once

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "parallel/context/order.hpp"

namespace ringside::context_parallel {

using autograd::Tensor;

// q [B, H, T/c, D], k and v [B, H_kv, T/c, D]: this rank's tokens in ascending order, after the
// rotation by their positions in the whole sequence -> y [B, H, T/c, D]. All ranks of `group` call
// it together; it must live until backward is done. Throws Error if the tensors cannot be divided
// so, and for ring on a GPU: merging blocks needs a kernel that only the CPU has.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const ContextOptions& options,
                 collectives::ProcessGroup& group);

// The three of them. attention() calls the one of its options.
Tensor all_gather_attention(const Tensor& q, const Tensor& k, const Tensor& v, TokenOrder order,
                            collectives::ProcessGroup& group);
Tensor ulysses_attention(const Tensor& q, const Tensor& k, const Tensor& v, TokenOrder order,
                         collectives::ProcessGroup& group);
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, TokenOrder order,
                      collectives::ProcessGroup& group);

}  // namespace ringside::context_parallel
