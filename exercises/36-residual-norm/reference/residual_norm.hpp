// A residual sum and its RMSNorm in one kernel, forward and backward: each byte moves once.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

constexpr int most = 8;  // numbers of a row for each thread, which keeps them in registers

// h = x + r, y = h rstd w, rstd = 1 / sqrt(mean of h^2 + epsilon), for x, r, h and y [rows, n] in
// bf16, w [n] and rstds [rows] in fp32. n is at most `most` times the threads of a block. The norm
// is that of h as it is stored, rounded: backward reads this one.
template <class Gpu>
constexpr void residual_norm(Gpu& gpu, const Global<Bf16>& y, const Global<Bf16>& h,
                             const Global<float>& rstds, const Global<Bf16>& x,
                             const Global<Bf16>& r, const Global<float>& w, std::int64_t rows,
                             std::int64_t n, float epsilon) {
  for (std::int64_t row = gpu.block(); row < rows; row += gpu.blocks()) {
    float own[most] = {}, squares = 0;
    for (int k = 0; k < most; ++k) {
      const std::int64_t i = gpu.thread() + std::int64_t{k} * gpu.threads(), at = row * n + i;
      if (i >= n) continue;
      const Bf16 sum(static_cast<float>(gpu.load(x, at)) + static_cast<float>(gpu.load(r, at)));
      gpu.store(h, at, sum);
      own[k] = static_cast<float>(sum);
      squares += own[k] * own[k];
    }
    const float rstd = 1 / gpu.sqrt(gpu.sum(squares) / static_cast<float>(n) + epsilon);
    for (int k = 0; k < most; ++k) {
      const std::int64_t i = gpu.thread() + std::int64_t{k} * gpu.threads();
      if (i < n) gpu.store(y, row * n + i, Bf16(own[k] * rstd * gpu.load(w, i)));
    }
    if (gpu.thread() == 0) gpu.store(rstds, row, rstd);
  }
}

// The gradients of h and w: dh = g + rstd (w dy - u mean of (w dy u)) with u = h rstd, where g
// comes from the residual's other branch; parts[b] is the sum of dy u over the rows of block b, in
// fp32.
template <class Gpu>
constexpr void residual_norm_backward(Gpu& gpu, const Global<Bf16>& dh, const Global<float>& parts,
                                      const Global<Bf16>& dy, const Global<Bf16>& g,
                                      const Global<Bf16>& h, const Global<float>& rstds,
                                      const Global<float>& w, std::int64_t rows, std::int64_t n) {
  float dw[most] = {};
  for (std::int64_t row = gpu.block(); row < rows; row += gpu.blocks()) {
    const float rstd = gpu.load(rstds, row);
    float u[most] = {}, wdy[most] = {}, dot = 0;
    for (int k = 0; k < most; ++k) {
      const std::int64_t i = gpu.thread() + std::int64_t{k} * gpu.threads(), at = row * n + i;
      if (i >= n) continue;
      const auto d = static_cast<float>(gpu.load(dy, at));
      u[k] = static_cast<float>(gpu.load(h, at)) * rstd;
      wdy[k] = gpu.load(w, i) * d;
      dw[k] += d * u[k];
      dot += wdy[k] * u[k];
    }
    const float mean = gpu.sum(dot) / static_cast<float>(n);
    for (int k = 0; k < most; ++k) {
      const std::int64_t i = gpu.thread() + std::int64_t{k} * gpu.threads(), at = row * n + i;
      if (i < n)
        gpu.store(dh, at,
                  Bf16(static_cast<float>(gpu.load(g, at)) + rstd * (wdy[k] - u[k] * mean)));
    }
  }
  for (int k = 0; k < most; ++k) {
    const std::int64_t i = gpu.thread() + std::int64_t{k} * gpu.threads();
    if (i < n) gpu.store(parts, gpu.block() * n + i, dw[k]);
  }
}

}  // namespace ringside::gpu
