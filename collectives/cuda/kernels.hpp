// The kernels: one_sided_collectives.hpp as a GPU runs it, and the sum of several buffers that lie
// side by side.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives::cuda {

enum class Kernel { two_shot, one_shot, ring, reduce_scatter, all_gather, broadcast };

inline constexpr int threads_per_block = 512;

// One collective of all ranks of one GPU. Pointers are device memory; what each kernel uses of
// `buffers` its function in one_sided_collectives.hpp says. It goes to the kernel as its argument,
// which is read from constant memory.
template <Element T>
struct Task {
  Kernel kernel = Kernel::two_shot;
  int ranks = 1;
  std::uint64_t count = 0;
  int root = 0;
  std::uint64_t budget = 0;
  one_sided::Desk* desks[one_sided::most_ranks] = {};
  one_sided::Buffers<T> buffers;
  one_sided::PullPlan plans[one_sided::most_ranks];  // ring only
};

// How many blocks each of `ranks` ranks can have on this thread's device, so that all of them run
// at once: at least 1, or an error of CUDA.
template <Element T>
cudaError_t blocks_for(Kernel kernel, int ranks, int* blocks);

// One cooperative launch, blockIdx.y the rank: the driver runs all blocks at once, or refuses.
// Returns before it is done. T: float, Fp16, Bf16.
template <Element T>
cudaError_t launch(const Task<T>& task, int blocks, cudaStream_t stream);

// output[i] = scale times the sum of inputs[0][i] ... inputs[n-1][i], for i < count: in fp32, in
// this order. Output may be one of them.
template <Element T>
struct Addends {
  const T* input[one_sided::most_ranks] = {};
  int count = 0;
};
template <Element T>
cudaError_t launch_sum(const Addends<T>& addends, T* output, std::uint64_t count, float scale,
                       cudaStream_t stream);

// The device's limit beside an all-reduce of N ranks: a kernel that loads N buffers and stores N,
// adds nothing to anything that waits.
template <Element T>
cudaError_t launch_limit(const one_sided::Buffers<T>& buffers, int ranks, std::uint64_t count,
                         cudaStream_t stream);

}  // namespace ringside::collectives::cuda
