// Many numbers to one: sums in fp64.
#include <numeric>
#include <vector>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/cpu/for_each_element.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t sum_grain = 1 << 16;  // elements that are enough work for one more thread

// The sum of of_range(begin, end) over pieces of [0, count), added in order. So the bits depend on
// the number of threads only.
template <class OfRange>
double sum_of_pieces(std::int64_t count, OfRange of_range) {
  std::vector<double> of_piece(static_cast<std::size_t>(pieces_of(count, sum_grain)), 0.0);
  parallel_for_pieces(count, sum_grain, [&](int piece, std::int64_t begin, std::int64_t end) {
    of_piece[static_cast<std::size_t>(piece)] = of_range(begin, end);
  });
  return std::accumulate(of_piece.begin(), of_piece.end(), 0.0);
}

// The sum of term(i) over [0, count).
template <class Term>
double sum_of(std::int64_t count, Term term) {
  return sum_of_pieces(count, [=](std::int64_t begin, std::int64_t end) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = begin; i < end; ++i) total += term(i);
    return total;
  });
}

// The sum of x[i]^2. An addition takes four cycles, but a processor begins several in each cycle,
// if none waits for another. So the sum is kept as 32 sums: sums[k] adds every 32nd element. That
// is four registers of AVX-512, each with an addition of its own under way, and the loop runs as
// fast as memory delivers. (With `omp simd reduction` GCC 12 keeps the sum in memory instead: each
// addition waits until the one before has been stored and loaded again.)
template <class S>
double sum_of_squares_of(const S* x, std::int64_t n) {
  constexpr int lanes = 32;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
#pragma omp simd
    for (int k = 0; k < lanes; ++k) {
      const double xi = static_cast<Compute<S>>(x[i + k]);
      sums[k] += xi * xi;
    }
  for (int k = 0; i < n; ++i, ++k) {
    const double xi = static_cast<Compute<S>>(x[i]);
    sums[k] += xi * xi;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

void CpuKernels::sum(const Tensor& x, double factor, const Tensor& total) const {
  dispatch(x.dtype(), "sum", [&](auto zero) {
    const auto* const px = x.data<decltype(zero)>();
    total.fill_(factor * sum_of(x.elements(), [=](std::int64_t i) -> double { return px[i]; }));
  });
}

void CpuKernels::sum_of_squares(std::span<const Tensor> all, const Tensor& total) const {
  double squares = 0;
  for (const Tensor& x : all)
    dispatch_stored(x.dtype(), "sum_of_squares", [&](auto zero) {
      const auto* const px = x.data<decltype(zero)>();
      squares += sum_of_pieces(x.elements(), [=](std::int64_t begin, std::int64_t end) {
        return sum_of_squares_of(px + begin, end - begin);
      });
    });
  total.fill_(squares);
}

void CpuKernels::mean_loss(const Tensor& losses, std::int64_t count, const Tensor& mean) const {
  double total = 0;
  for (const double loss : losses.values<double>()) total += loss;
  mean.fill_(total / static_cast<double>(count));
}

void CpuKernels::mean_square(const Tensor& x, const Tensor& t, const Tensor& loss) const {
  dispatch(x.dtype(), "mse_loss", [&](auto zero) {
    using T = decltype(zero);
    const T *const px = x.data<T>(), *const pt = t.data<T>();
    const double total = sum_of(x.elements(), [=](std::int64_t i) {
      const double difference = static_cast<double>(px[i]) - static_cast<double>(pt[i]);
      return difference * difference;
    });
    loss.fill_(total / static_cast<double>(x.elements()));
  });
}

void CpuKernels::mean_square_backward(const Tensor& x, const Tensor& t, const Tensor& dloss,
                                      double factor, const Tensor& dx) const {
  dispatch(x.dtype(), "mse_loss", [&](auto zero) {
    using T = decltype(zero);
    const T *const px = x.data<T>(), *const pt = t.data<T>();
    const T f = static_cast<T>(factor * dloss.item() / static_cast<double>(x.elements()));
    T* const pdx = dx.data<T>();
    for_each_element(x.elements(), sum_grain,
                     [=](std::int64_t i) { pdx[i] = f * (px[i] - pt[i]); });
  });
}

}  // namespace ringside::autograd
