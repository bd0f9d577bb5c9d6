// Attention on the CPU: softmax(q k^T / sqrt(D)) v, where each query sees only the keys up to its
// own position, or all keys of a block (ops/attention_block.hpp).
//
// The scores of one head are a T x T matrix, much larger than q, k and v, and its upper half is
// not used. So a block of queries is computed at a time: small enough for the L2 cache, and only up
// to the last key that a query of the block sees:
//
//               keys -->
//      q     +--+                 scratch memory holds one block of rows:
//      u     |##|
//      e     +--+--+              S = Q K^T / sqrt(D)    gemm           [block, visible]
//      r     |#####|              P = softmax(S)         row by row     [block, visible]
//      i     +-----+--+           Y = P V                gemm           [block, D]
//      e     |########|
//      s     +--------+
//
// Backward computes S and P of each block again, from q, k and one saved number per row, the
// logarithm of its sum. This costs one more gemm (six instead of five) and saves the T x T matrix
// of every head:
//
//      dV += P^T dY        dP = dY V^T        dS = P (dP - sum_j P dP) / sqrt(D)
//      dQ  = dS K          dK += dS^T Q
//
// Dao et al., "FlashAttention" (2022), appendix B.2 derives these formulas; Dao, "FlashAttention-2"
// (2023), section 3.1 introduces the saved logarithm.
#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/softmax_row.hpp"
#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {

namespace {

constexpr auto plain = Transpose::no, transposed = Transpose::yes;

struct Sizes {
  std::int64_t batch, heads, kv_heads, queries, keys, head_size;
  bool causal;

  // How many query heads share a key head.
  std::int64_t group() const { return heads / kv_heads; }
  // How many keys query i sees.
  std::int64_t visible(std::int64_t i) const { return causal ? i + 1 + keys - queries : keys; }
  // How many queries are computed at a time.
  std::int64_t block() const {
    return std::clamp<std::int64_t>((1 << 16) / std::max<std::int64_t>(keys, 1), 16, 64);
  }
};

Sizes sizes_of(const Tensor& q, const Tensor& k, bool causal) {
  return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), causal};
}

// The matrix [T, D] of one head of a tensor [B, H, T, D].
template <class T>
struct Matrix {
  T* data;
  std::int64_t stride;  // from row to row

  T* row(std::int64_t i) const { return data + i * stride; }
};

template <class T>
Matrix<T> head_of(const Tensor& x, std::int64_t b, std::int64_t h) {
  return {x.data<T>() + b * x.strides()[0] + h * x.strides()[1],
          std::max(x.strides()[2], x.size(3))};
}

// q, k, v of one head -> y, and the logarithm of the sum of each row.
template <class T>
void forward_head(const Sizes& sizes, Matrix<T> q, Matrix<T> k, Matrix<T> v, Matrix<T> y,
                  T* log_sums, T* scores) {
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(sizes.head_size)));
  for (std::int64_t begin = 0; begin < sizes.queries; begin += sizes.block()) {
    const std::int64_t end = std::min(begin + sizes.block(), sizes.queries), rows = end - begin,
                       width = sizes.visible(end - 1);
    gemm(plain, transposed, rows, width, sizes.head_size, scale, q.row(begin), q.stride, k.data,
         k.stride, T(0), scores, width);
    for (std::int64_t i = begin; i < end; ++i)
      log_sums[i] = softmax_row(scores + (i - begin) * width, sizes.visible(i), width);
    gemm(plain, plain, rows, sizes.head_size, width, T(1), scores, width, v.data, v.stride, T(0),
         y.row(begin), y.stride);
  }
}

// One row, in place: scores s -> probabilities p, and dp -> ds = p (dp - sum_j p_j dp_j) scale.
//
// Where scores are large, log_sum has few bits left for its fraction, and the row's probabilities
// add up to 1 + e. Then dp - sum_j p_j dp_j would be wrong by e sum_j p_j dp_j, which may be much
// larger than the difference itself. So the row is divided by its sum once more. A row that goes on
// in other blocks of keys has no sum here: then `delta` is sum_j p_j dp_j over all blocks. It is
// null if the row is whole.
template <class T>
void softmax_row_backward(T* s, T* dp, T log_sum, const T* delta, T scale, std::int64_t visible,
                          std::int64_t width) {
  const std::int64_t n = in_whole_vectors(visible, width);
  std::fill(s + visible, s + n, -std::numeric_limits<T>::infinity());
  std::fill(dp + visible, dp + n, T(0));
  T total = 0, dot = 0;
#pragma omp simd reduction(+ : total, dot)
  for (std::int64_t j = 0; j < n; ++j) {
    s[j] = fast_exp(s[j] - log_sum);
    total += s[j];
    dot += s[j] * dp[j];
  }
  const T normalise = delta ? 1 : 1 / total;
  dot = delta ? *delta : dot * normalise;
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    s[j] *= normalise;
    dp[j] = s[j] * (dp[j] - dot) * scale;
  }
  std::fill(s + n, s + width, T(0));
  std::fill(dp + n, dp + width, T(0));
}

