#include "collectives/cuda/kernels.hpp"

#include <algorithm>

#include "collectives/cuda/device_side.cuh"
#include "collectives/half.hpp"

namespace ringside::collectives::cuda {
namespace {

using one_sided::BlockContext;
using one_sided::Buffers;
using one_sided::Range;

// One block of one rank: blockIdx.x is the block, blockIdx.y the rank. The host reads from its
// words (HostWords) whether the collective succeeded. `staged`: the ranks see only each other's
// arenas.
template <Kernel kernel, bool staged, Element T>
__global__ void __launch_bounds__(threads_per_block, blocks_per_processor)
    collective(const __grid_constant__ Task<T> task) {
  using namespace one_sided;
  const Block block{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
  const BlockContext context{.rank = task.first_rank + static_cast<int>(blockIdx.y),
                             .size = task.size,
                             .block = static_cast<int>(blockIdx.x),
                             .blocks = static_cast<int>(gridDim.x),
                             .patience = task.patience,
                             .mailboxes = task.mailboxes,
                             .host = task.host + blockIdx.y};
  const Buffers<T>& buffers = task.buffers;
  const T* const input = buffers.input[context.rank];
  T* const output = buffers.output[context.rank];
  if constexpr (kernel == Kernel::one_shot) {
    one_shot_all_reduce<DeviceSide>(block, context, input, output, task.count, task.boxes,
                                    task.number, task.scale);
    return;
  }
  const Staging<T> staging{input, output, task.room};
  const auto all_reduce = [&](const auto& windows, Range range) {
    if constexpr (kernel == Kernel::ring)
      return pull_all_reduce<DeviceSide>(block, context, windows, range, task.plans[blockIdx.y],
                                         task.scale);
    else
      return two_shot_all_reduce<DeviceSide>(block, context, windows, range, task.scale);
  };
  if constexpr (kernel == Kernel::two_shot || kernel == Kernel::ring) {
    if constexpr (staged)
      staged_all_reduce<DeviceSide>(block, context, staging, task.areas, task.count,
                                    [&](Range range) { return all_reduce(task.areas, range); });
    else
      all_reduce(buffers, stripe_of<T>(context, task.count));
  }
  if constexpr (kernel == Kernel::reduce_scatter) {
    if constexpr (staged)
      staged_reduce_scatter<DeviceSide>(block, context, staging, task.areas, task.count,
                                        task.scale);
    else
      direct_reduce_scatter<DeviceSide>(block, context, buffers, task.count, task.scale);
  }
  if constexpr (kernel == Kernel::all_gather) {
    if constexpr (staged)
      staged_all_gather<DeviceSide>(block, context, staging, task.areas, task.count);
    else
      direct_all_gather<DeviceSide>(block, context, buffers, task.count);
  }
  if constexpr (kernel == Kernel::broadcast) {
    if constexpr (staged)
      staged_broadcast<DeviceSide>(block, context, staging, task.areas, task.count, task.root);
    else
      direct_broadcast<DeviceSide>(block, context, buffers, task.count, task.root);
  }
}

template <Element T>
using CollectiveKernel = void (*)(Task<T>);

template <Kernel kernel, Element T>
CollectiveKernel<T> variant(bool staged) {
  return staged ? collective<kernel, true, T> : collective<kernel, false, T>;
}

template <Element T>
CollectiveKernel<T> kernel_of(Kernel kernel, bool staged) {
  switch (kernel) {
    case Kernel::two_shot:
      return variant<Kernel::two_shot, T>(staged);
    case Kernel::one_shot:
      return collective<Kernel::one_shot, false, T>;
    case Kernel::ring:
      return variant<Kernel::ring, T>(staged);
    case Kernel::reduce_scatter:
      return variant<Kernel::reduce_scatter, T>(staged);
    case Kernel::all_gather:
      return variant<Kernel::all_gather, T>(staged);
    case Kernel::broadcast:
      return variant<Kernel::broadcast, T>(staged);
  }
  return nullptr;
}

// Queues a kernel. `together`: a cooperative launch, whose blocks the driver runs all at once, or
// returns an error.
template <class... Parameters, class... Arguments>
cudaError_t start(void (*kernel)(Parameters...), dim3 blocks, bool together, cudaStream_t stream,
                  const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = together ? 1 : 0;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(threads_per_block);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// All threads of a launch as one team, which never synchronizes.
struct Grid {
  int thread, threads;
  __host__ __device__ int index() const { return thread; }
  __host__ __device__ int count() const { return threads; }
};

__device__ Grid this_grid() {
  return {static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x),
          static_cast<int>(gridDim.x * blockDim.x)};
}

template <Element T>
__global__ void __launch_bounds__(threads_per_block, blocks_per_processor)
    sum(const __grid_constant__ Addends<T> addends, T* output, std::uint64_t count, float scale) {
  const bool packs =
      one_sided::all_on_16_bytes(addends.input, addends.count) && one_sided::on_16_bytes(output);
  one_sided::transform<one_sided::sums_under_way<T>, T>(
      this_grid(), {0, count}, packs,
      [&](const auto& width, std::size_t i) {
        return one_sided::sum_of<DeviceSide>(addends.input, addends.count, addends.first, i, width,
                                             scale);
      },
      [&](std::size_t i, const auto& sum) { DeviceSide::store(output + i, sum); });
}

template <Element T>
__global__ void __launch_bounds__(threads_per_block, blocks_per_processor)
    limit(const __grid_constant__ Buffers<T> buffers, int ranks, std::uint64_t count) {
  const bool packs = one_sided::all_on_16_bytes(buffers.input, ranks) &&
                     one_sided::all_on_16_bytes<T>(buffers.output, ranks);
  one_sided::transform<one_sided::sums_under_way<T>, T>(
      this_grid(), {0, count}, packs,
      [&](const auto& width, std::size_t i) {
        return one_sided::sum_of<DeviceSide>(buffers.input, ranks, 0, i, width, 1.0f);
      },
      [&](std::size_t i, const auto& sum) {
        for (int r = 0; r < ranks; ++r) DeviceSide::store(buffers.output[r] + i, sum);
      });
}

// Lowers `least` to the number of blocks of any kernel on a multiprocessor.
template <Element T>
cudaError_t lower_to_kernels_of(int* least) {
  for (const Kernel kernel : {Kernel::two_shot, Kernel::one_shot, Kernel::ring,
                              Kernel::reduce_scatter, Kernel::all_gather, Kernel::broadcast})
    for (const bool staged : {false, true}) {
      int each = 0;
      const auto result = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &each, reinterpret_cast<const void*>(kernel_of<T>(kernel, staged)), threads_per_block, 0);
      if (result != cudaSuccess) return result;
      *least = std::min(*least, each);
    }
  return cudaSuccess;
}

// Enough blocks for `count` elements, but at most `most`.
template <Element T>
dim3 grid_for(std::uint64_t count, int most) {
  const std::uint64_t per_block = std::uint64_t(threads_per_block) * one_sided::Pack<T>::size;
  const std::uint64_t wanted = (count + per_block - 1) / per_block;
  return dim3(static_cast<unsigned>(std::min(wanted, static_cast<std::uint64_t>(most))));
}

}  // namespace

cudaError_t resident_blocks(int* blocks) {
  int device = 0, processors = 0, each = blocks_per_processor;
  if (const auto result = cudaGetDevice(&device); result != cudaSuccess) return result;
  if (const auto result =
          cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      result != cudaSuccess)
    return result;
  for (const auto lower :
       {lower_to_kernels_of<float>, lower_to_kernels_of<Fp16>, lower_to_kernels_of<Bf16>})
    if (const auto result = lower(&each); result != cudaSuccess) return result;
  *blocks = processors * each;
  return *blocks >= 1 ? cudaSuccess : cudaErrorCooperativeLaunchTooLarge;
}

template <Element T>
cudaError_t launch(const Task<T>& task, int blocks, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(task.ranks));
  return start(kernel_of<T>(task.kernel, task.room > 0), grid, true, stream, task);
}

