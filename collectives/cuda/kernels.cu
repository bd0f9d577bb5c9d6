#include "collectives/cuda/kernels.hpp"

#include "collectives/cuda/device_side.cuh"
#include "collectives/half.hpp"

namespace ringside::collectives::cuda {
namespace {

using one_sided::BlockContext;
using one_sided::Buffers;

// One block of one rank: blockIdx.x is the block, blockIdx.y the rank. The host reads from the
// mailboxes (Mailbox::aborted, Stall) whether the collective succeeded.
template <Kernel kernel, Element T>
__global__ void __launch_bounds__(threads_per_block, blocks_per_processor)
    collective(const __grid_constant__ Task<T> task) {
  const Block block{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
  const BlockContext context{.rank = static_cast<int>(blockIdx.y),
                             .size = task.ranks,
                             .block = static_cast<int>(blockIdx.x),
                             .blocks = static_cast<int>(gridDim.x),
                             .budget = task.budget,
                             .mailboxes = task.mailboxes};
  if constexpr (kernel == Kernel::two_shot)
    one_sided::two_shot_all_reduce<DeviceSide>(block, context, task.buffers);
  if constexpr (kernel == Kernel::one_shot)
    one_sided::one_shot_all_reduce<DeviceSide>(block, context, task.buffers, task.count);
  if constexpr (kernel == Kernel::ring)
    one_sided::pull_all_reduce<DeviceSide>(block, context, task.buffers, task.plans[context.rank]);
  if constexpr (kernel == Kernel::reduce_scatter)
    one_sided::direct_reduce_scatter<DeviceSide>(block, context, task.buffers);
  if constexpr (kernel == Kernel::all_gather)
    one_sided::direct_all_gather<DeviceSide>(block, context, task.buffers);
  if constexpr (kernel == Kernel::broadcast)
    one_sided::direct_broadcast<DeviceSide>(block, context, task.buffers, task.count, task.root);
}

template <Element T>
using CollectiveKernel = void (*)(Task<T>);

template <Element T>
CollectiveKernel<T> kernel_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::two_shot:
      return collective<Kernel::two_shot, T>;
    case Kernel::one_shot:
      return collective<Kernel::one_shot, T>;
    case Kernel::ring:
      return collective<Kernel::ring, T>;
    case Kernel::reduce_scatter:
      return collective<Kernel::reduce_scatter, T>;
    case Kernel::all_gather:
      return collective<Kernel::all_gather, T>;
    case Kernel::broadcast:
      return collective<Kernel::broadcast, T>;
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

// One block on each processor: eight values under way take more than the 64 registers of two.
template <Element T>
__global__ void __launch_bounds__(threads_per_block)
    sum(const __grid_constant__ Addends<T> addends, T* output, std::uint64_t count, bool packs,
        float scale) {
  one_sided::for_each<T>(this_grid(), {0, count}, packs, [&](const auto& width, std::size_t i) {
    // All loads are under way before the first addition. Constant indices, so that the values stay
    // in registers.
    std::decay_t<decltype(width)> loaded[one_sided::most_ranks] = {};
    for (int n = 0; n < one_sided::most_ranks; ++n)
      if (n >= addends.first && n < addends.count)
        loaded[n] = DeviceSide::load(addends.input[n] + i, width);
    for (int n = 0; n < one_sided::most_ranks; ++n)
      if (n < addends.first) loaded[n] = DeviceSide::load(addends.input[n] + i, width);
    one_sided::Sum<T> total;
    for (int n = 0; n < one_sided::most_ranks; ++n)
      if (n < addends.count) total.template add<DeviceSide>(loaded[n]);
    DeviceSide::store(output + i, total.template as<DeviceSide>(width, scale));
  });
}

template <Element T>
__global__ void __launch_bounds__(threads_per_block, blocks_per_processor)
    limit(const __grid_constant__ Buffers<T> buffers, int ranks, std::uint64_t count) {
  one_sided::for_each<T>(
      this_grid(), {0, count}, buffers.packs, [&](const auto& width, std::size_t i) {
        one_sided::Sum<T> total;
        for (int r = 0; r < ranks; ++r)
          total.template add<DeviceSide>(DeviceSide::load(buffers.input[r] + i, width));
        const auto result = total.template as<DeviceSide>(width, 1.0f);
        for (int r = 0; r < ranks; ++r) DeviceSide::store(buffers.output[r] + i, result);
      });
}

// How many blocks of `function` the current device runs at once: blocks_per_processor on each
// multiprocessor, or fewer if it has no room for them.
cudaError_t resident_blocks(const void* function, int* blocks) {
  int device = 0, processors = 0, each = 0;
  if (const auto result = cudaGetDevice(&device); result != cudaSuccess) return result;
  if (const auto result =
          cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      result != cudaSuccess)
    return result;
  const auto result =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, threads_per_block, 0);
  *blocks = processors * (each < blocks_per_processor ? each : blocks_per_processor);
  return result;
}

// Enough blocks for `count` elements, but no more than run at once.
template <Element T>
cudaError_t grid_for(const void* function, std::uint64_t count, unsigned* blocks) {
  int most = 0;
  if (const auto result = resident_blocks(function, &most); result != cudaSuccess) return result;
  const std::uint64_t per_block = std::uint64_t(threads_per_block) * one_sided::Pack<T>::size;
  const std::uint64_t wanted = (count + per_block - 1) / per_block;
  *blocks = static_cast<unsigned>(
      wanted < static_cast<std::uint64_t>(most) ? wanted : static_cast<std::uint64_t>(most));
  return cudaSuccess;
}

}  // namespace

template <Element T>
cudaError_t blocks_for(Kernel kernel, int ranks, int* blocks) {
  int all = 0;
  const auto result = resident_blocks(reinterpret_cast<const void*>(kernel_of<T>(kernel)), &all);
  if (result != cudaSuccess) return result;
  *blocks = all / ranks < one_sided::most_blocks ? all / ranks : one_sided::most_blocks;
  return *blocks >= 1 ? cudaSuccess : cudaErrorCooperativeLaunchTooLarge;
}

template <Element T>
cudaError_t launch(const Task<T>& task, int blocks, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(task.ranks));
  return start(kernel_of<T>(task.kernel), grid, true, stream, task);
}

