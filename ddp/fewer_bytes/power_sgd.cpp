#include "ddp/fewer_bytes/power_sgd.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/ops.hpp"
#include "base/random.hpp"
#include "ddp/fewer_bytes/whole_bucket.hpp"
#include "ddp/gradient_errors.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

using autograd::NamedTensor;
using autograd::Tensor;

PowerSGD::PowerSGD(const autograd::Module& module, collectives::ProcessGroup& group, int rank)
    : group_(group) {
  require(rank >= 1, "PowerSGD needs factors of at least one column, not {}", rank);
  const auto dtype = whole_bucket(module, "powersgd").dtype;
  replicate(module, group);
  const autograd::MemoryScope scope(autograd::MemoryKind::gradients);
  for (const NamedTensor& named : trained_parameters(module)) {
    parameters_.push_back({named, {}, {}});
    if (named.tensor.dim() < 2) continue;
    const std::int64_t n = named.tensor.size(0), m = named.tensor.elements() / n;
    Parameter& each = parameters_.back();
    each.error = Tensor::zeros({n, m}, dtype);
    each.q = Tensor::empty({m, std::min<std::int64_t>({rank, n, m})}, dtype);
    for (std::int64_t column = 0; column < each.q.size(1); ++column) restart_column(each, column);
  }
}

// Normal random numbers, the same on every rank.
void PowerSGD::restart_column(const Parameter& parameter, std::int64_t column) {
  const std::uint64_t seed = hash_of_text(parameter.named.name) + restarts_++;
  const std::int64_t columns = parameter.q.size(1);
  autograd::dispatch(parameter.q.dtype(), "powersgd", [&](auto zero) {
    using T = decltype(zero);
    T* const q = parameter.q.data<T>();
    for (std::int64_t i = 0; i < parameter.q.size(0); ++i)
      q[i * columns + column] = static_cast<T>(
          random_normal(seed, static_cast<std::uint64_t>(column), static_cast<std::uint64_t>(i)));
  });
}

// One all-reduce of all parts end to end. The results are views of its buffer.
std::vector<Tensor> PowerSGD::mean_of(const std::vector<Tensor>& parts,
                                      const std::string& label) const {
  std::int64_t elements = 0;
  for (const Tensor& part : parts) elements += part.elements();
  const autograd::MemoryScope scope(autograd::MemoryKind::communication);
  const Tensor flat = Tensor::empty({elements}, parts.front().dtype());
  std::vector<Tensor> means;
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    means.push_back(Tensor::view_of(flat.storage(), begin, part.shape(), flat.dtype()));
    means.back().copy_(part);
    begin += part.elements();
  }
  all_reduce_mean(flat, group_, label);
  return means;
}

Tensor PowerSGD::Parameter::left_factor() const {
  const Tensor& gradient = named.tensor.grad();
  autograd::accumulate_into(error, gradient.reshape(error.shape()));
  return matmul(error, q);
}

Tensor PowerSGD::Parameter::right_factor(const Tensor& p) const {
  return matmul(error.transpose(0, 1), p);
}

void PowerSGD::Parameter::replace_gradient(const Tensor& p, const Tensor& right) const {
  const Tensor product = matmul(p, right.transpose(0, 1));
  named.tensor.grad().reshape(product.shape()).copy_(product);
  autograd::kernels_of(product).scale(product, -1, product);
  autograd::accumulate_into(error, product);
  q.copy_(right);
}

void PowerSGD::finish() {
  const autograd::NoGrad no_history;
  std::vector<std::string> missing;
  std::vector<const Parameter*> matrices, vectors;
  for (const Parameter& each : parameters_)
    if (!each.named.tensor.grad().defined())
      missing.push_back(each.named.name);
    else
      (each.is_matrix() ? matrices : vectors).push_back(&each);

  std::vector<Tensor> left;  // and the vectors
  for (const Parameter* each : matrices) left.push_back(each->left_factor());
  for (const Parameter* each : vectors) left.push_back(each->named.tensor.grad());
  if (left.empty()) return;
  const std::string label = label_without("left factors", missing);
  try {
    left = mean_of(left, label);
  } catch (const Error& error) {
    rethrow_with_names(error, group_.rank(), missing);
  }
  for (std::size_t i = 0; i < vectors.size(); ++i)
    vectors[i]->named.tensor.grad().copy_(left[matrices.size() + i]);
  if (matrices.empty()) return;

  std::vector<std::vector<std::int64_t>> dependent;  // columns of each matrix
  std::vector<Tensor> right;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    dependent.push_back(make_orthonormal(left[i]));
    right.push_back(matrices[i]->right_factor(left[i]));
  }
  right = mean_of(right, "right factors");
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    matrices[i]->replace_gradient(left[i], right[i]);
    // A zero column would stay zero, and this direction would never be sent.
    for (const std::int64_t column : dependent[i]) restart_column(*matrices[i], column);
  }
}

std::int64_t PowerSGD::numbers_sent() const {
  std::int64_t numbers = 0;
  for (const Parameter& each : parameters_)
    numbers += each.is_matrix() ? each.q.size(1) * (each.error.size(0) + each.error.size(1))
                                : each.named.tensor.elements();
  return numbers;
}

std::vector<NamedTensor> PowerSGD::errors() const {
  std::vector<NamedTensor> errors;
  for (const Parameter& each : parameters_)
    if (each.is_matrix()) errors.push_back({each.named.name, each.error});
  return errors;
}

std::vector<std::int64_t> make_orthonormal(const Tensor& p) {
  std::vector<std::int64_t> dependent;
  const std::int64_t rows = p.size(0), columns = p.size(1);
  autograd::dispatch(p.dtype(), "powersgd", [&](auto zero) {
    using T = decltype(zero);
    T* const at = p.data<T>();
    const auto dot = [&](std::int64_t a, std::int64_t b) {
      double sum = 0;
      for (std::int64_t i = 0; i < rows; ++i)
        sum += static_cast<double>(at[i * columns + a]) * static_cast<double>(at[i * columns + b]);
      return sum;
    };
    for (std::int64_t c = 0; c < columns; ++c) {
      const double before = std::sqrt(dot(c, c));
      for (int pass = 0; pass < 2; ++pass)
        for (std::int64_t b = 0; b < c; ++b) {
          const double along = dot(b, c);
          for (std::int64_t i = 0; i < rows; ++i)
            at[i * columns + c] -= static_cast<T>(along * static_cast<double>(at[i * columns + b]));
        }
      const double norm = std::sqrt(dot(c, c));
      const bool depends =
          norm <= before * 10 * static_cast<double>(std::numeric_limits<T>::epsilon());
      if (depends) dependent.push_back(c);
      for (std::int64_t i = 0; i < rows; ++i)
        at[i * columns + c] =
            depends ? T(0) : static_cast<T>(static_cast<double>(at[i * columns + c]) / norm);
    }
  });
  return dependent;
}

}  // namespace ringside::ddp