template <Element T>
cudaError_t launch_sum(const Addends<T>& addends, T* output, std::uint64_t count, float scale,
                       int most_blocks, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return start(sum<T>, grid_for<T>(count, most_blocks), false, stream, addends, output, count,
               scale);
}

template <Element T>
cudaError_t launch_limit(const Buffers<T>& buffers, int ranks, std::uint64_t count, int most_blocks,
                         cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return start(limit<T>, grid_for<T>(count, most_blocks), false, stream, buffers, ranks, count);
}

template cudaError_t launch(const Task<float>&, int, cudaStream_t);
template cudaError_t launch(const Task<Fp16>&, int, cudaStream_t);
template cudaError_t launch(const Task<Bf16>&, int, cudaStream_t);
template cudaError_t launch_sum(const Addends<float>&, float*, std::uint64_t, float, int,
                                cudaStream_t);
template cudaError_t launch_sum(const Addends<Fp16>&, Fp16*, std::uint64_t, float, int,
                                cudaStream_t);
template cudaError_t launch_sum(const Addends<Bf16>&, Bf16*, std::uint64_t, float, int,
                                cudaStream_t);
template cudaError_t launch_limit(const Buffers<float>&, int, std::uint64_t, int, cudaStream_t);
template cudaError_t launch_limit(const Buffers<Fp16>&, int, std::uint64_t, int, cudaStream_t);
template cudaError_t launch_limit(const Buffers<Bf16>&, int, std::uint64_t, int, cudaStream_t);

}  // namespace ringside::collectives::cuda