// q, k, v, dy of one query head -> dq, dk, dv. The first head of a group writes dk and dv; the
// others add to them. `deltas` has one number for each row, or is null if the rows are whole.
template <class T>
void backward_head(const Sizes& sizes, Matrix<T> q, Matrix<T> k, Matrix<T> v, Matrix<T> dy,
                   const T* log_sums, const T* deltas, Matrix<T> dq, Matrix<T> dk, Matrix<T> dv,
                   bool first_of_group, T* p, T* dp) {
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(sizes.head_size)));
  const std::int64_t d = sizes.head_size, block = sizes.block(),
                     blocks = (sizes.queries + block - 1) / block;
  // The last block sees all keys, so it runs first and writes all of dk and dv. The other blocks
  // add to them, and no pass is needed to fill them with zeros.
  for (std::int64_t index = blocks; index-- > 0;) {
    const std::int64_t begin = index * block, end = std::min(begin + block, sizes.queries),
                       rows = end - begin, width = sizes.visible(end - 1);
    const T beta = index == blocks - 1 && first_of_group ? 0 : 1;
    gemm(plain, transposed, rows, width, d, scale, q.row(begin), q.stride, k.data, k.stride, T(0),
         p, width);
    gemm(plain, transposed, rows, width, d, T(1), dy.row(begin), dy.stride, v.data, v.stride, T(0),
         dp, width);
    for (std::int64_t i = begin; i < end; ++i)
      softmax_row_backward(p + (i - begin) * width, dp + (i - begin) * width, log_sums[i],
                           deltas ? deltas + i : nullptr, scale, sizes.visible(i), width);
    gemm(transposed, plain, width, d, rows, T(1), p, width, dy.row(begin), dy.stride, beta, dv.data,
         dv.stride);
    gemm(plain, plain, rows, d, width, T(1), dp, width, k.data, k.stride, T(0), dq.row(begin),
         dq.stride);
    gemm(transposed, plain, width, d, rows, T(1), dp, width, q.row(begin), q.stride, beta, dk.data,
         dk.stride);
  }
}

}  // namespace

// All heads, divided among threads.
void CpuKernels::attention_to_block(const Tensor& q_stored, const Tensor& k_stored,
                                    const Tensor& v_stored, bool causal, const Tensor& y_stored,
                                    const Tensor& log_sums) {
  const Sizes sizes = sizes_of(q_stored, k_stored, causal);
  const Tensor q = to_compute_dtype(q_stored), k = to_compute_dtype(k_stored),
               v = to_compute_dtype(v_stored), y = compute_buffer(y_stored);
  const std::int64_t heads = sizes.batch * sizes.heads, scratch_size = sizes.block() * sizes.keys;
  const Tensor scratch = Tensor::empty({pieces_of(heads, 1), scratch_size}, q.dtype());
  dispatch(q.dtype(), "causal_attention", [&]<class T>(T) {
    parallel_for_pieces(heads, 1, [&](int piece, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t b = i / sizes.heads, h = i % sizes.heads, kv_head = h / sizes.group();
        forward_head(sizes, head_of<T>(q, b, h), head_of<T>(k, b, kv_head),
                     head_of<T>(v, b, kv_head), head_of<T>(y, b, h),
                     log_sums.data<T>() + i * sizes.queries,
                     scratch.data<T>() + piece * scratch_size);
      }
    });
  });
  convert_into(y_stored, y);
}

// All groups of heads, divided among threads. The heads of one group run one after the other,
// because they add to the same dk and dv.
void CpuKernels::attention_to_block_backward(const Tensor& q_stored, const Tensor& k_stored,
                                             const Tensor& v_stored, bool causal,
                                             const Tensor& log_sums, const Tensor& deltas,
                                             const Tensor& dy_stored, const Tensor& dq_stored,
                                             const Tensor& dk_stored, const Tensor& dv_stored) {
  const Sizes sizes = sizes_of(q_stored, k_stored, causal);
  const Tensor q = to_compute_dtype(q_stored), k = to_compute_dtype(k_stored),
               v = to_compute_dtype(v_stored), dy = to_compute_dtype(dy_stored),
               dq = compute_buffer(dq_stored), dk = compute_buffer(dk_stored),
               dv = compute_buffer(dv_stored);
  const std::int64_t groups = sizes.batch * sizes.kv_heads,
                     scratch_size = sizes.block() * sizes.keys;
  const Tensor scratch = Tensor::empty({pieces_of(groups, 1), 2, scratch_size}, q.dtype());
  dispatch(q.dtype(), "causal_attention", [&]<class T>(T) {
    parallel_for_pieces(groups, 1, [&](int piece, std::int64_t begin, std::int64_t end) {
      T *const p = scratch.data<T>() + piece * 2 * scratch_size, *const dp = p + scratch_size;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t b = i / sizes.kv_heads, kv_head = i % sizes.kv_heads;
        for (std::int64_t h = kv_head * sizes.group(); h < (kv_head + 1) * sizes.group(); ++h) {
          const std::int64_t first_row = (b * sizes.heads + h) * sizes.queries;
          backward_head(sizes, head_of<T>(q, b, h), head_of<T>(k, b, kv_head),
                        head_of<T>(v, b, kv_head), head_of<T>(dy, b, h),
                        log_sums.data<T>() + first_row,
                        deltas.defined() ? deltas.data<T>() + first_row : nullptr,
                        head_of<T>(dq, b, h), head_of<T>(dk, b, kv_head),
                        head_of<T>(dv, b, kv_head), h == kv_head * sizes.group(), p, dp);
        }
      }
    });
  });
  convert_into(dq_stored, dq);
  convert_into(dk_stored, dk);
  convert_into(dv_stored, dv);
}

}  // namespace ringside::autograd
