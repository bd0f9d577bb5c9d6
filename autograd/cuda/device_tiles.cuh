// The GPU's part of tiles.hpp: accumulators and row groups. bf16 products run on tensor cores, fp32
// products on ordinary cores.
#pragma once

#include <cuda_pipeline.h>
#include <nv/target>

#include "autograd/kernels/block/mma_fragments.hpp"
#include "autograd/kernels/block/tiles.hpp"

namespace ringside::autograd::cuda {

template <class T, int m, int n>
class DeviceAccumulator;

// The rows of which a thread holds elements. `sharing` neighbouring threads share each of them.
template <int sharing, int rows>
class SharedRows {
 public:
  using Numbers = PerRow<rows>;
  __host__ __device__ void max_of_rows(Numbers& numbers) const {
    join(numbers, [](float a, float b) { return fmaxf(a, b); });
  }
  __host__ __device__ void sum_of_rows(Numbers& numbers) const {
    join(numbers, [](float a, float b) { return a + b; });
  }

 private:
  template <class Combine>
  __host__ __device__ void join([[maybe_unused]] Numbers& numbers,
                                [[maybe_unused]] const Combine& combine) const {
    NV_IF_TARGET(NV_IS_DEVICE, (join_on_device(numbers, combine);))
  }
  template <class Combine>
  __device__ void join_on_device(Numbers& numbers, const Combine& combine) const {
#pragma unroll
    for (int row = 0; row < rows; ++row)
#pragma unroll
      for (int distance = sharing / 2; distance > 0; distance /= 2)
        numbers[row] = combine(numbers[row], __shfl_xor_sync(0xffffffffu, numbers[row], distance));
  }
};

// fp32: 16 x 8 threads. Each holds every 16th row and every 8th column in registers; eight
// neighbouring threads share a row.
//
// A thread takes four columns of `a` at a time. It loads m/16 packs of a and the matching elements
// of b, for m/16 * n/8 * 4 multiplications. Eight neighbouring threads read the same pack of a; of
// b they read neighbouring elements or, if it is transposed, packs of eight neighbouring rows. So
// there are no bank conflicts.
template <int m, int n>
class DeviceAccumulator<float, m, n> : public SharedRows<8, m / 16> {
 public:
  template <class B>
  __host__ __device__ constexpr explicit DeviceAccumulator(const B& block)
      : row_(block.thread() / across), column_(block.thread() % across) {}

  template <int k>
  __host__ __device__ void add_product(const Tile<float, m, k>& a,
                                       const Transposed<float, n, k>& b) {
#pragma unroll 2
    for (int i = 0; i < k; i += 4) {
      const Packs<rows> of_a = load_packs<rows>(&a(row_, i), down * a.stride);
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const Pack<float> of_b = load_pack(&b.tile(column_ + across * c, i));
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
          for (int j = 0; j < 4; ++j) at_[r][c] += of_a.at[r].at[j] * of_b.at[j];
      }
    }
  }
  template <int k>
  __host__ __device__ void add_product([[maybe_unused]] const DeviceAccumulator<float, m, k>& p,
                                       [[maybe_unused]] const Tile<float, k, n>& b) {
    NV_IF_TARGET(NV_IS_DEVICE, (multiply(p, b);))
  }
  template <class Body>
  __host__ __device__ void for_each(const Body& body) {
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
        body(ElementAt{row_ + down * r, column_ + across * c, r}, at_[r][c]);
  }
  template <class Body>
  __host__ __device__ void for_each(DeviceAccumulator& other, const Body& body) {
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
        body(ElementAt{row_ + down * r, column_ + across * c, r}, at_[r][c], other.at_[r][c]);
  }

 private:
  template <class, int, int>
  friend class DeviceAccumulator;
  static constexpr int down = 16, across = tile_threads / down, rows = m / down,
                       columns = n / across;
  template <int count>
  struct Packs {
    Pack<float> at[count];
  };
  __host__ __device__ static Pack<float> load_pack(const float* from) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  }
  template <int count>
  __host__ __device__ static Packs<count> load_packs(const float* from, int distance) {
    Packs<count> packs;
#pragma unroll
    for (int r = 0; r < count; ++r) packs.at[r] = load_pack(from + r * distance);
    return packs;
  }
  // The eight threads that share rows of p have eight neighbouring columns of it. Each in turn
  // passes its elements to the others.
  template <int k>
  __device__ void multiply(const DeviceAccumulator<float, m, k>& p, const Tile<float, k, n>& b) {
#pragma unroll
    for (int i = 0; i < k / across; ++i)
#pragma unroll
      for (int owner = 0; owner < across; ++owner) {
        float of_p[rows];
#pragma unroll
        for (int r = 0; r < rows; ++r)
          of_p[r] = __shfl_sync(0xffffffffu, p.at_[r][i], owner, across);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float of_b = b(across * i + owner, column_ + across * c);
#pragma unroll
          for (int r = 0; r < rows; ++r) at_[r][c] += of_p[r] * of_b;
        }
      }
  }

  int row_, column_;
  float at_[rows][columns] = {};
};

