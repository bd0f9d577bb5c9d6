// Softmax and cross entropy of rows of logits, in two passes over memory.
#pragma once

#include "exercises/35-online-softmax/given.hpp"
#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

// What is known of the logits of both. Each total is scaled to the larger of the two maxima. A part
// that has seen nothing but -infinity has nothing to add; infinity - infinity would not be a
// number.
template <class Gpu>
constexpr Softmax merged(Gpu& gpu, const Softmax& a, const Softmax& b) {
  const float largest = a.largest < b.largest ? b.largest : a.largest;
  const auto scaled = [&](const Softmax& part) {
    return part.largest == -infinity ? 0.0f : part.total * gpu.exp(part.largest - largest);
  };
  return {largest, scaled(a) + scaled(b)};
}

// What the threads of the block know together; all threads call it and get it. It takes 64 floats
// of shared memory.
template <class Gpu>
constexpr Softmax block_softmax(Gpu& gpu, Softmax own) {
  const int lane = gpu.thread() % warp_size, warp = gpu.thread() / warp_size;
  const int warps = gpu.threads() / warp_size;
  for (int distance = warp_size / 2; distance > 0; distance /= 2) {
    const Softmax other{gpu.shuffle_xor(all_lanes, own.largest, distance),
                        gpu.shuffle_xor(all_lanes, own.total, distance)};
    own = merged(gpu, own, other);
  }
  if (lane == 0) {
    gpu.store_shared(warp, own.largest);
    gpu.store_shared(warp_size + warp, own.total);
  }
  gpu.sync();  // each warp's part is there
  Softmax all;
  for (int w = 0; w < warps; ++w)
    all = merged(gpu, all, {gpu.load_shared(w), gpu.load_shared(warp_size + w)});
  gpu.sync();  // all parts are read: the next call may write
  return all;
}

// losses[r] = log(sum over i of exp(z[r, i])) - z[r, target of r], for z [rows, n]. The gradient of
// the loss takes the place of each logit: softmax(z)[r, i], minus 1 at the target.
template <class Gpu>
constexpr void cross_entropy(Gpu& gpu, const Global<float>& losses, const Global<float>& z,
                             const Global<int>& targets, std::int64_t rows, std::int64_t n) {
  for (std::int64_t row = gpu.block(); row < rows; row += gpu.blocks()) {
    const std::int64_t target = gpu.load(targets, row);
    Softmax own;
    float chosen = 0;
    for (std::int64_t i = gpu.thread(); i < n; i += gpu.threads()) {
      const float logit = gpu.load(z, row * n + i);
      own = merged(gpu, own, {logit, 1});
      if (i == target) chosen = logit;
    }
    const Softmax all = block_softmax(gpu, own);
    for (std::int64_t i = gpu.thread(); i < n; i += gpu.threads()) {
      const float p = gpu.exp(gpu.load(z, row * n + i) - all.largest) / all.total;
      gpu.store(z, row * n + i, i == target ? p - 1 : p);
    }
    if (target % gpu.threads() == gpu.thread())  // this thread has seen the target's logit
      gpu.store(losses, row, all.largest + gpu.log(all.total) - chosen);
  }
}

}  // namespace ringside::gpu
