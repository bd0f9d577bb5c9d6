// A warp, emulated as the manual of PTX describes it, multiplies two 16 x 16 squares by the places
// of warp_squares.hpp.
#include "autograd/kernels/block/warp_squares.hpp"

#include <array>

#include <doctest/doctest.h>

using namespace ringside::autograd::cuda;

namespace {

constexpr int warp = 32;
using Square = std::array<std::array<float, 16>, 16>;
using Registers =
    std::array<std::array<std::array<float, 2>, 4>, warp>;  // [thread][register][low or high half]

Square square(int seed) {
  Square all{};
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c)
      all[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)] =
          static_cast<float>((r * 37 + c * 11 + seed * 5) % 23 - 11);
  return all;
}

float at(const Square& from, int row, int column) {
  return from.at(static_cast<std::size_t>(row)).at(static_cast<std::size_t>(column));
}

// ldmatrix.sync.aligned.m8n8.x4.shared.b16: "thread t / 4 * ... each thread loads a fragment of a
// row": of part p, thread t receives two neighbours of row t / 4, or, with .trans, of column t / 4.
template <class RowOf>
Registers ldmatrix(const Square& from, bool trans, RowOf row_of) {
  Registers all{};
  for (int t = 0; t < warp; ++t)
    for (int part = 0; part < 4; ++part)
      for (int half = 0; half < 2; ++half) {
        const int line = t / 4, along = t % 4 * 2 + half;
        const auto begin = row_of(part * 8 + (trans ? along : line));
        all[static_cast<std::size_t>(t)][static_cast<std::size_t>(part)]
           [static_cast<std::size_t>(half)] =
               at(from, begin.row, begin.column + (trans ? line : along));
      }
  return all;
}

// mma.sync.aligned.m16n8k16.row.col: which numbers of A [16, 16] and B [16, 8] the registers are,
// by the tables of the manual.
Place of_a(int t, int i) {  // a0 .. a7, two to a register
  const bool upper = i < 2 || (i >= 4 && i < 6);
  return {t / 4 + (upper ? 0 : 8), t % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)};
}
Place of_b(int t, int i) {  // b0 .. b3
  return {t % 4 * 2 + i % 2 + (i < 2 ? 0 : 8), t / 4};
}
Place of_c(int t, int i) {  // c0 .. c3
  return {t / 4 + (i < 2 ? 0 : 8), t % 4 * 2 + i % 2};
}

// The product, [16, 8], as sums of threads; b's registers are `first` and the one after.
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
  const Square a = square(1), b = square(2);
  const Registers left = ldmatrix(a, false, row_of_left);
  const Registers right =
      transposed ? ldmatrix(b, false, row_of_right_transposed) : ldmatrix(b, true, row_of_right);
  for (int half = 0; half < 2; ++half) {
    const auto sums = mma(left, right, static_cast<std::size_t>(2 * half));
    for (int t = 0; t < warp; ++t)
      for (int i = 0; i < 4; ++i) {
        const Place place = place_of_sum(t, i);
        float expected = 0;
        for (int k = 0; k < 16; ++k) {
          const int column = place.column + 8 * half;
          expected += at(a, place.row, k) * (transposed ? at(b, column, k) : at(b, k, column));
        }
        CHECK(sums[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)] == expected);
      }
  }
}

}  // namespace

TEST_CASE(
    "cuda tiles: a warp's registers hold the product of two squares where the kernels look for "
    "it") {
  check_product(false);
  check_product(true);
}