// Inline assembly for ldmatrix and mma.sync; mma_fragments.hpp describes the layout. A Fragment is
// a thread's part of four 8 x 8 matrices, two bf16 in each register. `from` is the row that this
// thread passes to ldmatrix: in shared memory, aligned to 16 bytes.
struct Fragment {
  unsigned registers[4];
};
__device__ inline Fragment ldmatrix(const Bf16* from) {
  Fragment all;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(all.registers[0]), "=r"(all.registers[1]), "=r"(all.registers[2]),
                 "=r"(all.registers[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))));
  return all;
}
__device__ inline Fragment ldmatrix_transposed(const Bf16* from) {
  Fragment all;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(all.registers[0]), "=r"(all.registers[1]), "=r"(all.registers[2]),
                 "=r"(all.registers[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))));
  return all;
}
// Two numbers rounded to bf16, in one register.
__device__ inline unsigned bf16_pair(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline void mma(float (&sums)[4], const Fragment& a, unsigned b_upper,
                           unsigned b_lower) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.registers[0]), "r"(a.registers[1]), "r"(a.registers[2]), "r"(a.registers[3]),
        "r"(b_upper), "r"(b_lower));
}

// bf16: a warp has m/4 rows of the accumulator, in bands of 16, as 16 x 8 matrices that tensor
// cores update in fp32. All bands use a fragment of the right factor as soon as it is loaded: with
// two bands shared memory is read half as often. Four neighbouring threads share a row: its maximum
// takes two shuffles. In the product of P and V the accumulator is the left factor as it lies in
// the registers, without a way through shared memory (Dao, "FlashAttention-2", section 3.3):
//
//     S of a band, 16 rows            its registers as the left factor of P V
//     +-----+-----+-----+-----+--     +-----------+-----------+--
//     | 16  |     |     |     |       |  16 x 16  |  16 x 16  |         two neighbouring 16 x 8
//     | x 8 |     |     |     |       |  fragment |  fragment |         matrices are one fragment
//     +-----+-----+-----+-----+--     +-----------+-----------+--
//
// nvcuda::wmma would be shorter. But it hides which thread holds which element, which costs
// registers; and with CUDA 13 it loads a fragment with generic 32-bit loads, four for each
// ldmatrix.
template <int bands>
struct BandFragments {
  Fragment of[bands];
};
template <int m, int n>
class DeviceAccumulator<Bf16, m, n> : public SharedRows<4, m / 32> {
 public:
  static_assert(m % (tile_threads / 2) == 0 && n % 16 == 0);

  template <class B>
  __host__ __device__ constexpr explicit DeviceAccumulator(const B& block)
      : thread_(block.thread() % 32), row_(block.thread() / 32 * 16 * bands) {}

  template <int k>
  __host__ __device__ void add_product([[maybe_unused]] const Tile<Bf16, m, k>& a,
                                       [[maybe_unused]] const Transposed<Bf16, n, k>& b) {
    NV_IF_TARGET(NV_IS_DEVICE, (multiply(a, b);))
  }
  template <int k>
  __host__ __device__ void add_product([[maybe_unused]] const DeviceAccumulator<Bf16, m, k>& p,
                                       [[maybe_unused]] const Tile<Bf16, k, n>& b) {
    NV_IF_TARGET(NV_IS_DEVICE, (multiply(p, b);))
  }
  template <class Body>
  __host__ __device__ void for_each(const Body& body) {
    visit([&](ElementAt at, int band, int c, int i) { body(at, at_[band][c][i]); });
  }
  template <class Body>
  __host__ __device__ void for_each(DeviceAccumulator& other, const Body& body) {
    visit([&](ElementAt at, int band, int c, int i) {
      body(at, at_[band][c][i], other.at_[band][c][i]);
    });
  }

 private:
  template <class, int, int>
  friend class DeviceAccumulator;
  static constexpr int bands = m / (tile_threads / 2);
  using Fragments = BandFragments<bands>;

