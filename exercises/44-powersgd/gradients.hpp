// The parameters that the student's PowerSGD compresses, and their gradients on every rank and
// step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "exercises/44-powersgd/matrices.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/ddp/data_parallel.hpp"

namespace ringside::exercises::power_sgd {

using namespace autograd;

inline constexpr std::size_t r = 2;

struct Entry {
  std::string name;
  Shape shape;
  bool is_matrix() const { return shape.size() > 1; }
  std::size_t rows() const { return static_cast<std::size_t>(shape[0]); }
  std::size_t columns() const { return static_cast<std::size_t>(elements_of(shape)) / rows(); }
  std::size_t factors() const { return std::min({r, rows(), columns()}); }
};

inline constexpr std::size_t first = 0, second = 2;  // among the entries

// Two matrices of one shape, one of three dimensions, one with a single row; and vectors between.
inline std::vector<Entry> entries_of(std::uint64_t seed) {
  const auto n = static_cast<std::int64_t>(9 + seed % 4),
             m = static_cast<std::int64_t>(6 + (seed >> 8) % 3);
  return {{"first", {n, m}},     {"norm", {m}},   {"second", {n, m}},
          {"filter", {5, 2, 3}}, {"row", {1, 7}}, {"bias", {n}}};
}

class Parameters final : public Module {
 public:
  explicit Parameters(const std::vector<Entry>& entries) {
    for (const Entry& each : entries) tensors.push_back(Tensor::zeros(each.shape, DType::fp64));
    for (std::size_t i = 0; i < entries.size(); ++i)
      register_parameter(entries[i].name, tensors[i]);
  }
  std::vector<Tensor> tensors;
};

// What the mean of the gradients of matrices over ranks is. `thin`: of rank 1 or 2, though those of
// single ranks are not.
enum class Mean { full, thin, zero };

struct Step {
  Mean mean = Mean::full;
  bool lacks_first = false;  // on all ranks
};

inline Matrix random_matrix(const Entry& entry, std::uint64_t seed, std::uint64_t which) {
  Matrix numbers(entry.rows(), entry.columns());
  const Tensor random = random_tensor(entry.shape, seed, which);
  std::copy_n(random.data<double>(), numbers.numbers.size(), numbers.numbers.begin());
  return numbers;
}

inline Matrix gradient_of(std::size_t i, const Step& step, std::size_t number, int rank, int world,
                          std::uint64_t seed) {
  const Entry entry = entries_of(seed)[i];
  const auto of_rank = [&](int each) {
    return random_matrix(entry, seed, (number * 16 + i) * 16 + static_cast<std::uint64_t>(each));
  };
  if (!entry.is_matrix() || step.mean == Mean::full) return of_rank(rank);
  Matrix gradient(entry.rows(), entry.columns());
  if (step.mean == Mean::zero) return gradient;
  gradient = of_rank(rank);
  for (int each = 0; each < world; ++each) gradient = sum(gradient, of_rank(each), -1.0 / world);
  const std::size_t rank_of_mean = std::min<std::size_t>(entry.factors(), i == second ? 1 : 2);
  for (std::size_t k = 0; k < rank_of_mean; ++k) {
    const auto stream = (1 << 20) + (number * 16 + i) * 16 + 2 * k;
    const Matrix u = random_matrix(entry, seed, stream), v = random_matrix(entry, seed, stream + 1);
    for (std::size_t row = 0; row < gradient.rows; ++row)
      for (std::size_t column = 0; column < gradient.columns; ++column)
        gradient.at(row, column) += u.at(row, 0) * v.at(0, column);
  }
  return gradient;
}

inline Matrix mean_of(std::size_t i, const Step& step, std::size_t number, const Run& run) {
  const Entry entry = entries_of(run.seed)[i];
  Matrix mean(entry.rows(), entry.columns());
  if (i == first && step.lacks_first) return mean;
  for (int rank = 0; rank < run.world; ++rank)
    mean = sum(mean, gradient_of(i, step, number, rank, run.world, run.seed), 1.0 / run.world);
  return mean;
}

}  // namespace ringside::exercises::power_sgd
