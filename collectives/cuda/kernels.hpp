// The kernels: the collectives of one_sided/collectives.hpp on a GPU, and the sum of several
// buffers.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "collectives/half.hpp"
#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives::cuda {

enum class Kernel { two_shot, one_shot, ring, reduce_scatter, all_gather, broadcast };

// Every kernel has the same bounds, so that a collective and its limit occupy the GPU alike: blocks
// of 512 threads, two on each multiprocessor. That leaves a thread 64 registers.
inline constexpr int threads_per_block = 512, blocks_per_processor = 2;

// Whether a buffer can be read and written 16 bytes at a time.
inline bool on_16_bytes(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// One collective of all ranks of one GPU. Pointers are device memory; one_sided/collectives.hpp
// says which members of `buffers` each kernel uses. A Task is the argument of the kernel, which
// reads it from constant memory.
template <Element T>
struct Task {
  Kernel kernel = Kernel::two_shot;
  int ranks = 1;
  std::uint64_t count = 0;
  int root = 0;
  std::uint64_t budget = 0;
  one_sided::Mailbox* mailboxes[one_sided::most_ranks] = {};
  one_sided::Buffers<T> buffers;
  one_sided::PullPlan plans[one_sided::most_ranks];  // ring only
};

// How many blocks each of `ranks` ranks may have so that the current device runs all of them at
// once: at least 1, otherwise a CUDA error.
template <Element T>
cudaError_t blocks_for(Kernel kernel, int ranks, int* blocks);

// One cooperative launch for all ranks; blockIdx.y is the rank. The driver runs all blocks at once
// or returns an error. Returns before the kernel is done. T: float, Fp16, Bf16.
template <Element T>
cudaError_t launch(const Task<T>& task, int blocks, cudaStream_t stream);

// output[i] = scale * (input[0][i] + ... + input[n-1][i]) for i < count, added in fp32 in this
// order. The output may be one of the inputs. The inputs are loaded from number `first` on: if each
// rank begins with another, not all read from the same GPU at once.
template <Element T>
struct Addends {
  const T* input[one_sided::most_ranks] = {};
  int count = 0;
  int first = 0;
};
template <Element T>
cudaError_t launch_sum(const Addends<T>& addends, T* output, std::uint64_t count, float scale,
                       cudaStream_t stream);

// The memory-bandwidth limit for an all-reduce of N ranks: a kernel that loads N buffers and stores
// N and waits for no other block.
template <Element T>
cudaError_t launch_limit(const one_sided::Buffers<T>& buffers, int ranks, std::uint64_t count,
                         cudaStream_t stream);

}  // namespace ringside::collectives::cuda
