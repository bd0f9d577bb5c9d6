// What a block of a GPU offers to kernels of tiles (tiles.hpp): products by tensor cores for bf16,
// by ordinary multiplications for fp32.
#pragma once

#include <cuda_pipeline.h>
#include <nv/target>

#include "autograd/kernels/block/tiles.hpp"
#include "autograd/kernels/block/warp_squares.hpp"

namespace ringside::autograd::cuda {

template <class T, int m, int n>
class DeviceProduct;

// fp32: 16 x 8 threads, each with every 16th row and every 8th column, in registers.
//
// For four columns of `a` at a time a thread loads m/16 packs of a and as many numbers of b as it
// needs, for m/16 * n/8 * 4 multiplications. Eight neighbouring threads read the same pack of a,
// and neighbouring numbers of b, or packs of eight neighbouring rows of it: no two in the same
// bank.
template <int m, int n>
class DeviceProduct<float, m, n> {
 public:
  template <class B>
  __host__ __device__ constexpr explicit DeviceProduct(const B& block)
      : row_(block.thread() / across), column_(block.thread() % across) {}

  template <int k>
  __host__ __device__ void add(const Tile<float, m, k>& a, const Tile<float, k, n>& b) {
#pragma unroll 2
    for (int i = 0; i < k; i += 4) {
      const Fours<rows> of_a = packs_of<rows>(&a(row_, i), down * a.stride);
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
  __host__ __device__ void add(const Tile<float, m, k>& a, const Transposed<float, n, k>& b) {
#pragma unroll 2
    for (int i = 0; i < k; i += 4) {
      const Fours<rows> of_a = packs_of<rows>(&a(row_, i), down * a.stride);
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const Pack<float> of_b = pack_at(&b.tile(column_ + across * c, i));
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
  __host__ __device__ void for_each(DeviceProduct& other, const Body& body) {
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
        body(row_ + down * r, column_ + across * c, at_[r][c], other.at_[r][c]);
  }

 private:
  static constexpr int down = 16, across = product_threads / down, rows = m / down,
                       columns = n / across;
  template <int count>
  struct Fours {
    Pack<float> at[count];
  };
  __host__ __device__ static Pack<float> pack_at(const float* from) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  }
  template <int count>
  __host__ __device__ static Fours<count> packs_of(const float* from, int distance) {
    Fours<count> fours;
#pragma unroll
    for (int r = 0; r < count; ++r) fours.at[r] = pack_at(from + r * distance);
    return fours;
  }

  int row_, column_;
  float at_[rows][columns] = {};
};

// Instructions that C++ has no name for. What they do to whom: warp_squares.hpp. `from` is the row
// that this thread names, in shared memory on 16 bytes.
struct Squares {
  unsigned parts[4];
};
__device__ inline Squares load_squares(const Bf16* from) {
  Squares all;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(all.parts[0]), "=r"(all.parts[1]), "=r"(all.parts[2]), "=r"(all.parts[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))));
  return all;
}
__device__ inline Squares load_squares_transposed(const Bf16* from) {
  Squares all;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(all.parts[0]), "=r"(all.parts[1]), "=r"(all.parts[2]), "=r"(all.parts[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))));
  return all;
}
__device__ inline void multiply_add(float (&sums)[4], const Squares& a, unsigned b_upper,
                                    unsigned b_lower) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.parts[0]), "r"(a.parts[1]), "r"(a.parts[2]), "r"(a.parts[3]), "r"(b_upper),
        "r"(b_lower));
}

// bf16: 2 x 2 warps, each with a quarter of the product in matrices of 16 x 8, which tensor cores
// multiply and add up in fp32.
//
// nvcuda::wmma would be shorter. But it hides where a number lies, which costs registers, and with
// CUDA 13 it loads squares of shared memory by 32-bit loads of the generic kind, four for one of
// these.
template <int m, int n>
class DeviceProduct<Bf16, m, n> {
 public:
  template <class B>
  __host__ __device__ constexpr explicit DeviceProduct(const B& block)
      : thread_(block.thread() % 32),
        row_(block.thread() / 64 * (m / 2)),
        column_(block.thread() / 32 % 2 * (n / 2)) {}

