// The kernels: the collectives of one_sided/ on a GPU, and the sum of several buffers.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "collectives/half.hpp"
#include "collectives/one_sided/staged.hpp"

namespace ringside::collectives::cuda {

enum class Kernel { two_shot, one_shot, ring, reduce_scatter, all_gather, broadcast };

// Every kernel has the same bounds, so that a collective and its limit occupy the GPU alike: blocks
// of 512 threads, one on each multiprocessor. That leaves a thread 128 registers, enough for packs
// of all eight ranks under way at once.
inline constexpr int threads_per_block = 512, blocks_per_processor = 1;

// One collective, on the ranks of one launch. Pointers are device memory, as addresses of this
// process. A Task is the argument of the kernel, which reads it from constant memory.
template <Element T>
struct Task {
  Kernel kernel = Kernel::two_shot;
  int size = 1;        // ranks in all
  int first_rank = 0;  // of this launch
  int ranks = 1;       // of this launch
  std::uint64_t count = 0;
  int root = 0;
  float scale = 1;  // multiplies the result: 1/size for avg
  std::uint64_t patience = 0;
  one_sided::HostWords* host = nullptr;  // [rank of this launch]
  one_sided::Mailbox* mailboxes[one_sided::most_ranks] = {};
  // Of all ranks if they see each other's buffers, otherwise only that of this launch's rank.
  one_sided::Buffers<T> buffers;
  // Only for ranks that do not see each other's buffers, and not for one_shot.
  std::uint64_t room = 0;  // elements of an area; 0: the ranks see each other's buffers
  one_sided::Buffers<T> areas;
  // Only for one_shot.
  one_sided::PacketBox* boxes[one_sided::most_ranks] = {};
  one_sided::Number number = 0;
  one_sided::PullSchedule
      plans[one_sided::most_ranks];  // only for the ring; of this launch's ranks
};

// How many blocks of any of these kernels the current device runs at once: at least 1, otherwise a
// CUDA error. It does not change, so callers keep it.
cudaError_t resident_blocks(int* blocks);

// One cooperative launch for all ranks of the task; blockIdx.y is the rank. The driver runs all its
// blocks at once or returns an error. Returns before the kernel is done. T: float, Fp16, Bf16.
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
                       int most_blocks, cudaStream_t stream);

// The memory-bandwidth limit for an all-reduce of N ranks: a kernel that loads N buffers and stores
// N and waits for no other block.
template <Element T>
cudaError_t launch_limit(const one_sided::Buffers<T>& buffers, int ranks, std::uint64_t count,
                         int most_blocks, cudaStream_t stream);

}  // namespace ringside::collectives::cuda