template <Element T>
cudaError_t launch_sum(const Addends<T>& addends, T* output, std::uint64_t count, float scale,
                       cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  bool packs = on_16_bytes(output);
  for (int n = 0; n < addends.count; ++n) packs = packs && on_16_bytes(addends.input[n]);
  unsigned blocks = 0;
  if (const auto result = grid_for<T>(reinterpret_cast<const void*>(&sum<T>), count, &blocks);
      result != cudaSuccess)
    return result;
  return start(sum<T>, dim3(blocks), false, stream, addends, output, count, packs, scale);
}

template <Element T>
cudaError_t launch_limit(const Buffers<T>& buffers, int ranks, std::uint64_t count,
                         cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  unsigned blocks = 0;
  if (const auto result = grid_for<T>(reinterpret_cast<const void*>(&limit<T>), count, &blocks);
      result != cudaSuccess)
    return result;
  return start(limit<T>, dim3(blocks), false, stream, buffers, ranks, count);
}

template cudaError_t blocks_for<float>(Kernel, int, int*);
template cudaError_t blocks_for<Fp16>(Kernel, int, int*);
template cudaError_t blocks_for<Bf16>(Kernel, int, int*);
template cudaError_t launch(const Task<float>&, int, cudaStream_t);
template cudaError_t launch(const Task<Fp16>&, int, cudaStream_t);
template cudaError_t launch(const Task<Bf16>&, int, cudaStream_t);
template cudaError_t launch_sum(const Addends<float>&, float*, std::uint64_t, float, cudaStream_t);
template cudaError_t launch_sum(const Addends<Fp16>&, Fp16*, std::uint64_t, float, cudaStream_t);
template cudaError_t launch_sum(const Addends<Bf16>&, Bf16*, std::uint64_t, float, cudaStream_t);
template cudaError_t launch_limit(const Buffers<float>&, int, std::uint64_t, cudaStream_t);
template cudaError_t launch_limit(const Buffers<Fp16>&, int, std::uint64_t, cudaStream_t);
template cudaError_t launch_limit(const Buffers<Bf16>&, int, std::uint64_t, cudaStream_t);

}  // namespace ringside::collectives::cuda
