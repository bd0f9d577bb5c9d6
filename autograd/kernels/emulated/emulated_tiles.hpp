// The CPU's part of tiles.hpp: accumulators, row groups and asynchronous copies of an emulated
// block.
#pragma once

#include <cstring>
#include <vector>

#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

// Each thread holds some rows of the accumulator, and plays the four threads that share a row on
// tensor cores: it keeps a number for each of them. So a kernel that forgets max_of_rows or
// sum_of_rows computes wrong numbers here too.
//
//     numbers of a row, in PerRow     columns  0 1 | 2 3 | 4 5 | 6 7 | 8 9 | ...
//                                     number    0  |  1  |  2  |  3  |  0  | ...
template <class T, int m, int n>
class EmulatedAccumulator {
 public:
  static constexpr int sharing = 4;
  using Numbers = PerRow<m * sharing>;  // a thread uses those of its rows

  template <class B>
  explicit EmulatedAccumulator(const B& block)
      : begin_(m * block.thread() / block.threads()),
        end_(m * (block.thread() + 1) / block.threads()) {}

  // Sixteen partial sums, which the compiler can vectorize. It may not reorder a single sum.
  template <int k>
  void add_product(const Tile<T, m, k>& a, const Transposed<T, n, k>& b) {
    constexpr int width = 16;
    for (int row = begin_; row < end_; ++row)
      for (int column = 0; column < n; ++column) {
        float partials[width] = {}, all = 0;
        for (int i = 0; i < k; i += width)
          for (int j = 0; j < width; ++j)
            partials[j] +=
                static_cast<float>(a(row, i + j)) * static_cast<float>(b.tile(column, i + j));
        for (const float part : partials) all += part;
        at_[row][column] += all;
      }
  }
  template <int k>
  void add_product(const EmulatedAccumulator<T, m, k>& p, const Tile<T, k, n>& b) {
    for (int row = begin_; row < end_; ++row)
      for (int i = 0; i < k; ++i) {
        const float factor = T(p.at_[row][i]);
        for (int column = 0; column < n; ++column)
          at_[row][column] += factor * static_cast<float>(b(i, column));
      }
  }
  template <class Body>
  void for_each(const Body& body) {
    for (int row = begin_; row < end_; ++row)
      for (int column = 0; column < n; ++column) body(place(row, column), at_[row][column]);
  }
  template <class Body>
  void for_each(EmulatedAccumulator& other, const Body& body) {
    for (int row = begin_; row < end_; ++row)
      for (int column = 0; column < n; ++column)
        body(place(row, column), at_[row][column], other.at_[row][column]);
  }
  void max_of_rows(Numbers& numbers) const {
    join(numbers, [](float a, float b) { return a < b ? b : a; });
  }
  void sum_of_rows(Numbers& numbers) const {
    join(numbers, [](float a, float b) { return a + b; });
  }

 private:
  template <class, int, int>
  friend class EmulatedAccumulator;

  static ElementAt place(int row, int column) {
    return {row, column, row * sharing + column / 2 % sharing};
  }
  template <class Combine>
  void join(Numbers& numbers, const Combine& combine) const {
    for (int first = begin_ * sharing; first < end_ * sharing; first += sharing) {
      float all = numbers[first];
      for (int i = 1; i < sharing; ++i) all = combine(all, numbers[first + i]);
      for (int i = 0; i < sharing; ++i) numbers[first + i] = all;
    }
  }

  int begin_, end_;
  float at_[m][n] = {};
};

// One thread for each row.
struct EmulatedRowGroup {
  static constexpr int size = 1;
  template <class B>
  explicit EmulatedRowGroup(const B&) {}
  int index() const { return 0; }
  int count() const { return size; }
  float sum(float x) const { return x; }
  float max(float x) const { return x; }
};

// The asynchronous copies of one thread. They are delayed until wait_copies(), so that a kernel
// that reads too early sees the old contents.
class EmulatedAsyncCopies {
 public:
  void copy_async(void* into, const void* from) { copies_.push_back({into, from, batch_}); }
  void commit_copies() { ++batch_; }
  void wait_copies(int newest) {
    std::size_t left = 0;
    for (const Copy& copy : copies_)
      if (copy.batch >= batch_ - newest)
        copies_[left++] = copy;
      else if (copy.from)
        std::memcpy(copy.into, copy.from, 16);
      else
        std::memset(copy.into, 0, 16);
    copies_.resize(left);
  }

 private:
  struct Copy {
    void* into = nullptr;
    const void* from = nullptr;  // nullptr: zeros
    int batch = 0;
  };
  std::vector<Copy> copies_;
  int batch_ = 0;
};

}  // namespace ringside::autograd::cuda
