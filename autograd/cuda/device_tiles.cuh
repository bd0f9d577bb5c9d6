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

// Joins the values of the `threads` neighbouring threads that share each row.
template <int threads, int held_rows, class Combine>
__host__ __device__ void reduce_rows([[maybe_unused]] PerRow<held_rows>& values,
                                     [[maybe_unused]] const Combine& combine) {
#pragma unroll
  for (int row = 0; row < held_rows; ++row)
#pragma unroll
    for (int distance = threads / 2; distance > 0; distance /= 2)
      NV_IF_TARGET(NV_IS_DEVICE,
                   (values.at[row] = combine(
                        values.at[row], __shfl_xor_sync(0xffffffffu, values.at[row], distance));))
}

// fp32: 16 x 8 threads. Each holds every 16th row and every 8th column in registers; eight
// neighbouring threads share a row.
//
// A thread takes four columns of `a` at a time. It loads m/16 packs of a and the matching elements
// of b, for m/16 * n/8 * 4 multiplications. Eight neighbouring threads read the same pack of a; of
// b they read neighbouring elements or, if it is transposed, packs of eight neighbouring rows. So
// there are no bank conflicts.
template <int m, int n>
class DeviceAccumulator<float, m, n> {
 public:
  static constexpr int down = 16, across = tile_threads / down, held_rows = m / down,
                       columns = n / across;

  template <class B>
  __host__ __device__ constexpr explicit DeviceAccumulator(const B& block)
      : row_(block.thread() / across), column_(block.thread() % across) {}

