// Backends for device memory. Includes no CUDA header, so that every program can use it in every
// build.
//
// A ProcessGroup over one of these backends is for device memory: its calls on untyped memory take
// device pointers, and a call returns when its result is complete. The inputs must be complete
// before the call, because each backend works on its own stream. Host memory throws Error. Unless
// noted, types are fp32, fp16 and bf16, and operations are sum and avg.
//
// If the build or the machine lacks something, making a backend throws Error with the sentence of
// what_is_missing() (device.hpp).
#pragma once

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::collectives {
class ProcessGroup;
}

namespace ringside::collectives::cuda {

// Ranks that are threads of this process and share its first GPU. Each call is one cooperative
// launch for all ranks, in which they exchange flags and data as GPUs of one host would
// (kernels.hpp). all_reduce by ring, two_shot or one_shot (up to most_one_shot_bytes);
// reduce_scatter, all_gather, broadcast, barrier. 1 to 8 ranks.
class OneGpuWorld;
inline constexpr std::size_t most_one_shot_bytes = 1 << 20;
std::shared_ptr<OneGpuWorld> make_one_gpu_world(int size, Seconds timeout = Seconds(120));

// The memory-bandwidth limit for an all_reduce: each call is one kernel that loads all inputs and
// stores their sum to all outputs, without waiting for another rank.
std::shared_ptr<OneGpuWorld> make_bare_gpu_world(int size);
std::unique_ptr<Backend> make_one_gpu_backend(std::shared_ptr<OneGpuWorld> world, int rank);

// Ranks that are processes of one host, over CUDA IPC; each has a GPU, or several share one.
// Streams order everything: copies, a kernel that adds, and events that the streams of other
// processes wait for. No kernel waits for another, so it also works where a GPU runs the processes
// in turn; a spinning kernel would then wait for one that cannot start. The hosts order the events
// by messages, which also provide deadlines, compare the calls and name a lost rank. all_reduce,
// reduce_scatter, all_gather, broadcast, barrier; 1 to 8 ranks. Data pass through the arenas,
// `piece_bytes` at a time.
//
// The messages go over a group of its own: a split of `meeting`, a collective call; or shared
// memory, where the ranks find each other with our rendezvous and wait for a message for `timeout`
// at most.
inline constexpr std::size_t default_piece_bytes = 32 << 20;
std::unique_ptr<Backend> make_cuda_ipc_backend(ProcessGroup& meeting, int local_rank,
                                               Seconds timeout = Seconds(120),
                                               std::size_t piece_bytes = default_piece_bytes);
std::unique_ptr<Backend> make_cuda_ipc_backend(const RankInfo& rank_info,
                                               Seconds timeout = Seconds(120),
                                               std::size_t piece_bytes = default_piece_bytes);

}  // namespace ringside::collectives::cuda
