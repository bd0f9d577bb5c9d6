// Matrices in the memory that a block's threads share, and what the threads do with them together:
// attention is written in this algebra.
//
//     Tile<T, m, n>        a matrix in shared memory
//     fetch, keep          from global memory into a tile, and back; what a matrix does not have is 0 in the tile
//     Product<T, m, n>     B::Product: a sum of products of tiles, which lies in the registers of all threads together
//     for_each_row         a few neighbouring threads for each row, which add up and compare among themselves (B::Group)
//
// Who computes which numbers of a product is the block's own affair: a thread its columns on the
// CPU, a warp its 16 x 16 squares on tensor cores (device_tiles.cuh). So a kernel never asks where
// a number of a product lies; it says what is to be done with each (for_each).
#pragma once

#include <utility>

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// Kernels that multiply tiles have so many threads on a GPU: four warps, between which a product is
// cut in a fixed way.
inline constexpr int product_threads = 128;

// A row is longer than its numbers by 16 bytes. Without, a column would lie in one of the 32 banks
// of shared memory and its numbers would be read one after the other; so eight rows' packs at the
// same column lie in eight different groups of four banks.
template <class T, int m, int n>
struct Tile {
  static_assert(m % 32 == 0 && n % 32 == 0);
  static constexpr int rows = m, columns = n, stride = n + Pack<T>::size;
  static constexpr std::size_t bytes = sizeof(T) * m * stride;
  T* data;

  constexpr T& operator()(int row, int column) const { return data[row * stride + column]; }
};

template <class T, int m, int n>
struct Transposed {
  Tile<T, m, n> tile;
};
template <class T, int m, int n>
constexpr Transposed<T, m, n> transposed(Tile<T, m, n> tile) {
  return {tile};
}

// Cuts shared memory into pieces, in the order in which they are asked for. All pieces lie on 32
// bytes if the first does.
class Cutter {
 public:
  constexpr explicit Cutter(std::byte* shared) : next_(shared) {}

  template <class T, int m, int n>
  constexpr Tile<T, m, n> tile() {
    return {reinterpret_cast<T*>(cut(Tile<T, m, n>::bytes))};
  }
  template <class T, int count>
  constexpr T* numbers() {
    static_assert(sizeof(T) * count % 32 == 0);
    return reinterpret_cast<T*>(cut(sizeof(T) * count));
  }

 private:
  constexpr std::byte* cut(std::size_t bytes) { return std::exchange(next_, next_ + bytes); }
  std::byte* next_;
};

// A matrix in global memory, of which a tile shows a part: `rows` and `columns` are what there is
// from its first number on. T may be const.
template <class T>
struct Part {
  T* data;
  std::int64_t stride;  // from row to row
  std::int64_t rows;
  int columns;
  bool packs;  // rows begin on 16 bytes and are whole packs
};

// Asks for a tile of the matrix; zeros where it ends. There for the thread's own eyes after
// finish_copies(), for all after a sync() then.
template <class T, int m, int n, class B>
constexpr void fetch(B& block, const Tile<T, m, n>& tile, const Part<const T>& part) {
  constexpr int size = Pack<T>::size, packs_in_row = n / size;
  for (int i = block.thread(); i < m * packs_in_row; i += block.threads()) {
    const int row = i / packs_in_row, column = i % packs_in_row * size;
    T* const into = &tile(row, column);
    const T* const from = part.data + row * part.stride + column;
    if (part.packs && row < part.rows && column < part.columns) {
      block.copy_later(into, from);
      continue;
    }
    Pack<T> pack{};
    for (int k = 0; k < size; ++k)
      if (row < part.rows && column + k < part.columns) pack.at[k] = from[k];
    store(into, pack);
  }
}

// Writes the tile into as much of the matrix as there is.
template <class T, int m, int n, class B>
constexpr void keep(B& block, const Tile<T, m, n>& tile, const Part<T>& part) {
  constexpr int size = Pack<T>::size, packs_in_row = n / size;
  for (int i = block.thread(); i < m * packs_in_row; i += block.threads()) {
    const int row = i / packs_in_row, column = i % packs_in_row * size;
    if (row >= part.rows || column >= part.columns) continue;
    T* const into = part.data + row * part.stride + column;
    const Pack<T> pack = load(&tile(row, column));
    if (part.packs)
      store(into, pack);
    else
      for (int k = 0; k < size; ++k)
        if (column + k < part.columns) into[k] = pack.at[k];
  }
}

// body(row, group) for rows 0 .. rows-1. The threads of a group share out the row's columns: from
// group.index(), every group.count()-th; and group.sum(x), group.max(x) give all of them the same.
template <class B, class Body>
constexpr void for_each_row(B& block, int rows, const Body& body) {
  const typename B::Group group(block);
  for (int row = block.thread() / group.count(); row < rows; row += block.threads() / group.count())
    body(row, group);
}

// What a block offers to kernels of tiles besides Block's. Both are constructed from the block.
//
//     Product<T, m, n> c(block)             m x n zeros
//     c.add(a, b)                           + a b     with a [m, k] and b [k, n], tiles of T
//     c.add(a, transposed(b))               + a b^T   with b [n, k]
//     c.for_each(body)                      body(row, column, number), every number by the thread that has it
//     c.for_each(other, body)               body(row, column, number, number of another product of the same kind)
//
//     copy_later(into, from)                16 bytes from global to shared memory, without a thread that waits for them
//     end_of_batch(), finish_copies(n)      closes a batch of copies; waits for those that this thread asked for, but the n newest batches
template <class B>
concept TileBlock = Block<B> &&
    requires(B& block, float* shared, const float* global, typename B::Group group) {
  typename B::template Product<float, 64, 32>;
  typename B::template Product<Bf16, 64, 32>;
  block.copy_later(shared, global);
  block.end_of_batch();
  block.finish_copies(1);
  { group.index() } -> std::same_as<int>;
  { group.count() } -> std::same_as<int>;
  { group.sum(1.0f) } -> std::same_as<float>;
  { group.max(1.0f) } -> std::same_as<float>;
};

}  // namespace ringside::autograd::cuda
