// Tiles: matrices in the shared memory of a block, and what the block's threads compute with them.
// Attention is written with these operations.
//
//     Tile<T, m, n>                  a matrix in shared memory
//     load_tile_async, store_tile    between global memory and a tile; elements outside of the
//                                    matrix in global memory are 0 in the tile
//     B::Accumulator<T, m, n>        a sum of products of tiles, in the registers of all threads
//     for_each_row                   a group of neighbouring threads for each row (B::RowGroup),
//                                    which reduces among its threads
//
// The block decides which thread computes which elements of an accumulator: on the CPU a thread has
// some columns, on tensor cores a warp has 16 x 8 matrices (device_tiles.cuh). So a kernel never
// depends on where an element is; it only says what to do with each one (Accumulator::for_each).
#pragma once

#include <utility>

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// Threads per block on a GPU of a kernel that multiplies tiles: four warps, which divide an
// accumulator in a fixed way.
inline constexpr int tile_threads = 128;

// Rows are padded by 16 bytes, against bank conflicts. Shared memory has 32 banks of 4 bytes.
// Without padding a column would lie in one or two banks, and reads of it would be serialised. With
// it the packs of eight consecutive rows at the same column cover all 32 banks.
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

// Divides shared memory into tiles and arrays, one after the other. Sizes are multiples of 32
// bytes, so each allocation is as aligned as the first, up to 32 bytes.
class SharedAllocator {
 public:
  constexpr explicit SharedAllocator(std::byte* shared) : next_(shared) {}

  template <class T, int m, int n>
  constexpr Tile<T, m, n> tile() {
    return {reinterpret_cast<T*>(take(Tile<T, m, n>::bytes))};
  }
  template <class T, int count>
  constexpr T* array() {
    static_assert(sizeof(T) * count % 32 == 0);
    return reinterpret_cast<T*>(take(sizeof(T) * count));
  }

 private:
  constexpr std::byte* take(std::size_t bytes) { return std::exchange(next_, next_ + bytes); }
  std::byte* next_;
};

// A matrix in global memory from the first element of a tile on: `rows` and `columns` count what is
// left of it, and may be more or less than the tile has. T may be const.
template <class T>
struct MatrixView {
  T* data;
  std::int64_t stride;  // elements from row to row
  std::int64_t rows;
  int columns;
  bool packs;  // rows are aligned to 16 bytes and whole packs long
};

// Starts to load a tile of the matrix, with zeros beyond its end. This thread may read what it
// loaded after wait_copies(); the other threads may after a sync() that follows.
template <class T, int m, int n, class B>
constexpr void load_tile_async(B& block, const Tile<T, m, n>& tile,
                               const MatrixView<const T>& matrix) {
  constexpr int size = Pack<T>::size, packs_in_row = n / size;
  for (int i = block.thread(); i < m * packs_in_row; i += block.threads()) {
    const int row = i / packs_in_row, column = i % packs_in_row * size;
    T* const into = &tile(row, column);
    const T* const from = matrix.data + row * matrix.stride + column;
    if (matrix.packs && row < matrix.rows && column < matrix.columns) {
      block.copy_async(into, from);
      continue;
    }
    Pack<T> pack{};
    for (int k = 0; k < size; ++k)
      if (row < matrix.rows && column + k < matrix.columns) pack.at[k] = from[k];
    store(into, pack);
  }
}

// Stores the part of the tile that lies within the matrix.
template <class T, int m, int n, class B>
constexpr void store_tile(B& block, const Tile<T, m, n>& tile, const MatrixView<T>& matrix) {
  constexpr int size = Pack<T>::size, packs_in_row = n / size;
  for (int i = block.thread(); i < m * packs_in_row; i += block.threads()) {
    const int row = i / packs_in_row, column = i % packs_in_row * size;
    if (row >= matrix.rows || column >= matrix.columns) continue;
    T* const into = matrix.data + row * matrix.stride + column;
    const Pack<T> pack = load(&tile(row, column));
    if (matrix.packs)
      store(into, pack);
    else
      for (int k = 0; k < size; ++k)
        if (column + k < matrix.columns) into[k] = pack.at[k];
  }
}

// Calls body(row, group) for rows 0 .. rows-1. The threads of a group divide the columns of the
// row: each begins at group.index() and takes every group.count()-th. group.sum(x) and group.max(x)
// give all threads of the group the same result.
template <class B, class Body>
constexpr void for_each_row(B& block, int rows, const Body& body) {
  const typename B::template RowGroup<8> group(block);
  for (int row = block.thread() / group.count(); row < rows; row += block.threads() / group.count())
    body(row, group);
}

// What a block offers to kernels of tiles in addition to Block. Accumulator and RowGroup are
// constructed from the block.
//
//     Accumulator<T, m, n> c(block)         m x n zeros, in fp32
//     c.add_product(a, b)                   c += a b     with tiles a [m, k] and b [k, n] of T
//     c.add_product(a, transposed(b))       c += a b^T   with b [n, k]
//     c.for_each(body)                      body(row, column, c[row, column]) for every element, on
//                                           the thread that holds it
//     c.for_each(other, body)               body(row, column, c[row, column], other[row, column])
//
//     copy_async(into, from)    starts to copy 16 bytes from global to shared memory
//     commit_copies()           closes a batch of copies
//     wait_copies(n)            waits for this thread's copies, but not for its n newest batches
template <class B>
concept TileBlock = Block<B> &&
    requires(B& block, float* shared, const float* global, typename B::template RowGroup<8> group) {
  typename B::template Accumulator<float, 64, 32>;
  typename B::template Accumulator<Bf16, 64, 32>;
  block.copy_async(shared, global);
  block.commit_copies();
  block.wait_copies(1);
  { group.index() } -> std::same_as<int>;
  { group.count() } -> std::same_as<int>;
  { group.sum(1.0f) } -> std::same_as<float>;
  { group.max(1.0f) } -> std::same_as<float>;
};

}  // namespace ringside::autograd::cuda
