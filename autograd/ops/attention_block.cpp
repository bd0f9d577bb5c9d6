#include "autograd/ops/attention_block.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/gemm.hpp"
#include "autograd/kernels/softmax_row.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

namespace {

constexpr auto plain = Transpose::no, transposed = Transpose::yes;
constexpr std::int64_t rows_at_once = 64;  // of queries: their scores stay in the L2 cache

// The matrix [T, D] of a head of x [B, H, T, D], or its row of x [B, H, T].
template <class T>
T* head_of(const Tensor& x, std::int64_t b, std::int64_t h) {
  return x.data<T>() + b * x.strides()[0] + h * x.strides()[1];
}

std::int64_t row_stride(const Tensor& x) {
  return std::max(x.strides()[2], x.size(3));
}

double score_scale(const Tensor& q) {
  return 1 / std::sqrt(static_cast<double>(q.size(3)));
}

// Scores of `rows` queries from `begin` on, [rows, width]: all keys, or those up to the last query.
template <class T>
void scores_of(const Tensor& q, const T* q_head, const Tensor& k, const T* k_head,
               std::int64_t begin, std::int64_t rows, std::int64_t width, T* scores) {
  gemm(plain, transposed, rows, width, q.size(3), static_cast<T>(score_scale(q)),
       q_head + begin * row_stride(q), row_stride(q), k_head, row_stride(k), T(0), scores, width);
}

// Scores -> probabilities relative to the joint sum of this block and what was there, whose
// logarithm replaces log_sum. Returns the factor of the output that was there.
template <class T>
T merge_row(T* row, std::int64_t visible, std::int64_t width, T& log_sum) {
  const T here = softmax_row(row, visible, width), before = log_sum, top = std::max(here, before);
  log_sum = top + std::log(std::exp(here - top) + std::exp(before - top));
  const T share = std::exp(here - log_sum);
#pragma omp simd
  for (std::int64_t j = 0; j < visible; ++j) row[j] *= share;
  return std::exp(before - log_sum);
}

// Calls body(begin, rows, width) for blocks of queries; width is how many keys the last one sees.
template <class Body>
void for_each_row_block(const Tensor& q, const Tensor& k, bool causal, Body body) {
  for (std::int64_t begin = 0; begin < q.size(2); begin += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, q.size(2) - begin);
    body(begin, rows, causal ? begin + rows : k.size(2));
  }
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

void add_attention_block(const Tensor& q_stored, const Tensor& k_stored, const Tensor& v_stored,
                         bool causal, const RunningAttention& sum) {
  check(q_stored, k_stored, v_stored, causal);
  const Tensor q = to_compute_dtype(with_dense_rows(q_stored)),
               k = to_compute_dtype(with_dense_rows(k_stored)),
               v = to_compute_dtype(with_dense_rows(v_stored));
  const std::int64_t heads = q.size(1), group = heads / k.size(1), d = q.size(3),
                     scratch_size = rows_at_once * k.size(2), y_stride = row_stride(sum.y);
  const Tensor scratch = Tensor::empty({pieces_of(q.size(0) * heads, 1), scratch_size}, q.dtype());
  dispatch(q.dtype(), "attention_block", [&]<class T>(T) {
    parallel_for_pieces(q.size(0) * heads, 1, [&](int piece, std::int64_t first, std::int64_t end) {
      T* const p = scratch.data<T>() + piece * scratch_size;
      for (std::int64_t i = first; i < end; ++i) {
        const std::int64_t b = i / heads, h = i % heads;
        const T *const q_head = head_of<T>(q, b, h), *const k_head = head_of<T>(k, b, h / group),
                       *const v_head = head_of<T>(v, b, h / group);
        T *const y = head_of<T>(sum.y, b, h), *const log_sums = head_of<T>(sum.log_sums, b, h);
        for_each_row_block(q, k, causal, [&](auto begin, auto rows, auto width) {
          scores_of(q, q_head, k, k_head, begin, rows, width, p);
          for (std::int64_t r = 0; r < rows; ++r) {
            const T keep = merge_row(p + r * width, causal ? begin + r + 1 : width, width,
                                     log_sums[begin + r]);
            T* const y_row = y + (begin + r) * y_stride;
            for (std::int64_t c = 0; c < d; ++c) y_row[c] *= keep;
          }
          gemm(plain, plain, rows, d, width, T(1), p, width, v_head, row_stride(v), T(1),
               y + begin * y_stride, y_stride);
        });
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

// P = exp(S - log_sum), dS = P (dP - delta) / sqrt(D). The heads of one group run one after the
// other, because they add to the same dk and dv.
void add_attention_block_gradients(const Tensor& q_stored, const Tensor& k_stored,
                                   const Tensor& v_stored, bool causal, const Tensor& log_sums,
                                   const Tensor& delta, const Tensor& dy_stored, const Tensor& dq,
                                   const Tensor& dk, const Tensor& dv) {
  check(q_stored, k_stored, v_stored, causal);
  const Tensor q = to_compute_dtype(with_dense_rows(q_stored)),
               k = to_compute_dtype(with_dense_rows(k_stored)),
               v = to_compute_dtype(with_dense_rows(v_stored)),
               dy = to_compute_dtype(with_dense_rows(dy_stored));
  const std::int64_t kv_heads = k.size(1), group = q.size(1) / kv_heads, d = q.size(3),
                     scratch_size = rows_at_once * k.size(2);
  const std::int64_t groups = q.size(0) * kv_heads;
  const Tensor scratch = Tensor::empty({pieces_of(groups, 1), 2, scratch_size}, q.dtype());
  dispatch(q.dtype(), "attention_block", [&]<class T>(T) {
    const T scale = static_cast<T>(score_scale(q));
    parallel_for_pieces(groups, 1, [&](int piece, std::int64_t first, std::int64_t end) {
      T *const p = scratch.data<T>() + piece * 2 * scratch_size, *const dp = p + scratch_size;
      for (std::int64_t i = first; i < end; ++i) {
        const std::int64_t b = i / kv_heads, kv = i % kv_heads;
        const T *const k_head = head_of<T>(k, b, kv), *const v_head = head_of<T>(v, b, kv);
        T *const dk_head = head_of<T>(dk, b, kv), *const dv_head = head_of<T>(dv, b, kv);
        for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
          const T *const q_head = head_of<T>(q, b, h), *const dy_head = head_of<T>(dy, b, h),
                         *const log_sum = head_of<T>(log_sums, b, h),
                         *const row_delta = head_of<T>(delta, b, h);
          T* const dq_head = head_of<T>(dq, b, h);
          for_each_row_block(q, k, causal, [&](auto begin, auto rows, auto width) {
            const T* const dy_rows = dy_head + begin * row_stride(dy);
            scores_of(q, q_head, k, k_head, begin, rows, width, p);
            gemm(plain, transposed, rows, width, d, T(1), dy_rows, row_stride(dy), v_head,
                 row_stride(v), T(0), dp, width);
            for (std::int64_t r = 0; r < rows; ++r) {
              const std::int64_t visible = causal ? begin + r + 1 : width;
              T *const p_row = p + r * width, *const dp_row = dp + r * width;
              const T shift = log_sum[begin + r], less = row_delta[begin + r];
#pragma omp simd
              for (std::int64_t j = 0; j < visible; ++j) {
                p_row[j] = fast_exp(p_row[j] - shift);
                dp_row[j] = p_row[j] * (dp_row[j] - less) * scale;
              }
              std::fill(p_row + visible, p_row + width, T(0));
              std::fill(dp_row + visible, dp_row + width, T(0));
            }
            gemm(transposed, plain, width, d, rows, T(1), p, width, dy_rows, row_stride(dy), T(1),
                 dv_head, row_stride(dv));
            gemm(plain, plain, rows, d, width, T(1), dp, width, k_head, row_stride(k), T(1),
                 dq_head + begin * row_stride(dq), row_stride(dq));
            gemm(transposed, plain, width, d, rows, T(1), dp, width, q_head + begin * row_stride(q),
                 row_stride(q), T(1), dk_head, row_stride(dk));
          });
        }
      }
    });
  });
}

}  // namespace ringside::autograd
