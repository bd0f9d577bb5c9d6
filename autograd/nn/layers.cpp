#include "autograd/nn/layers.hpp"

#include <cmath>
#include <string>

#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace ringside::autograd {

// FNV-1a (Fowler, Noll, Vo; RFC 9923): names that differ in one letter get unrelated streams.
std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char letter : name)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  return hash;
}

namespace {

template <class Draw>
void fill_drawn(const char* op, const Tensor& tensor, Draw draw) {
  // The host draws for all devices, so that a model starts with the same bits everywhere.
  if (tensor.device() != Device::cpu) {
    const Tensor drawn = Tensor::empty(tensor.shape(), tensor.dtype());
    fill_drawn(op, drawn, draw);
    return tensor.copy_(drawn);
  }
  dispatch_stored(tensor.dtype(), op, [&]<class T>(T) {
    const std::span<T> values = tensor.values<T>();
    parallel_for(tensor.elements(), 1 << 12, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<T>(draw(static_cast<std::uint64_t>(i)));
    });
  });
}

}  // namespace

void fill_normal(const Tensor& tensor, double mean, double deviation, Init init,
                 std::int64_t first) {
  const std::uint64_t stream = stream_of(init.name), start = static_cast<std::uint64_t>(first);
  fill_drawn("fill_normal", tensor, [&](std::uint64_t i) {
    return mean + deviation * random_normal(init.seed, stream, start + i);
  });
}

void fill_uniform(const Tensor& tensor, double low, double high, Init init, std::int64_t first) {
  const std::uint64_t stream = stream_of(init.name), start = static_cast<std::uint64_t>(first);
  fill_drawn("fill_uniform", tensor, [&](std::uint64_t i) {
    return low + (high - low) * random_uniform(init.seed, stream, start + i);
  });
}

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, Init init, DType dtype)
    : weight(Tensor::empty({out, in}, dtype)) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  fill_uniform(weight, -bound, bound, init);
  if (with_bias) {
    bias = Tensor::empty({out}, dtype);
    const std::string bias_name = std::string(init.name) + ".bias";
    fill_uniform(bias, -bound, bound, {init.seed, bias_name});
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor Linear::forward(const Tensor& x) const {
  return with_hooks([&] { return linear(x, weight, bias); });
}

Embedding::Embedding(std::int64_t count, std::int64_t size, Init init, DType dtype)
    : weight(Tensor::empty({count, size}, dtype)) {
  fill_normal(weight, 0, 1, init);
  register_parameter("weight", weight);
}

Tensor Embedding::forward(const Tensor& ids) const {
  return with_hooks([&] { return embedding(ids, weight); });
}

RMSNorm::RMSNorm(std::int64_t size, double epsilon, DType dtype)
    : weight(Tensor::full({size}, 1, dtype)), eps(epsilon) {
  register_parameter("weight", weight);
}

Tensor RMSNorm::forward(const Tensor& x) const {
  return with_hooks([&] { return rms_norm(x, weight, eps); });
}

SumAndNorm RMSNorm::add_and_norm(const Tensor& x, const Tensor& residual) const {
  SumAndNorm both;
  with_hooks([&] {
    both = add_rms_norm(x, residual, weight, eps);
    return both.normed;
  });
  return both;
}

}  // namespace ringside::autograd
