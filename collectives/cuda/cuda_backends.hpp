// Backends for device memory. Includes nothing of CUDA, so that any program can ask for them in any
// build.
//
// A ProcessGroup over one of them is a group for device memory: the calls whose type is known at
// run time take device pointers, and every call returns when its result is there. What an input
// holds must have been put there before the call: the backends work on streams of their own. Host
// memory is refused, by name. Types fp32, fp16 and bf16, where nothing else is said; operations sum
// and avg.
//
// Where a build or a machine lacks something, making one throws Error with the sentence of
// device.hpp's what_is_missing().
#pragma once

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::collectives::cuda {

// Ranks that are threads of this process and share one GPU, the first: all of them are one
// cooperative launch, in which they pass each other flags and data as GPUs of one host would
// (kernels.hpp). all_reduce by ring, two_shot or one_shot (up to most_one_shot_bytes);
// reduce_scatter, all_gather, broadcast, barrier. 1 to 8 ranks.
class OneGpuWorld;
inline constexpr std::size_t most_one_shot_bytes = 1 << 20;
std::shared_ptr<OneGpuWorld> make_one_gpu_world(int size, Seconds timeout = Seconds(120));

// The GPU's own limit beside an all_reduce: the world's every call is one kernel that loads all
// inputs and stores to all outputs, and waits for nobody. What it stores is the sum.
std::shared_ptr<OneGpuWorld> make_bare_gpu_world(int size);
std::unique_ptr<Backend> make_one_gpu_backend(std::shared_ptr<OneGpuWorld> world, int rank);

// Ranks that are processes of one host, with a GPU each or several on one, over CUDA IPC. All of it
// is ordered by streams: copies, a kernel that adds, and events that streams of other processes
// wait for. No kernel waits for another, so it also works where a GPU runs the processes in turn
// and a spinning kernel would wait for one that cannot start. The host orders events by messages
// over shm, from which also come the deadlines, the comparing of calls and the naming of who is
// lost. all_reduce, reduce_scatter, all_gather, broadcast, barrier; 1 to 8 ranks. Buffers pass
// through the arenas, `piece_bytes` at a time.
std::unique_ptr<Backend> make_cuda_ipc_backend(const RankInfo& rank_info,
                                               Seconds timeout = Seconds(120),
                                               std::size_t piece_bytes = 32 << 20);

// NVIDIA's library to compare with: a GPU for each rank, found by its local rank; ranks of several
// hosts over NCCL's own network. The ranks find each other as ours do (`place` is used up). All
// types; sum, product, min, max, avg; all_reduce, reduce_scatter and all_gather (of counts that the
// ranks divide), broadcast, reduce, barrier. NCCL does not compare the ranks' calls. A call, or the
// connecting, that makes no end within `timeout` fails, as do those of which NCCL itself says so;
// the communicator is aborted then.
bool nccl_is_here();
std::string nccl_version();  // of the library that runs: "2.28.9"; "" where there is none
std::unique_ptr<Backend> make_nccl_backend(const RankInfo& rank_info,
                                           Seconds timeout = Seconds(120));

}  // namespace ringside::collectives::cuda
