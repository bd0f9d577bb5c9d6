// Backends for device memory. Includes no CUDA header, so that every program can use it in every
// build.
//
// A ProcessGroup over one of these backends is for device memory: its calls on untyped memory take
// device pointers, and a call returns when its result is complete. The inputs must be complete
// before the call, because each backend works on its own stream; without a group, calls can queue
// up on that stream (device_backend.hpp). Host memory throws Error. Unless noted, types are fp32,
// fp16 and bf16, and operations are sum and avg.
//
// If the build or the machine lacks something, making a backend throws Error with the sentence of
// what_is_missing() (device.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/cuda/device_backend.hpp"

namespace ringside::collectives {
class ProcessGroup;
}

namespace ringside::collectives::cuda {

// Ranks that are threads of this process and share its first GPU. Each call is one cooperative
// launch for all ranks, in which they exchange flags and data as GPUs of one host would
// (kernels.hpp). all_reduce by ring, two_shot or one_shot (small calls only); reduce_scatter,
// all_gather, broadcast, barrier. 1 to 8 ranks. With `bare` it is the memory-bandwidth limit for an
// all_reduce: each call is one kernel that loads all inputs and stores their sum to all outputs,
// without waiting for another rank.
class OneGpuWorld;
std::shared_ptr<OneGpuWorld> make_one_gpu_world(int size, Seconds timeout = Seconds(120),
                                                bool bare = false);
std::unique_ptr<DeviceBackend> make_one_gpu_backend(std::shared_ptr<OneGpuWorld> world, int rank);

// Ranks that are processes of one host, over CUDA IPC: 1 to 8. all_reduce, reduce_scatter,
// all_gather, broadcast, barrier. Data pass through the ranks' arenas, which all ranks map.
//
// If each rank has a GPU, a call is one kernel on each: the kernels write to and read from each
// other's arenas, and spin on flags (ipc/spinning.cpp). all_reduce is a one_shot for few bytes and
// a two_shot for many, unless an algorithm is forced.
//
// If ranks share a GPU, it may run their processes in turn, and a kernel would spin on one that
// cannot start. Then no kernel waits: a call is copies and a kernel that adds, ordered by events
// (ipc/copies.cpp). So it is if earlier groups of the process have taken all multiprocessors:
// kernels of two groups that wait for each other's could not all run. name() tells which of the two
// it is, and why.
//
// In both, the hosts exchange a message for each call. So calls are compared, waits have deadlines,
// and a lost rank is named. The messages go over a group of its own: a split of `meeting`, a
// collective call; or shared memory, where the ranks find each other with our rendezvous.
struct CudaIpcOptions {
  Seconds timeout{120};               // for a message of a host, and for the GPU
  std::size_t area_bytes = 32 << 20;  // of each half of an arena, the same on all ranks
  std::string all_reduce = "auto";    // or ring, two_shot, one_shot; kernels only
};
std::unique_ptr<DeviceBackend> make_cuda_ipc_backend(ProcessGroup& meeting, int local_rank,
                                                     const CudaIpcOptions& options);
std::unique_ptr<DeviceBackend> make_cuda_ipc_backend(const RankInfo& rank_info,
                                                     const CudaIpcOptions& options);

// The defaults, with the algorithm that RINGSIDE_ALGORITHM forces.
CudaIpcOptions cuda_ipc_options_from_environment();

bool is_cuda_ipc_algorithm(std::string_view name);
// The algorithm that cuda_ipc takes for an all_reduce of so many bytes if none is forced.
std::string_view cuda_ipc_algorithm(std::size_t bytes);

}  // namespace ringside::collectives::cuda
