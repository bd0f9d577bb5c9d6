// Where the threads of a warp hold the numbers of the small matrices that tensor cores multiply.
//
// mma.sync m16n8k16 adds to a 16 x 8 matrix of sums the product of a 16 x 16 and a 16 x 8 one. No
// thread holds a row of any of them: in each 8 x 8 part thread t has row t / 4, and of it the two
// numbers 2 (t % 4) and the next (NVIDIA, "PTX ISA", Matrix Fragments for mma.m16n8k16).
//
//       columns  0 1   2 3   4 5   6 7
//     row 0    [ t0 ][ t1 ][ t2 ][ t3 ]
//     row 1    [ t4 ][ t5 ][ t6 ][ t7 ]            ldmatrix brings four such parts at once: part p's row r from the address that thread
//     ...                                          8 p + r names. With .trans each part arrives transposed.
//     row 7    [ t28][ t29][ t30][ t31]
//
// All this is arithmetic on the number of the thread, so the test of it needs no GPU.
#pragma once

namespace ringside::autograd::cuda {

struct Place {
  int row, column;
};

// Of sum i (0 to 3) that a thread holds of a 16 x 8 matrix.
constexpr Place place_of_sum(int thread, int i) {
  return {thread / 4 + 8 * (i / 2), thread % 4 * 2 + i % 2};
}

// The number at which the row begins that a thread names to ldmatrix.x4, in the stored 16 x 16
// square:
//
//     left factor [m, k]                    parts   0 2      its rows as stored
//                                                   1 3
//     right factor [k, n], with .trans      parts   0 2      parts 0 and 1 are for the first 8 columns of n, 2 and 3 for the others
//                                                   1 3
//     right factor stored as [n, k]         parts   0 1      the same, and what .trans would do is done already
//                                                   2 3
constexpr Place row_of_left(int thread) {
  return {thread % 16, thread / 16 * 8};
}
constexpr Place row_of_right(int thread) {
  return {thread % 16, thread / 16 * 8};
}
constexpr Place row_of_right_transposed(int thread) {
  return {thread % 8 + thread / 16 * 8, thread / 8 % 2 * 8};
}

}  // namespace ringside::autograd::cuda
