// Tiles: matrices in the shared memory of a block, and what the block's threads compute with them.
// Attention is written with these operations.
//
//     Tile<T, m, n>                  a matrix in shared memory
//     load_tile_async, store_tile    between global memory and a tile; elements outside of the
//                                    matrix in global memory are 0 in the tile
//     B::Accumulator<T, m, n>        a sum of products of tiles, in the registers of all threads
//     PerRow                         a number for each row of an accumulator, in registers too
//     for_each_row                   a group of neighbouring threads for each row of a matrix in
//                                    global memory (B::RowGroup<8>)
//
// An accumulator is divided among the threads by rows. On tensor cores each of four warps has a
// quarter of them, and four neighbouring threads share a row (device_tiles.cuh has the picture):
//
//                           m = 64 rows, as 4 x 16
//     warp 0, threads 0-31    +-----------------+   thread 4 i + j of a warp shares rows i and
//     warp 1, threads 32-63   +-----------------+   i + 8 of its 16 with threads 4 i .. 4 i + 3;
//     warp 2, threads 64-95   +-----------------+   of each 8 columns it has 2 j and 2 j + 1
//     warp 3, threads 96-127  +-----------------+
//
// Two rules hold for every kind of block. All accumulators of as many rows divide them alike, so
// one can be the left factor of a product that another one adds, and a PerRow of one fits the
// other. And the rows of a left factor are read only by the threads that share these rows. Apart
// from that a kernel never depends on where an element is: it says what to do with each (for_each).
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
  static_assert((m == 1 || m % 32 == 0) && n % 32 == 0);
  static constexpr int rows = m, columns = n, stride = n + Pack<T>::size;
  static constexpr std::size_t bytes = sizeof(T) * m * stride;
  T* data;

  static constexpr Tile at(std::byte* shared) { return {reinterpret_cast<T*>(shared)}; }
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

// Divides shared memory into tiles, one after the other. Sizes are multiples of 16 bytes, so each
// tile is as aligned as the first, up to 16 bytes.
class SharedAllocator {
 public:
  constexpr explicit SharedAllocator(std::byte* shared) : next_(shared) {}

  template <class T, int m, int n>
  constexpr Tile<T, m, n> tile() {
    return Tile<T, m, n>::at(take(Tile<T, m, n>::bytes));
  }
  constexpr std::byte* take(std::size_t bytes) { return std::exchange(next_, next_ + bytes); }

 private:
  std::byte* next_;
};

// A matrix in global memory from the first element of a tile on: `rows` and `columns` count what is
// left of it, and may be more or less than the tile has. T may be const.
template <class T>
struct MatrixView {
  T* data;
  int stride;  // elements from row to row; less than 2^31 for the rows of a tile
  int rows, columns;
  bool packs;  // rows are aligned to 16 bytes and whole packs long

  constexpr MatrixView from_row(int first) const {
    return {data + std::int64_t{first} * stride, stride, rows - first, columns, packs};
  }
};

// Starts to load a tile of the matrix, with zeros beyond its end. This thread may read what it
// loaded after wait_copies(); the other threads may after a sync() that follows.
template <class T, int m, int n, class B>
constexpr void load_tile_async(B& block, const Tile<T, m, n>& tile,
                               const MatrixView<const T>& matrix) {
  constexpr int size = Pack<T>::size, packs_in_row = n / size;
  if (matrix.packs) {
    // The threads stand in `down` rows. Addresses are added up, which takes few registers.
    const int across = block.threads() < packs_in_row ? block.threads() : packs_in_row,
              down = block.threads() / across;
    int row = block.thread() / across;
    if (row >= down) return;
    const T* from = matrix.data + row * matrix.stride;
    for (; row < m; row += down, from += down * matrix.stride)
      for (int column = block.thread() % across * size; column < n; column += across * size)
        block.copy_async(&tile(row, column), from + column,
                         row < matrix.rows && column < matrix.columns);
    return;
  }
#ifdef __CUDACC__
#pragma unroll 1  // rows that are not aligned are rare: little code for them
#endif
  for (int i = block.thread(); i < m * n; i += block.threads()) {
    const int row = i / n, column = i % n;
    tile(row, column) = row < matrix.rows && column < matrix.columns
                            ? matrix.data[row * matrix.stride + column]
                            : T{};
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

// Where an element of an accumulator is. `held` is the place of its row in a PerRow of the thread.
struct ElementAt {
  int row, column, held;
};

// A number for each row of which a thread holds elements. The threads that share a row have a
// number each: after max_of_rows or sum_of_rows the same one, before it what each has found in its
// columns.
template <int rows>
struct PerRow {
  static constexpr int count = rows;
  float at[rows];

  static constexpr PerRow all(float x) {
    PerRow numbers{};
    for (float& each : numbers.at) each = x;
    return numbers;
  }
  constexpr float& operator[](int held) { return at[held]; }
  constexpr float operator[](int held) const { return at[held]; }
};

// What a block offers to kernels of tiles in addition to Block. Accumulator and RowGroup are
// constructed from the block.
//
//     RowGroup<size>            `size` neighbouring threads on a GPU: 8, 32 (a warp), or all of
//                               the block; one thread in an emulation. RowGroup::size says how
//                               many there are. A reduction is a barrier for them.
//
//     Accumulator<T, m, n> c(block)         m x n zeros, in fp32
//     c.add_product(a, transposed(b))       c += a b^T   with tiles a [m, k] and b [n, k] of T
//     c.add_product(p, b)                   c += p b     with an accumulator p [m, k], which is
//                                           rounded to T, and a tile b [k, n] of T
//     c.for_each(body)                      body(at, c[at]) for every element, on the thread that
//                                           holds it; `at` is an ElementAt
//     c.for_each(other, body)               body(at, c[at], other[at])
//     Accumulator::Numbers                  the PerRow of these rows
//     c.max_of_rows(numbers)                each becomes the maximum, or the sum, over the threads
//     c.sum_of_rows(numbers)                that share its row
//
//     copy_async(into, from, exists)
//                               starts to copy 16 bytes from global to shared memory: zeros, if
//                               not `exists`. Then `from` is not read.
//     commit_copies()           closes a batch of copies
//     wait_copies(n)            waits for this thread's copies, but not for its n newest batches
template <class B>
concept TileBlock = Block<B> &&
    requires(B& block, float* shared, const float* global, typename B::template RowGroup<8> group) {
  typename B::template Accumulator<float, 64, 32>;
  typename B::template Accumulator<Bf16, 64, 32>;
  block.copy_async(shared, global, true);
  block.commit_copies();
  block.wait_copies(1);
  { group.index() } -> std::same_as<int>;
  { group.count() } -> std::same_as<int>;
  { group.sum(1.0f) } -> std::same_as<float>;
  { group.max(1.0f) } -> std::same_as<float>;
};

}  // namespace ringside::autograd::cuda
