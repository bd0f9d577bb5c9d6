// Linear layers whose matrix is divided over the ranks of a group.
//
//     y = x W^T            column: rank r holds rows of W         row: rank r holds columns of W
//                                  (outputs, columns of y)             (inputs, columns of x)
//
//                 x     W^T    y                          x         W^T      y
//                ___    _ _    _ _                       _ _        ___     ___
//               |   |  | | |  | | |                     | | |      |___|   |   |
//               |   |  | | |  | | |                     | | |      |___|   |   |
//               |___|  |_|_|  |_|_|                     |_|_|              |___|
//     on rank r  all    r r    r's columns          r's columns      r    a term of y
//
// A column layer leaves each rank with columns of y, and a row layer wants its x so. One after the
// other they make a feed-forward block with one all-reduce in forward (g, after the row layer) and
// one in backward (f, before the column layer); anything that acts on single elements may stand
// between them:
//
//     x ── f ── column ── relu ── row ── g ── y
//
// Matrices that read the same x, such as q, k and v, share one f. Shoeybi et al., "Megatron-LM"
// (2019), section 3. With sequence parallel, gather_sequence and scatter_sequence take the places
// of f and g: Korthikanti et al. (2022), section 4.2.2.
//
// All ranks of the group call the same function with the same label. The gradient of a divided
// matrix is this rank's part of the whole gradient, and complete: no call reduces it.
#pragma once

#include <string_view>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"

namespace ringside::tensor_parallel {

// This rank's part of a tensor that is divided along `dimension`: a contiguous copy without
// history. If the ranks do not divide the size, the first ones have one more. Throws Error if there
// are more ranks than elements.
//
//     column weight [out, in]: part_of(W, 0)     its bias [out]: part_of(b, 0)
//     row weight    [out, in]: part_of(W, 1)     its bias [out]: whole on every rank
autograd::Tensor part_of(const autograd::Tensor& whole, std::int64_t dimension,
                         const collectives::ProcessGroup& group);

// x [..., in], the same on all ranks; weight [out_r, in] and bias [out_r] or undefined, this rank's
// -> [..., out_r]. No call in forward; in backward one all-reduce of dx [..., in].
autograd::Tensor column_linear(const autograd::Tensor& x, const autograd::Tensor& weight,
                               const autograd::Tensor& bias, collectives::ProcessGroup& group,
                               std::string_view label);

// x [..., in_r] and weight [out, in_r], this rank's columns; bias [out] or undefined, the same on
// all ranks -> [..., out], the same on all ranks. One all-reduce of y [..., out] in forward, no
// call in backward.
autograd::Tensor row_linear(const autograd::Tensor& x, const autograd::Tensor& weight,
                            const autograd::Tensor& bias, collectives::ProcessGroup& group,
                            std::string_view label);

// The same with sequence parallel: outside of the two layers each rank holds T/t of the T tokens.
// x [B, T, in_r] -> [B, T/t, out]. A reduce-scatter of y in forward, an all-gather of dy in
// backward, and for a bias an all-reduce of its gradient [out]: each rank adds the bias to its
// tokens only.
//
// A column layer is then linear(gather_sequence(x), weight, bias): x [B, T/t, in] -> [B, T, out_r].
// An all-gather of x in forward, a reduce-scatter of dx in backward.
autograd::Tensor row_linear_of_tokens(const autograd::Tensor& x, const autograd::Tensor& weight,
                                      const autograd::Tensor& bias,
                                      collectives::ProcessGroup& group, std::string_view label);

}  // namespace ringside::tensor_parallel
