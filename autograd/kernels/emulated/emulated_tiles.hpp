// The CPU's part of tiles.hpp: accumulators, row groups and asynchronous copies of an emulated
// block.
#pragma once

#include <cstring>
#include <vector>

#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

// Each thread holds some columns of the accumulator, and so reads all rows of the left factor.
// Tests that look for a missing sync() depend on this. If a thread held rows, it could write the
// rows of a left factor and then read only those, and a missing sync() in between would not show.
template <class T, int m, int n>
class EmulatedAccumulator {
 public:
  template <class B>
  explicit EmulatedAccumulator(const B& block)
      : begin_(n * block.thread() / block.threads()),
        end_(n * (block.thread() + 1) / block.threads()) {}

  template <int k>
  void add_product(const Tile<T, m, k>& a, const Tile<T, k, n>& b) {
    for (int row = 0; row < m; ++row)
      for (int i = 0; i < k; ++i) {
        const float factor = a(row, i);
        for (int column = begin_; column < end_; ++column)
          at_[row][column] += factor * static_cast<float>(b(i, column));
      }
  }
  // Sixteen partial sums, which the compiler can vectorize. It may not reorder a single sum.
  template <int k>
  void add_product(const Tile<T, m, k>& a, const Transposed<T, n, k>& b) {
    constexpr int width = 16;
    for (int row = 0; row < m; ++row)
      for (int column = begin_; column < end_; ++column) {
        float partials[width] = {}, all = 0;
        for (int i = 0; i < k; i += width)
          for (int j = 0; j < width; ++j)
            partials[j] +=
                static_cast<float>(a(row, i + j)) * static_cast<float>(b.tile(column, i + j));
        for (const float part : partials) all += part;
        at_[row][column] += all;
      }
  }
  template <class Body>
  void for_each(const Body& body) {
    for (int row = 0; row < m; ++row)
      for (int column = begin_; column < end_; ++column) body(row, column, at_[row][column]);
  }
  template <class Body>
  void for_each(EmulatedAccumulator& other, const Body& body) {
    for (int row = 0; row < m; ++row)
      for (int column = begin_; column < end_; ++column)
        body(row, column, at_[row][column], other.at_[row][column]);
  }

 private:
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
      if (copy.batch < batch_ - newest)
        std::memcpy(copy.into, copy.from, 16);
      else
        copies_[left++] = copy;
    copies_.resize(left);
  }

 private:
  struct Copy {
    void* into = nullptr;
    const void* from = nullptr;
    int batch = 0;
  };
  std::vector<Copy> copies_;
  int batch_ = 0;
};

}  // namespace ringside::autograd::cuda