  template <class Visitor>
  __host__ __device__ void visit(const Visitor& visitor) {
    const Coordinate first = accumulator_position(thread_, 0);
#pragma unroll
    for (int c = 0; c < n / 8; ++c)
#pragma unroll
      for (int band = 0; band < bands; ++band)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Coordinate from_first = accumulator_position(0, i);  // the same for all threads
          visitor(ElementAt{row_ + first.row + (16 * band + from_first.row),
                            first.column + (8 * c + from_first.column), 2 * band + i / 2},
                  band, c, i);
        }
  }

  template <int k>
  __device__ void multiply(const Tile<Bf16, m, k>& a, const Transposed<Bf16, n, k>& b) {
    const Coordinate of_a = ldmatrix_row_a(thread_), of_b = ldmatrix_row_b_transposed(thread_);
    const Bf16 *const left = &a(row_ + of_a.row, of_a.column), *const right =
                                                                   &b.tile(of_b.row, of_b.column);
#pragma unroll
    for (int i = 0; i < k; i += 16) {
      Fragments rows;
#pragma unroll
      for (int band = 0; band < bands; ++band)
        rows.of[band] = ldmatrix(left + 16 * band * a.stride + i);
      multiply(rows, [&](int column) { return ldmatrix(right + column * b.tile.stride + i); });
    }
    // A thread may overwrite its rows of `a` now: others of the warp have loaded them for it.
    __syncwarp();
  }
  template <int k>
  __device__ void multiply(const DeviceAccumulator<Bf16, m, k>& p, const Tile<Bf16, k, n>& b) {
    const Coordinate of_b = ldmatrix_row_b(thread_);
    const Bf16* const right = &b(of_b.row, of_b.column);
#pragma unroll
    for (int i = 0; i < k; i += 16)
      multiply(p.as_left_factor(i),
               [&](int column) { return ldmatrix_transposed(right + i * b.stride + column); });
  }
  // Adds the products of 16 x 16 matrices, one for each band, and the 16 rows of which
  // right(column) loads 16 columns.
  template <class Right>
  __device__ void multiply(const Fragments& left, const Right& right) {
#pragma unroll
    for (int c = 0; c < n / 8; c += 2) {
      const Fragment both = right(8 * c);
#pragma unroll
      for (int band = 0; band < bands; ++band) {
        mma(at_[band][c], left.of[band], both.registers[0], both.registers[1]);
        mma(at_[band][c + 1], left.of[band], both.registers[2], both.registers[3]);
      }
    }
  }
  // 16 columns from `column` on, rounded to bf16.
  __device__ Fragments as_left_factor(int column) const {
    Fragments all;
#pragma unroll
    for (int band = 0; band < bands; ++band)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const AccumulatorElement low = accumulator_as_a(r, 0), high = accumulator_as_a(r, 1);
        all.of[band].registers[r] =
            bf16_pair(at_[band][column / 8 + low.accumulator][low.element],
                      at_[band][column / 8 + high.accumulator][high.element]);
      }
    return all;
  }

  int thread_, row_;  // in the warp; the first row of the warp
  float at_[bands][n / 8][4] = {};
};

// A group of neighbouring threads of one warp.
template <int threads>
class DeviceRowGroup {
 public:
  static constexpr int size = threads;
  static_assert(size <= 32 && 32 % size == 0);

  template <class B>
  __host__ __device__ constexpr explicit DeviceRowGroup(const B& block) : thread_(block.thread()) {}
  __host__ __device__ int index() const { return thread_ % size; }
  __host__ __device__ int count() const { return size; }
  __host__ __device__ float sum(float x) const {
    return reduce(x, [](float a, float b) { return a + b; });
  }
  __host__ __device__ float max(float x) const {
    return reduce(x, [](float a, float b) { return a < b ? b : a; });
  }

 private:
  template <class Combine>
  __host__ __device__ float reduce(float x, [[maybe_unused]] const Combine& combine) const {
    NV_IF_TARGET(NV_IS_DEVICE, (x = reduce_on_device(x, combine);))
    return x;
  }
  // The shuffle names only the threads of this group: other groups of the warp may have finished
  // their rows.
  template <class Combine>
  __device__ float reduce_on_device(float x, const Combine& combine) const {
    const unsigned members = (0xffffffffu >> (32 - size)) << (thread_ % 32 / size * size);
    for (int distance = size / 2; distance > 0; distance /= 2)
      x = combine(x, __shfl_xor_sync(members, x, distance));
    return x;
  }
  int thread_;
};

}  // namespace ringside::autograd::cuda
