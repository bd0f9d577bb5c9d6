// What a block of the CPU offers to kernels of tiles (tiles.hpp).
#pragma once

#include <cstring>
#include <vector>

#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

// Each thread has some columns of the product. (Rows would do as well, but for a missing sync():
// who writes the rows of a left factor himself, and then needs only them, would not miss it; on a
// GPU he needs others'.)
template <class T, int m, int n>
class EmulatedProduct {
 public:
  template <class B>
  explicit EmulatedProduct(const B& block)
      : begin_(n * block.thread() / block.threads()),
        end_(n * (block.thread() + 1) / block.threads()) {}

  template <int k>
  void add(const Tile<T, m, k>& a, const Tile<T, k, n>& b) {
    for (int row = 0; row < m; ++row)
      for (int i = 0; i < k; ++i) {
        const float factor = a(row, i);
        for (int column = begin_; column < end_; ++column)
          at_[row][column] += factor * static_cast<float>(b(i, column));
      }
  }
  // Sixteen sums side by side, which a compiler can turn into vectors; one sum it must not.
  template <int k>
  void add(const Tile<T, m, k>& a, const Transposed<T, n, k>& b) {
    constexpr int width = 16;
    for (int row = 0; row < m; ++row)
      for (int column = begin_; column < end_; ++column) {
        float parts[width] = {}, all = 0;
        for (int i = 0; i < k; i += width)
          for (int j = 0; j < width; ++j)
            parts[j] +=
                static_cast<float>(a(row, i + j)) * static_cast<float>(b.tile(column, i + j));
        for (const float part : parts) all += part;
        at_[row][column] += all;
      }
  }
  template <class Body>
  void for_each(const Body& body) {
    for (int row = 0; row < m; ++row)
      for (int column = begin_; column < end_; ++column) body(row, column, at_[row][column]);
  }
  template <class Body>
  void for_each(EmulatedProduct& other, const Body& body) {
    for (int row = 0; row < m; ++row)
      for (int column = begin_; column < end_; ++column)
        body(row, column, at_[row][column], other.at_[row][column]);
  }

 private:
  int begin_, end_;
  float at_[m][n] = {};
};

// A row is one thread's.
struct EmulatedGroup {
  template <class B>
  explicit EmulatedGroup(const B&) {}
  int index() const { return 0; }
  int count() const { return 1; }
  float sum(float x) const { return x; }
  float max(float x) const { return x; }
};

// Copies of one thread, made as late as they may be: who looks too early finds what was there
// before.
class EmulatedCopies {
 public:
  void copy_later(void* into, const void* from) { copies_.push_back({into, from, batch_}); }
  void end_of_batch() { ++batch_; }
  void finish_copies(int but) {
    std::size_t left = 0;
    for (const Copy& copy : copies_)
      if (copy.batch < batch_ - but)
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
