// Emulates ldmatrix and mma.sync as the PTX manual defines them, and multiplies two 16 x 16
// matrices with the positions of mma_fragments.hpp.
#include "autograd/kernels/block/mma_fragments.hpp"

#include <array>

#include <doctest/doctest.h>

using namespace ringside::autograd::cuda;

namespace {

constexpr int warp = 32;
using Matrix = std::array<std::array<float, 16>, 16>;
// [thread][register][low or high half]
using Registers = std::array<std::array<std::array<float, 2>, 4>, warp>;

Matrix filled(int seed) {
  Matrix all{};
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c)
      all[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)] =
          static_cast<float>((r * 37 + c * 11 + seed * 5) % 23 - 11);
  return all;
}

float at(const Matrix& from, int row, int column) {
  return from.at(static_cast<std::size_t>(row)).at(static_cast<std::size_t>(column));
}

// ldmatrix.sync.aligned.m8n8.x4.shared.b16: of each of the four 8 x 8 matrices, thread t receives
// two neighbouring elements of row t / 4 or, with .trans, of column t / 4.
template <class RowOf>
Registers ldmatrix(const Matrix& from, bool trans, RowOf row_of) {
  Registers all{};
  for (int t = 0; t < warp; ++t)
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int half = 0; half < 2; ++half) {
        const int line = t / 4, along = t % 4 * 2 + half;
        const auto begin = row_of(matrix * 8 + (trans ? along : line));
        all[static_cast<std::size_t>(t)][static_cast<std::size_t>(matrix)]
           [static_cast<std::size_t>(half)] =
               at(from, begin.row, begin.column + (trans ? line : along));
      }
  return all;
}

// mma.sync.aligned.m16n8k16.row.col: the positions of a thread's elements in A [16, 16], B [16, 8]
// and C [16, 8], from the tables of the manual.
Coordinate of_a(int t, int i) {  // a0 .. a7, two to a register
  const bool upper = i < 2 || (i >= 4 && i < 6);
  return {t / 4 + (upper ? 0 : 8), t % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)};
}
Coordinate of_b(int t, int i) {  // b0 .. b3
  return {t % 4 * 2 + i % 2 + (i < 2 ? 0 : 8), t / 4};
}
Coordinate of_c(int t, int i) {  // c0 .. c3
  return {t / 4 + (i < 2 ? 0 : 8), t % 4 * 2 + i % 2};
}

// The product [16, 8], as each thread's four accumulator elements. B is in registers `first` and
// `first` + 1.
std::array<std::array<float, 4>, warp> mma(const Registers& a, const Registers& b,
                                           std::size_t first) {
  float full_a[16][16] = {}, full_b[16][8] = {};
  for (int t = 0; t < warp; ++t) {
    const auto s = static_cast<std::size_t>(t);
    for (int i = 0; i < 8; ++i)
      full_a[of_a(t, i).row][of_a(t, i).column] =
          a[s][static_cast<std::size_t>(i / 2)][static_cast<std::size_t>(i % 2)];
    for (int i = 0; i < 4; ++i)
      full_b[of_b(t, i).row][of_b(t, i).column] =
          b[s][first + static_cast<std::size_t>(i / 2)][static_cast<std::size_t>(i % 2)];
  }
  std::array<std::array<float, 4>, warp> sums{};
  for (int t = 0; t < warp; ++t)
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 16; ++k)
        sums[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)] +=
            full_a[of_c(t, i).row][k] * full_b[k][of_c(t, i).column];
  return sums;
}

void check_product(bool transposed) {
  const Matrix a = filled(1), b = filled(2);
  const Registers left = ldmatrix(a, false, ldmatrix_row_a);
  const Registers right = transposed ? ldmatrix(b, false, ldmatrix_row_b_transposed)
                                     : ldmatrix(b, true, ldmatrix_row_b);
  for (int half = 0; half < 2; ++half) {
    const auto sums = mma(left, right, static_cast<std::size_t>(2 * half));
    for (int t = 0; t < warp; ++t)
      for (int i = 0; i < 4; ++i) {
        const Coordinate position = accumulator_position(t, i);
        float expected = 0;
        for (int k = 0; k < 16; ++k) {
          const int column = position.column + 8 * half;
          expected += at(a, position.row, k) * (transposed ? at(b, column, k) : at(b, k, column));
        }
        CHECK(sums[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)] == expected);
      }
  }
}

}  // namespace

TEST_CASE("cuda tiles: two accumulators in registers are the left factor of the next product") {
  const Matrix a = filled(1), b = filled(2), next = filled(3);
  const Registers left = ldmatrix(a, false, ldmatrix_row_a),
                  right = ldmatrix(b, true, ldmatrix_row_b);
  // a b, as two accumulators of 16 x 8.
  const std::array<std::array<std::array<float, 4>, warp>, 2> product{mma(left, right, 0),
                                                                      mma(left, right, 2)};
  Registers again{};
  for (std::size_t t = 0; t < warp; ++t)
    for (int r = 0; r < 4; ++r)
      for (int half = 0; half < 2; ++half) {
        const AccumulatorElement from = accumulator_as_a(r, half);
        again[t][static_cast<std::size_t>(r)][static_cast<std::size_t>(half)] =
            product.at(static_cast<std::size_t>(from.accumulator))[t].at(
                static_cast<std::size_t>(from.element));
      }
  const auto sums = mma(again, ldmatrix(next, true, ldmatrix_row_b), 0);
  for (int t = 0; t < warp; ++t)
    for (int i = 0; i < 4; ++i) {
      const Coordinate position = accumulator_position(t, i);
      float expected = 0;
      for (int j = 0; j < 16; ++j)
        for (int k = 0; k < 16; ++k)
          expected += at(a, position.row, k) * at(b, k, j) * at(next, j, position.column);
      CHECK(sums[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)] == expected);
    }
}

TEST_CASE(
    "cuda tiles: mma on ldmatrix fragments puts the product of two matrices where "
    "accumulator_position says") {
  check_product(false);
  check_product(true);
}
