// The fragment layout of mma.sync: which thread of a warp holds which element of the small matrices
// that tensor cores multiply.
//
// mma.sync.m16n8k16 computes D = A B + C, where A is 16 x 16, B is 16 x 8, and C and D are 16 x 8.
// A warp holds the three matrices in registers, as fragments of 8 x 8. In each 8 x 8 matrix, thread
// t holds two neighbouring elements: columns 2 (t % 4) and 2 (t % 4) + 1 of row t / 4 (NVIDIA, "PTX
// ISA", Matrix Fragments for mma.m16n8k16).
//
//       columns  0 1   2 3   4 5   6 7
//     row 0    [ t0 ][ t1 ][ t2 ][ t3 ]
//     row 1    [ t4 ][ t5 ][ t6 ][ t7 ]
//     ...
//     row 7    [ t28][ t29][ t30][ t31]
//
// ldmatrix.x4 loads four 8 x 8 matrices from shared memory into this layout. Thread 8 p + r passes
// the address of row r of matrix p. With .trans each matrix is transposed on the way.
//
// The functions below only compute with thread numbers, so their test needs no GPU.
#pragma once

namespace ringside::autograd::cuda {

struct Coordinate {
  int row, column;
};

// The position of element i (0 to 3) of a thread's accumulator, a 16 x 8 matrix.
constexpr Coordinate accumulator_position(int thread, int i) {
  return {thread / 4 + 8 * (i / 2), thread % 4 * 2 + i % 2};
}

// Two accumulators side by side are a 16 x 16 matrix, which can be the factor A of the next
// product: each thread already holds the elements that A wants of it. In half `half` of register
// `r` it wants this element of this accumulator.
struct AccumulatorElement {
  int accumulator, element;
};
constexpr AccumulatorElement accumulator_as_a(int r, int half) {
  return {r / 2, r % 2 * 2 + half};
}

// The first element of the row whose address a thread passes to ldmatrix.x4, within a stored 16 x
// 16 matrix. The four 8 x 8 matrices p lie there as follows:
//
//     A, stored [m, k]             0 2     loaded as stored
//                                  1 3
//     B, stored [k, n], .trans     0 2     0 and 1 are the first 8 columns of n, 2 and 3 the rest
//                                  1 3
//     B, stored [n, k]             0 1     the same columns; stored transposed, so without .trans
//                                  2 3
constexpr Coordinate ldmatrix_row_a(int thread) {
  return {thread % 16, thread / 16 * 8};
}
constexpr Coordinate ldmatrix_row_b(int thread) {
  return {thread % 16, thread / 16 * 8};
}
constexpr Coordinate ldmatrix_row_b_transposed(int thread) {
  return {thread % 8 + thread / 16 * 8, thread / 8 % 2 * 8};
}

}  // namespace ringside::autograd::cuda