  template <int k>
  __host__ __device__ void add_product(const Tile<float, m, k>& a, const Tile<float, k, n>& b) {
#pragma unroll 2
    for (int i = 0; i < k; i += 4) {
      const Packs<held_rows> of_a = load_packs<held_rows>(&a(row_, i), down * a.stride);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float of_b = b(i + j, column_ + across * c);
#pragma unroll
          for (int r = 0; r < held_rows; ++r) at_[r][c] += of_a.at[r].at[j] * of_b;
        }
    }
  }
  template <int k>
  __host__ __device__ void add_product(const Tile<float, m, k>& a,
                                       const Transposed<float, n, k>& b) {
#pragma unroll 2
    for (int i = 0; i < k; i += 4) {
      const Packs<held_rows> of_a = load_packs<held_rows>(&a(row_, i), down * a.stride);
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const Pack<float> of_b = load_pack(&b.tile(column_ + across * c, i));
#pragma unroll
        for (int r = 0; r < held_rows; ++r)
#pragma unroll
          for (int j = 0; j < 4; ++j) at_[r][c] += of_a.at[r].at[j] * of_b.at[j];
      }
    }
  }
  // Element i of a row of p is with the thread whose column_ is i % 8.
  template <int k>
  __host__ __device__ void add_product([[maybe_unused]] const DeviceAccumulator<float, m, k>& p,
                                       [[maybe_unused]] const Tile<float, k, n>& b) {
    NV_IF_TARGET(NV_IS_DEVICE, (add_held_product<k>(p, b);))
  }
  template <class Body>
  __host__ __device__ void for_each(const Body& body) {
#pragma unroll
    for (int r = 0; r < held_rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
        body(ElementAt{row_ + down * r, column_ + across * c, r}, at_[r][c]);
  }
  template <class Body>
  __host__ __device__ void for_each(DeviceAccumulator& other, const Body& body) {
#pragma unroll
    for (int r = 0; r < held_rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
        body(ElementAt{row_ + down * r, column_ + across * c, r}, at_[r][c], other.at_[r][c]);
  }
  template <class Body>
  __host__ __device__ void for_each_row(const Body& body) const {
#pragma unroll
    for (int r = 0; r < held_rows; ++r) body(r);
  }
  __host__ __device__ void max_of_rows(PerRow<held_rows>& values) const {
    reduce_rows<across>(values, [](float a, float b) { return a < b ? b : a; });
  }
  __host__ __device__ void sum_of_rows(PerRow<held_rows>& values) const {
    reduce_rows<across>(values, [](float a, float b) { return a + b; });
  }

 private:
  template <class, int, int>
  friend class DeviceAccumulator;
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
  template <int k>
  __device__ void add_held_product(const DeviceAccumulator<float, m, k>& p,
                                   const Tile<float, k, n>& b) {
#pragma unroll
    for (int held = 0; held < k / across; ++held)
#pragma unroll
      for (int owner = 0; owner < across; ++owner) {
        float of_p[held_rows];
#pragma unroll
        for (int r = 0; r < held_rows; ++r)
          of_p[r] = __shfl_sync(0xffffffffu, p.at_[r][held], owner, across);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float of_b = b(across * held + owner, column_ + across * c);
#pragma unroll
          for (int r = 0; r < held_rows; ++r) at_[r][c] += of_p[r] * of_b;
        }
      }
  }

  int row_, column_;
  float at_[held_rows][columns] = {};
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

// bf16: each of the four warps holds m/4 whole rows, as 16 x 8 matrices that tensor cores update in
// fp32. Four neighbouring threads share a row. So the maximum of a row takes two shuffles, and the
// accumulator can be the left factor of the next product without a way through shared memory (Dao,
// "FlashAttention-2", section 3.3).
//
// nvcuda::wmma would be shorter. But it hides which thread holds which element, which costs
// registers; and with CUDA 13 it loads a fragment with generic 32-bit loads, four for each
// ldmatrix.
template <int m, int n>
class DeviceAccumulator<Bf16, m, n> {
 public:
  // 16 x 8 matrices of a warp, down and across; elements of each that a thread holds.
  static constexpr int warps = tile_threads / 32, down = m / warps / 16, across = n / 8, held = 4,
                       held_rows = 2 * down, threads_of_row = 4;
  static_assert(m % (16 * warps) == 0 && n % 16 == 0);

  template <class B>
  __host__ __device__ constexpr explicit DeviceAccumulator(const B& block)
      : thread_(block.thread() % 32), row_(block.thread() / 32 * (m / warps)) {}

  template <int k>
  __host__ __device__ void add_product([[maybe_unused]] const Tile<Bf16, m, k>& a,
                                       [[maybe_unused]] const Tile<Bf16, k, n>& b) {
    NV_IF_TARGET(NV_IS_DEVICE, (multiply<k>(tile_factor(a), columns_of(b));))
  }
  template <int k>
  __host__ __device__ void add_product([[maybe_unused]] const Tile<Bf16, m, k>& a,
                                       [[maybe_unused]] const Transposed<Bf16, n, k>& b) {
    NV_IF_TARGET(NV_IS_DEVICE, (multiply<k>(tile_factor(a), columns_of(b));))
  }
  template <int k>
  __host__ __device__ void add_product([[maybe_unused]] const DeviceAccumulator<Bf16, m, k>& p,
                                       [[maybe_unused]] const Tile<Bf16, k, n>& b) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (multiply<k>([&](int r, int i) { return p.as_factor(r, i); }, columns_of(b));))
  }
  template <class Body>
  __host__ __device__ void for_each(const Body& body) {
    visit([&](ElementAt at, int r, int c, int i) { body(at, at_[r][c][i]); });
  }
  template <class Body>
  __host__ __device__ void for_each(DeviceAccumulator& other, const Body& body) {
    visit([&](ElementAt at, int r, int c, int i) { body(at, at_[r][c][i], other.at_[r][c][i]); });
  }
  template <class Body>
  __host__ __device__ void for_each_row(const Body& body) const {
#pragma unroll
    for (int row = 0; row < held_rows; ++row) body(row);
  }
  __host__ __device__ void max_of_rows(PerRow<held_rows>& values) const {
    reduce_rows<threads_of_row>(values, [](float a, float b) { return a < b ? b : a; });
  }
  __host__ __device__ void sum_of_rows(PerRow<held_rows>& values) const {
    reduce_rows<threads_of_row>(values, [](float a, float b) { return a + b; });
  }

 private:
  template <class, int, int>
  friend class DeviceAccumulator;

  template <class Visitor>
  __host__ __device__ void visit(const Visitor& visitor) {
    const Position position = accumulator_position(thread_, 0);
#pragma unroll
    for (int r = 0; r < down; ++r)
#pragma unroll
      for (int c = 0; c < across; ++c)
#pragma unroll
        for (int i = 0; i < held; ++i) {
          constexpr auto of_first_thread = [](int element) {
            return accumulator_position(0, element);
          };
          visitor(ElementAt{row_ + position.row + 16 * r + of_first_thread(i).row,
                            position.column + 8 * c + of_first_thread(i).column, 2 * r + i / 2},
                  r, c, i);
        }
  }

  // left(r, i): the 16 x 16 matrix of the left factor that is r down and i across. right(i, c): of
  // the right factor, i down and c across.
  template <int k, class Left, class Right>
  __device__ void multiply(const Left& left, const Right& right) {
#pragma unroll
    for (int i = 0; i < k / 16; ++i) {
      Fragment of_a[down];
#pragma unroll
      for (int r = 0; r < down; ++r) of_a[r] = left(r, i);
#pragma unroll
      for (int c = 0; c < across / 2; ++c) {
        const Fragment of_b = right(i, c);
#pragma unroll
        for (int r = 0; r < down; ++r) {
          mma(at_[r][2 * c], of_a[r], of_b.registers[0], of_b.registers[1]);
          mma(at_[r][2 * c + 1], of_a[r], of_b.registers[2], of_b.registers[3]);
        }
      }
    }
  }
  template <int k>
  __device__ auto tile_factor(const Tile<Bf16, m, k>& a) const {
    const Position position = ldmatrix_row_a(thread_);
    const Bf16* const from = &a(row_ + position.row, position.column);
    return [from](int r, int i) {
      return ldmatrix(from + 16 * r * Tile<Bf16, m, k>::stride + 16 * i);
    };
  }
  template <int k>
  __device__ auto columns_of(const Tile<Bf16, k, n>& b) const {
    const Position position = ldmatrix_row_b(thread_);
    const Bf16* const from = &b(position.row, position.column);
    return [from](int i, int c) {
      return ldmatrix_transposed(from + 16 * i * Tile<Bf16, k, n>::stride + 16 * c);
    };
  }
  template <int k>
  __device__ auto columns_of(const Transposed<Bf16, n, k>& b) const {
    const Position position = ldmatrix_row_b_transposed(thread_);
    const Bf16* const from = &b.tile(position.row, position.column);
    return [from](int i, int c) {
      return ldmatrix(from + 16 * c * Tile<Bf16, n, k>::stride + 16 * i);
    };
  }
  // Columns 16 i .. 16 i + 15 of this accumulator as a left factor, rounded to bf16.
  __device__ Fragment as_factor(int r, int i) const {
    Fragment all;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const AccumulatorElement low = accumulator_as_a(j, 0), high = accumulator_as_a(j, 1);
      all.registers[j] = bf16_pair(at_[r][2 * i + low.accumulator][low.element],
                                   at_[r][2 * i + high.accumulator][high.element]);
    }
    return all;
  }

  int thread_, row_;
  float at_[down][across][held] = {};
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
