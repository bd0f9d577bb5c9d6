// A matrix product in tiles: asynchronous copies bring the next step of k while a block multiplies.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

constexpr int tile = 32;   // rows and columns of c for a block of 64 threads
constexpr int depth = 16;  // numbers of k in a step
constexpr int pitch = 20;  // floats from row to row in shared memory: 8 rows in 8 different banks
constexpr int stage_floats = 2 * tile * pitch;  // rows of a, then rows of b; there are two stages

// Starts to copy columns first .. first + 15 of 32 rows of a and of b into a stage. What lies
// outside the matrices is 0. k is a multiple of 4, so a pack is whole or outside.
template <class Gpu>
constexpr void start_stage(Gpu& gpu, int stage, const Global<float>& a, const Global<float>& b,
                           std::int64_t row, std::int64_t column, std::int64_t m, std::int64_t n,
                           std::int64_t k, std::int64_t first) {
  for (int p = gpu.thread(); p < tile * depth / 4; p += gpu.threads()) {
    const int r = p / (depth / 4), at = stage * stage_floats + r * pitch + p % (depth / 4) * 4;
    const std::int64_t i = first + p % (depth / 4) * 4;
    gpu.copy_async(at, a, (row + r) * k + i, row + r < m && i < k);
    gpu.copy_async(at + tile * pitch, b, (column + r) * k + i, column + r < n && i < k);
  }
  gpu.commit_copies();
}

// c = a b^T for a [m, k], b [n, k] and c [m, n]. Each thread keeps 4 x 4 numbers of c in registers,
// 8 rows and 8 columns apart: 8 loads from shared memory serve 16 products.
template <class Gpu>
constexpr void product(Gpu& gpu, const Global<float>& c, const Global<float>& a,
                       const Global<float>& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  const std::int64_t across = (n + tile - 1) / tile, down = (m + tile - 1) / tile;
  const int y = gpu.thread() / 8, x = gpu.thread() % 8;
  for (std::int64_t at = gpu.block(); at < across * down; at += gpu.blocks()) {
    const std::int64_t row = at / across * tile, column = at % across * tile;
    float sums[4][4] = {};
    start_stage(gpu, 0, a, b, row, column, m, n, k, 0);
    for (std::int64_t first = 0; first < k; first += depth) {
      const int stage = static_cast<int>(first / depth % 2);
      gpu.wait_copies(0);
      gpu.sync();  // this stage is there, and nobody reads the other one any more
      if (first + depth < k) start_stage(gpu, 1 - stage, a, b, row, column, m, n, k, first + depth);
      for (int i = 0; i < depth; ++i) {
        const int from = stage * stage_floats + i;
        float left[4] = {}, right[4] = {};
        for (int q = 0; q < 4; ++q) {
          left[q] = gpu.load_shared(from + (y + 8 * q) * pitch);
          right[q] = gpu.load_shared(from + (tile + x + 8 * q) * pitch);
        }
        for (int p = 0; p < 4; ++p)
          for (int q = 0; q < 4; ++q) sums[p][q] += left[p] * right[q];
      }
    }
    gpu.sync();  // the next tile may begin to copy
    for (int p = 0; p < 4; ++p)
      for (int q = 0; q < 4; ++q)
        if (row + y + 8 * p < m && column + x + 8 * q < n)
          gpu.store(c, (row + y + 8 * p) * n + column + x + 8 * q, sums[p][q]);
  }
}

}  // namespace ringside::gpu
