// Sums over the threads of a warp and of a block, and over the rows of a matrix.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

// The sum of x over the 32 lanes of the warp; all lanes call it and get it. Each step adds what the
// lane at half the distance has summed so far.
template <class Gpu>
constexpr float warp_sum(Gpu& gpu, float x) {
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    x += gpu.shuffle_xor(all_lanes, x, distance);
  return x;
}

// The sum of x over the threads of the block; all threads call it and get it, with the same bits in
// every run. Each warp puts its sum into shared memory, of 64 floats, and adds up those of all
// warps.
template <class Gpu>
constexpr float block_sum(Gpu& gpu, float x) {
  const int lane = gpu.thread() % warp_size, warp = gpu.thread() / warp_size;
  const int warps = gpu.threads() / warp_size;
  x = warp_sum(gpu, x);
  if (lane == 0) gpu.store_shared(warp, x);
  gpu.sync();  // all sums are there
  x = warp_sum(gpu, lane < warps ? gpu.load_shared(lane) : 0.0f);
  gpu.sync();  // all are read: the next call may write
  return x;
}

// sums[r] is the sum of row r of x, [rows, n].
template <class Gpu>
constexpr void row_sums(Gpu& gpu, const Global<float>& sums, const Global<float>& x,
                        std::int64_t rows, std::int64_t n) {
  for (std::int64_t row = gpu.block(); row < rows; row += gpu.blocks()) {
    float own = 0;
    for (std::int64_t i = gpu.thread(); i < n; i += gpu.threads()) own += gpu.load(x, row * n + i);
    own = block_sum(gpu, own);
    if (gpu.thread() == 0) gpu.store(sums, row, own);
  }
}

}  // namespace ringside::gpu
