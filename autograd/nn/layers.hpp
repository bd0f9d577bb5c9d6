// Layers with parameters of their own: Linear, Embedding, RMSNorm; and how parameters get their
// first values.
//
// First values depend on a seed and a name alone (and an element's index), not on order, rank or
// dtype: every rank makes the same model without talking, and a rank that holds a slice of a weight
// can make that slice.
#pragma once

#include <cstdint>
#include <string_view>

#include "autograd/nn/module.hpp"

namespace ringside::autograd {

struct SumAndNorm;

// Which random numbers fill a tensor: those of `seed`, in the stream that `name` (usually the
// parameter's full name) stands for.
struct Init {
  std::uint64_t seed = 0;
  std::string_view name;
};

std::uint64_t stream_of(std::string_view name);  // for base/random.hpp

// Fill a contiguous tensor: element i from counter first + i (`first`: where a slice begins in the
// whole).
void fill_normal(const Tensor& tensor, double mean, double deviation, Init init,
                 std::int64_t first = 0);
void fill_uniform(const Tensor& tensor, double low, double high, Init init, std::int64_t first = 0);

// y = x weight^T + bias: x [..., in] -> [..., out].
class Linear : public Module {
 public:
  // weight [out, in] and, if asked for, bias [out], both uniform in +-1/sqrt(in), as in torch. bias
  // draws from init.name + ".bias".
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true, Init init = {},
         DType dtype = DType::fp32);
  Tensor forward(const Tensor& x) const;
  // cross_entropy(forward(x), targets) of a layer without bias, whose outputs are logits: see
  // linear_cross_entropy in ops.hpp.
  Tensor cross_entropy(const Tensor& x, const Tensor& targets) const;

  Tensor weight, bias;  // bias is undefined without
};

// Rows of a table: ids int32 [...] -> [..., size].
class Embedding : public Module {
 public:
  // weight [count, size], standard normal as in torch.
  Embedding(std::int64_t count, std::int64_t size, Init init = {}, DType dtype = DType::fp32);
  Tensor forward(const Tensor& ids) const;
  bool backward_reads_parameters() const override {
    return false;
  }  // the ids alone say where a gradient goes

  Tensor weight;
};

// x [..., size] -> same: see rms_norm in ops.hpp.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(std::int64_t size, double eps = 1e-5,
                   DType dtype = DType::fp32);  // weight [size], ones
  Tensor forward(const Tensor& x) const;
  // x + residual and forward(x + residual) in one pass: see add_rms_norm in ops.hpp.
  SumAndNorm add_and_norm(const Tensor& x, const Tensor& residual) const;

  Tensor weight;
  double eps;
};

}  // namespace ringside::autograd
