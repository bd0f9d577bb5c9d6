// The pretended machine: its devices, the contexts of this process, its calls of the runtime, and
// the errors that a test asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "tests/cuda_standin/edges.hpp"

namespace ringside::standin {

inline constexpr int most_devices = 8;
inline constexpr int multiprocessors = 8;
// Every thread of a cooperative launch is taken to use 128 of a multiprocessor's 65,536 registers.
inline constexpr int threads_of_multiprocessor = 512;
inline constexpr std::size_t device_bytes = std::size_t{8} << 30;

// Shared memory of a block. Every kernel is taken to have as much static shared memory as the
// scratch of autograd's blocks.
inline constexpr int shared_without_opt_in = 48 << 10, shared_most = 227 << 10,
                     shared_static = 32 * sizeof(float);

struct Machine {
  Machine();
  std::atomic<int> devices = 1;
  std::uint64_t seed = 1;
  std::atomic<bool> ipc = true, peers = true, mig = false;
  bool lazy = false;  // a kernel is loaded at its first launch, which waits for the device
  std::atomic<unsigned> contexts = 0;
  std::atomic<std::uint64_t> calls = 0, failing = 0;  // the number of the call that fails; 0: none
  std::atomic<int> error = cudaErrorUnknown;
  std::atomic<bool> sticky = false, broken = false;
  std::atomic<int> streams = 0, events = 0, blocks = 0, allocations = 0, opened = 0;

  Lock lock;  // guards the texts
  std::string reads, violations;
};
Machine& machine();  // never destroyed: streams may run until the process ends

// The device of the calling thread.
int& current_device();

// Counts a call of the runtime, and fails it if a test asked for that. A call that `touches` the
// device makes a context of this process on the thread's current device, as the runtime does.
cudaError_t enter(bool touches = true);

// Keeps the last error of the thread.
cudaError_t report(cudaError_t error);
cudaError_t& last_error();

// Notes what breaks a rule of CUDA without an error code.
void violation(const std::string& what);
void note_read(int device);

}  // namespace ringside::standin
