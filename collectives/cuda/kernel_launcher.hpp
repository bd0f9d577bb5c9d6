// Launches the kernels of one_sided/ for the ranks of one launch, and waits for them: all ranks of
// a GPU (one_gpu.cpp), or the one rank of this process (ipc/spinning.cpp). Whatever is the same in
// every call is computed once.
#pragma once

#include <array>
#include <functional>
#include <span>

#include "base/clock.hpp"
#include "base/cuda.hpp"
#include "collectives/call.hpp"
#include "collectives/cuda/kernels.hpp"
#include "collectives/cuda/pointer.hpp"

namespace ringside::collectives::cuda {

// Whether what is put into `stream` goes into a CUDA graph.
bool is_capturing(cudaStream_t stream);

// Waits a little for work that was told to stop, or that no peer holds up. If it does not end, the
// device is stuck.
void await_end(cudaStream_t stream) noexcept;

// Polls until `stream` is done. Throws Error when a kernel or copy has failed, or after `timeout`:
// "<call>: <whose> GPU did not finish within 120 s". Calls look() meanwhile, which may throw.
void await_stream(cudaStream_t stream, const Call& call, const std::string& whose, Seconds timeout,
                  const std::function<void()>& look);

// Throws Error unless there are kernels for the collective, type and operation of a call.
void require_kernel(const Call& call);
// Calls body(T{}) with the element type of such a call.
template <class Body>
void with_element_of(const Call& call, Body body) {
  if (call.type == DataType::fp32) return body(float{});
  if (call.type == DataType::fp16) return body(Fp16{});
  body(Bf16{});
}
// The kernel of such a call; for an all_reduce, the one that its algorithm names.
Kernel kernel_for(const Call& call);
// The bytes of such a call that leave `rank` for its peers: those that they load from its memory,
// and those that it stores into theirs. Chunks of an all_reduce count as equal.
std::uint64_t bytes_to_peers(const Call& call, Kernel kernel, int rank, int size);

class KernelLauncher {
 public:
  // For `ranks` of the `size` ranks, from `first_rank` on, on the calling thread's device. A kernel
  // gives up a wait of `timeout`; the host gives up soon afterwards.
  KernelLauncher(int size, int first_rank, int ranks, Seconds timeout);
  ~KernelLauncher();
  KernelLauncher(const KernelLauncher&) = delete;
  KernelLauncher& operator=(const KernelLauncher&) = delete;

  // How many blocks each rank may have. All ranks must have the same number.
  int most_blocks() const { return most_blocks_; }
  void set_most_blocks(int blocks) { most_blocks_ = blocks; }

  // All of a task but memory. Counts the calls of one_shot. When their numbers are used up, a
  // one_shot becomes a two_shot; and in a CUDA graph, which would use a number again and again.
  template <Element T>
  Task<T> task_for(const Call& call, Kernel kernel);

  template <Element T>
  void launch(const Call& call, const Task<T>& task);

  // Returns when the launch is done: false if a block gave up because another rank did. Throws
  // Error if a block waited too long, if look() throws, or after the timeout; then call stop().
  bool finish(const Call& call, const std::function<void()>& look);

  // Makes the kernels of this launch give up, which raise the flags of all ranks; and, since they
  // may not have begun, copies a raised flag to `flags` too. Waits a little until the kernels of
  // this launch have ended. If they do not, the device is stuck.
  void stop(std::span<one_sided::Flag* const> flags = {}) noexcept;

  cudaStream_t stream() const { return stream_; }

 private:
  std::string stalls() const;  // "; rank 0, block 3, waited 120 s for number 8 of rank 1"
  std::string whose() const;

  const int size_, first_rank_, ranks_;
  const Seconds timeout_;
  int most_blocks_ = 0;
  const CudaStream stream_{"making a stream"}, stop_stream_{"making a stream"};
  one_sided::HostWords* words_ = nullptr;  // [rank of this launch], pinned
  one_sided::Number one_shots_ = 0;
  std::array<one_sided::PullSchedule, one_sided::most_ranks> plans_;
};

}  // namespace ringside::collectives::cuda
