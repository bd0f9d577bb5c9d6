// Many numbers to one: sums in fp64.
#include <numeric>
#include <vector>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"

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

template <class T>
double sum_of(const T* x, std::int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += x[i];
  return total;
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
  dispatch(x.dtype(), "sum", [&]<class T>(T) {
    const T* const px = x.data<T>();
    total.fill_(factor * sum_of_pieces(x.elements(), [=](std::int64_t begin, std::int64_t end) {
                  return sum_of(px + begin, end - begin);
                }));
  });
}

void CpuKernels::sum_of_squares(std::span<const Tensor> all, const Tensor& total) const {
  double squares = 0;
  for (const Tensor& x : all)
    dispatch_stored(x.dtype(), "sum_of_squares", [&]<class S>(S) {
      const S* const px = x.data<S>();
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

}  // namespace ringside::autograd
