// Layers with parameters: Linear, Embedding, RMSNorm; and the initialisation of parameters.
//
// An initial value depends on a seed, a name and the index of the element only; not on order, rank
// or dtype. So every rank makes the same model without communication, and a rank that holds a part
// of a weight can initialise that part.
#pragma once

#include <cstdint>
#include <string_view>

#include "autograd/nn/module.hpp"
#include "autograd/ops/vocabulary.hpp"

namespace ringside::autograd {

struct SumAndNorm;

// The random numbers that fill a tensor: those of `seed` in the stream of `name`, usually the full
// name of the parameter.
struct Init {
  std::uint64_t seed = 0;
  std::string_view name;
};

// The stream of a name, for base/random.hpp.
std::uint64_t stream_of(std::string_view name);

// Fill a contiguous tensor: element i takes the random number first + i of the stream. For a part
// of a weight, `first` is where the part begins.
void fill_normal(const Tensor& tensor, double mean, double deviation, Init init,
                 std::int64_t first = 0);
void fill_uniform(const Tensor& tensor, double low, double high, Init init, std::int64_t first = 0);

// y = x weight^T + bias: x [..., in] -> [..., out].
class Linear : public Module {
 public:
  // weight [out, in] and optionally bias [out], both uniform in +-1/sqrt(in), as in torch. The bias
  // uses the stream init.name + ".bias".
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true, Init init = {},
         DType dtype = DType::fp32);
  Tensor forward(const Tensor& x) const;
  using Module::with_hooks;  // for callers that use the weight without forward()

  Tensor weight, bias;  // bias is undefined if there is none
};

// Rows of a table, selected by ids: ids int32 [...] -> [..., size].
class Embedding : public Module {
 public:
  // weight [count, size], standard normal as in torch.
  Embedding(std::int64_t count, std::int64_t size, Init init = {}, DType dtype = DType::fp32);
  Tensor forward(const Tensor& ids) const;
  using Module::with_hooks;  // for callers that use the weight without forward()
  // Backward needs the ids only.
  bool backward_reads_parameters() const override { return false; }

  Tensor weight;
};

// x [..., size] -> same: see rms_norm in ops.hpp.
class RMSNorm : public Module {
 public:
  // weight [size], ones.
  explicit RMSNorm(std::int64_t size, double eps = 1e-5, DType dtype = DType::fp32);
  Tensor forward(const Tensor& x) const;
  // x + residual and forward(x + residual) in one pass: see add_rms_norm in ops.hpp.
  SumAndNorm add_and_norm(const Tensor& x, const Tensor& residual) const;

  Tensor weight;
  double eps;
};

}  // namespace ringside::autograd
