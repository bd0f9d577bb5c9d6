// A copy and a transpose that ask memory for whole sectors.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

// to[i] = from[i], with packs where both begin at a multiple of 16 bytes. The threads of all blocks
// take turns, so that the lanes of a warp ask for neighbours.
template <class Gpu>
constexpr void copy(Gpu& gpu, const Global<float>& to, const Global<float>& from) {
  constexpr int size = Pack<float>::size;
  const std::int64_t n = from.size(), first = gpu.block() * gpu.threads() + gpu.thread();
  const std::int64_t all = gpu.blocks() * gpu.threads();
  const std::int64_t packs = to.aligned() && from.aligned() ? n / size : 0;
  for (std::int64_t i = first; i < packs; i += all)
    gpu.store_pack(to, i * size, gpu.load_pack(from, i * size));
  for (std::int64_t i = packs * size + first; i < n; i += all) gpu.store(to, i, gpu.load(from, i));
}

// to [columns, rows] is from [rows, columns] transposed. A block takes tiles of 32 x 32 numbers
// through its shared memory, of 1056 floats. Rows of a tile are 33 floats apart, so that the lanes
// that read a column of it find each word in another bank.
template <class Gpu>
constexpr void transpose(Gpu& gpu, const Global<float>& to, const Global<float>& from,
                         std::int64_t rows, std::int64_t columns) {
  constexpr int tile = 32, pitch = tile + 1;
  const int lane = gpu.thread() % warp_size, warp = gpu.thread() / warp_size;
  const int warps = gpu.threads() / warp_size;
  const std::int64_t across = (columns + tile - 1) / tile, down = (rows + tile - 1) / tile;
  for (std::int64_t at = gpu.block(); at < across * down; at += gpu.blocks()) {
    const std::int64_t row = at / across * tile, column = at % across * tile;
    for (int r = warp; r < tile; r += warps)
      if (row + r < rows && column + lane < columns)
        gpu.store_shared(r * pitch + lane, gpu.load(from, (row + r) * columns + column + lane));
    gpu.sync();  // the tile is there
    for (int c = warp; c < tile; c += warps)
      if (column + c < columns && row + lane < rows)
        gpu.store(to, (column + c) * rows + row + lane, gpu.load_shared(lane * pitch + c));
    gpu.sync();  // the tile is no longer read
  }
}

}  // namespace ringside::gpu
