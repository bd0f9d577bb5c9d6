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

// fp32: 16 x 8 threads. Each holds every 16th row and every 8th column in registers.
//
// A thread takes four columns of `a` at a time. It loads m/16 packs of a and the matching elements
// of b, for m/16 * n/8 * 4 multiplications. Eight neighbouring threads read the same pack of a; of
// b they read neighbouring elements or, if it is transposed, packs of eight neighbouring rows. So
// there are no bank conflicts.
template <int m, int n>
class DeviceAccumulator<float, m, n> {
 public:
  template <class B>
  __host__ __device__ constexpr explicit DeviceAccumulator(const B& block)
      : row_(block.thread() / across), column_(block.thread() % across) {}

  template <int k>
  __host__ __device__ void add_product(const Tile<float, m, k>& a, const Tile<float, k, n>& b) {
#pragma unroll 2
    for (int i = 0; i < k; i += 4) {
      const Packs<rows> of_a = load_packs<rows>(&a(row_, i), down * a.stride);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float of_b = b(i + j, column_ + across * c);
#pragma unroll
          for (int r = 0; r < rows; ++r) at_[r][c] += of_a.at[r].at[j] * of_b;
        }
    }
  }
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
  template <class Body>
  __host__ __device__ void for_each(const Body& body) {
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c) body(row_ + down * r, column_ + across * c, at_[r][c]);
  }
  template <class Body>
  __host__ __device__ void for_each(DeviceAccumulator& other, const Body& body) {
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
        body(row_ + down * r, column_ + across * c, at_[r][c], other.at_[r][c]);
  }

 private:
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
__device__ inline void mma(float (&sums)[4], const Fragment& a, unsigned b_upper,
                           unsigned b_lower) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.registers[0]), "r"(a.registers[1]), "r"(a.registers[2]), "r"(a.registers[3]),
        "r"(b_upper), "r"(b_lower));
}

// bf16: 2 x 2 warps. Each holds a quarter of the accumulator, as 16 x 8 matrices that tensor cores
// update in fp32.
//
// nvcuda::wmma would be shorter. But it hides which thread holds which element, which costs
// registers; and with CUDA 13 it loads a fragment with generic 32-bit loads, four for each
// ldmatrix.
template <int m, int n>
class DeviceAccumulator<Bf16, m, n> {
 public:
  template <class B>
  __host__ __device__ constexpr explicit DeviceAccumulator(const B& block)
      : thread_(block.thread() % 32),
        row_(block.thread() / 64 * (m / 2)),
        column_(block.thread() / 32 % 2 * (n / 2)) {}

  template <int k>
  __host__ __device__ void add_product(const Tile<Bf16, m, k>& a, const Tile<Bf16, k, n>& b) {
    const Position position = ldmatrix_row_b(thread_);
    NV_IF_TARGET(NV_IS_DEVICE, (multiply<k>(a, [&](int i, int c) {
                                  return ldmatrix_transposed(&b(
                                      16 * i + position.row, column_ + 16 * c + position.column));
                                });))
  }
  template <int k>
  __host__ __device__ void add_product(const Tile<Bf16, m, k>& a, const Transposed<Bf16, n, k>& b) {
    const Position position = ldmatrix_row_b_transposed(thread_);
    NV_IF_TARGET(NV_IS_DEVICE, (multiply<k>(a, [&](int i, int c) {
                                  return ldmatrix(&b.tile(column_ + 16 * c + position.row,
                                                          16 * i + position.column));
                                });))
  }
  template <class Body>
  __host__ __device__ void for_each(const Body& body) {
    visit([&](int row, int column, int r, int c, int i) { body(row, column, at_[r][c][i]); });
  }
  template <class Body>
  __host__ __device__ void for_each(DeviceAccumulator& other, const Body& body) {
    visit([&](int row, int column, int r, int c, int i) {
      body(row, column, at_[r][c][i], other.at_[r][c][i]);
    });
  }

 private:
  // 16 x 8 matrices of a warp, down and across; elements of each that a thread holds.
  static constexpr int rows = m / 32, columns = n / 16, held = 4;

  template <class Visitor>
  __host__ __device__ void visit(const Visitor& visitor) {
    const Position position = accumulator_position(thread_, 0);
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
#pragma unroll
        for (int i = 0; i < held; ++i) {
          constexpr auto of_first_thread = [](int element) {
            return accumulator_position(0, element);
          };
          visitor(row_ + position.row + 16 * r + of_first_thread(i).row,
                  column_ + position.column + 8 * c + of_first_thread(i).column, r, c, i);
        }
  }

  // right(i, c) loads the 16 x 16 matrix of the right factor that is i down and c across.
  template <int k, class Right>
  __device__ void multiply(const Tile<Bf16, m, k>& a, const Right& right) {
    const Position position = ldmatrix_row_a(thread_);
#pragma unroll 4
    for (int i = 0; i < k / 16; ++i) {
      Fragment of_a[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r)
        of_a[r] = ldmatrix(&a(row_ + 16 * r + position.row, 16 * i + position.column));
#pragma unroll
      for (int c = 0; c < columns / 2; ++c) {
        const Fragment of_b = right(i, c);
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          mma(at_[r][2 * c], of_a[r], of_b.registers[0], of_b.registers[1]);
          mma(at_[r][2 * c + 1], of_a[r], of_b.registers[2], of_b.registers[3]);
        }
      }
    }
  }

  int thread_, row_, column_;
  float at_[rows][columns][held] = {};
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
