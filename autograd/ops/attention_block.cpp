#include "autograd/ops/attention_block.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

// The matrix [T, D] of a head of x [B, H, T, D], or its row of x [B, H, T].
template <class T>
T* head_of(const Tensor& x, std::int64_t b, std::int64_t h) {
  return x.data<T>() + b * x.strides()[0] + h * x.strides()[1];
}

std::int64_t row_stride(const Tensor& x) {
  return std::max(x.strides()[2], x.size(3));
}

// Merges the outputs of one query for two sets of keys: y and log_sum become those of both.
template <class T>
void merge_row(T* y, T& log_sum, const T* other, T log_sum_of_other, std::int64_t d) {
  const T top = std::max(log_sum, log_sum_of_other),
          both = top + std::log(std::exp(log_sum - top) + std::exp(log_sum_of_other - top)),
          keep = std::exp(log_sum - both), share = std::exp(log_sum_of_other - both);
  for (std::int64_t c = 0; c < d; ++c) y[c] = keep * y[c] + share * other[c];
  log_sum = both;
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  require_alike("attention_block", q, k);
  require_alike("attention_block", q, v);
  require(q.dim() == 4 && k.dim() == 4 && k.shape() == v.shape() && q.size(0) == k.size(0) &&
              q.size(3) == k.size(3) && k.size(1) > 0 && q.size(1) % k.size(1) == 0,
          "attention_block: expected q [B, H, Tq, D], k and v [B, H_kv, Tk, D], got {}, {} and {}",
          q.shape(), k.shape(), v.shape());
  require(!causal || q.size(2) == k.size(2),
          "attention_block: a causal block has as many queries as keys, got {} and {}", q.size(2),
          k.size(2));
}

}  // namespace

RunningAttention empty_attention(const Tensor& q) {
  require(q.device() == Device::cpu,
          "attention to a block of keys at a time runs on the CPU, but got tensors on {}: choose "
          "--context all_gather or ulysses, or --device cpu",
          name_of(q.device()));
  const DType dtype = compute_dtype(q.dtype());
  const Tensor y = Tensor::zeros({q.size(0), q.size(2), q.size(1), q.size(3)}, dtype);
  const Tensor log_sums = Tensor::empty({q.size(0), q.size(1), q.size(2)}, dtype);
  log_sums.fill_(-std::numeric_limits<double>::infinity());
  return {y.transpose(1, 2), log_sums};
}

void add_attention_block(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                         const RunningAttention& sum) {
  check(q, k, v, causal);
  const std::int64_t heads = q.size(1), queries = q.size(2), d = q.size(3);
  const Tensor y = Tensor::empty(q.shape(), sum.y.dtype()),
               log_sums = Tensor::empty({q.size(0), heads, queries}, sum.y.dtype());
  CpuKernels::attention_to_block(with_dense_rows(q), with_dense_rows(k), with_dense_rows(v), causal,
                                 y, log_sums);
  dispatch(y.dtype(), "attention_block", [&]<class T>(T) {
    parallel_for(q.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t b = i / heads, h = i % heads;
        T* const sum_head = head_of<T>(sum.y, b, h);
        T* const sum_log = head_of<T>(sum.log_sums, b, h);
        const T *const head = head_of<T>(y, b, h), *const log_here = head_of<T>(log_sums, b, h);
        for (std::int64_t r = 0; r < queries; ++r)
          merge_row(sum_head + r * row_stride(sum.y), sum_log[r], head + r * d, log_here[r], d);
      }
    });
  });
}

Tensor attention_delta(const Tensor& y_stored, const Tensor& dy_stored) {
  const Tensor y = to_compute_dtype(with_dense_rows(y_stored)),
               dy = to_compute_dtype(with_dense_rows(dy_stored));
  const Tensor delta = Tensor::empty({y.size(0), y.size(1), y.size(2)}, y.dtype());
  dispatch(y.dtype(), "attention_delta", [&]<class T>(T) {
    T* out = delta.data<T>();
    for (std::int64_t b = 0; b < y.size(0); ++b)
      for (std::int64_t h = 0; h < y.size(1); ++h)
        for (std::int64_t i = 0; i < y.size(2); ++i) {
          const T *const y_row = head_of<T>(y, b, h) + i * row_stride(y), *const dy_row =
                                                                              head_of<T>(dy, b, h) +
                                                                              i * row_stride(dy);
          T dot = 0;
          for (std::int64_t c = 0; c < y.size(3); ++c) dot += y_row[c] * dy_row[c];
          *out++ = dot;
        }
  });
  return delta;
}

void add_attention_block_gradients(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                   const Tensor& log_sums, const Tensor& delta, const Tensor& dy,
                                   const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  check(q, k, v, causal);
  const Tensor part = Tensor::empty(q.shape(), dq.dtype());
  CpuKernels::attention_to_block_backward(with_dense_rows(q), with_dense_rows(k),
                                          with_dense_rows(v), causal, log_sums.contiguous(),
                                          delta.contiguous(), with_dense_rows(dy), part, dk, dv);
  accumulate_into(dq, part);
}

}  // namespace ringside::autograd