  template <int k>
  __host__ __device__ void add(const Tile<Bf16, m, k>& a, const Tile<Bf16, k, n>& b) {
    const Place place = row_of_right(thread_);
    NV_IF_TARGET(NV_IS_DEVICE, (multiply<k>(a, [&](int i, int c) {
                                  return load_squares_transposed(
                                      &b(16 * i + place.row, column_ + 16 * c + place.column));
                                });))
  }
  template <int k>
  __host__ __device__ void add(const Tile<Bf16, m, k>& a, const Transposed<Bf16, n, k>& b) {
    const Place place = row_of_right_transposed(thread_);
    NV_IF_TARGET(NV_IS_DEVICE, (multiply<k>(a, [&](int i, int c) {
                                  return load_squares(
                                      &b.tile(column_ + 16 * c + place.row, 16 * i + place.column));
                                });))
  }
  template <class Body>
  __host__ __device__ void for_each(const Body& body) {
    visit([&](int row, int column, int r, int c, int i) { body(row, column, at_[r][c][i]); });
  }
  template <class Body>
  __host__ __device__ void for_each(DeviceProduct& other, const Body& body) {
    visit([&](int row, int column, int r, int c, int i) {
      body(row, column, at_[r][c][i], other.at_[r][c][i]);
    });
  }

 private:
  static constexpr int rows = m / 32, columns = n / 16,
                       held = 4;  // matrices of a warp; sums of a matrix that a thread holds

  template <class Visitor>
  __host__ __device__ void visit(const Visitor& visitor) {
    const Place place = place_of_sum(thread_, 0);
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int c = 0; c < columns; ++c)
#pragma unroll
        for (int i = 0; i < held; ++i) {
          constexpr auto of_first_thread = [](int number) { return place_of_sum(0, number); };
          visitor(row_ + place.row + 16 * r + of_first_thread(i).row,
                  column_ + place.column + 8 * c + of_first_thread(i).column, r, c, i);
        }
  }

  // right(i, c): squares i down and c across of the right factor.
  template <int k, class Right>
  __device__ void multiply(const Tile<Bf16, m, k>& a, const Right& right) {
    const Place place = row_of_left(thread_);
#pragma unroll 4
    for (int i = 0; i < k / 16; ++i) {
      Squares of_a[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r)
        of_a[r] = load_squares(&a(row_ + 16 * r + place.row, 16 * i + place.column));
#pragma unroll
      for (int c = 0; c < columns / 2; ++c) {
        const Squares of_b = right(i, c);
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          multiply_add(at_[r][2 * c], of_a[r], of_b.parts[0], of_b.parts[1]);
          multiply_add(at_[r][2 * c + 1], of_a[r], of_b.parts[2], of_b.parts[3]);
        }
      }
    }
  }

  int thread_, row_, column_;
  float at_[rows][columns][held] = {};
};

// Eight neighbouring threads.
class DeviceGroup {
 public:
  static constexpr int size = 8;

  template <class B>
  __host__ __device__ constexpr explicit DeviceGroup(const B& block) : thread_(block.thread()) {}
  __host__ __device__ int index() const { return thread_ % size; }
  __host__ __device__ int count() const { return size; }
  __host__ __device__ float sum(float x) const {
    return all(x, [](float a, float b) { return a + b; });
  }
  __host__ __device__ float max(float x) const {
    return all(x, [](float a, float b) { return a < b ? b : a; });
  }

 private:
  // Only these eight wait for each other: another group of the warp may have no row any more.
  template <class Combine>
  __host__ __device__ float all(float x, [[maybe_unused]] const Combine& combine) const {
    NV_IF_TARGET(NV_IS_DEVICE, (const unsigned members = 0xffu << (thread_ % 32 / size * size);
                                for (int distance = size / 2; distance > 0; distance /= 2) x =
                                    combine(x, __shfl_xor_sync(members, x, distance));))
    return x;
  }
  int thread_;
};

}  // namespace ringside::autograd::cuda
