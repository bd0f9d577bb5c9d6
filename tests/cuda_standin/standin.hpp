// The strict stand-in for the CUDA runtime: what a test may ask of it.
//
// The library cuda_standin defines the functions of the CUDA runtime, of NCCL and of cuBLAS that
// Ringside calls. A GPU that obeys only the promises of CUDA's documentation behaves like this:
//
//     a stream            a thread, which begins each piece of work after a random delay
//     order               only from a stream, an event, and waiting for either. ThreadSanitizer is
//                         told of these and of nothing else, so it reports every access that no
//                         stream and no event orders, however the threads happen to run
//     a copy from pageable memory     returns when the source has been read, and lands later
//     new memory          holds no zeroes, and never begins at the base of its allocation
//     the host            cannot reach device memory from where it has waited for the device until
//                         the next kernel or copy begins: an access ends in a sentence
//     another process     a second mapping of the same memory; an event is a count in shared memory
//     a peer that died    its events never fire, and what waits for the device blocks
//     a cooperative launch            begins when the device has room for all of its blocks, which
//                         it shares with all others that run: with 512 threads on a multiprocessor
//     a captured stream   keeps its work for a graph, and refuses to be waited for
//     cudaFree and cudaIpcCloseMemHandle     wait for all streams of the device
//
// It finds no wrong instruction of a GPU: kernels run as C++ of the host, a thread for each block.
// What only a GPU can show is in docs/gpu.md. Environment of a program that is linked with it:
//
//     RINGSIDE_STANDIN_DEVICES=8         how many GPUs there are [1]
//     RINGSIDE_STANDIN_MIG=1             they are MIG instances of one GPU
//     RINGSIDE_STANDIN_LAZY=1            the first launch of a kernel waits for the device, unless
//                                        CUDA_MODULE_LOADING is EAGER at the first call
//     RINGSIDE_STANDIN_SEED=1            of the delays [1]; 0: no delays
//     RINGSIDE_STANDIN_FAIL=12           the 12th call of the runtime fails
//     RINGSIDE_STANDIN_WITHOUT=ipc       devices that cannot share memory between processes
//     RINGSIDE_STANDIN_WITHOUT=peers     devices that cannot access each other's memory
//     RINGSIDE_STANDIN_NCCL=21805        the version that NCCL says it is [that of the header]
//     RINGSIDE_STANDIN_REPORT=FILE       each process appends a line when it ends (Usage)
#pragma once

#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

namespace ringside::standin {

// What this process has done so far.
struct Usage {
  std::uint64_t calls = 0;      // of the runtime
  unsigned contexts = 0;        // bit d: this process has a context on device d
  int streams = 0, events = 0;  // that exist
  int blocks = 0;               // of kernels that run; a held block does not
  int allocations = 0;          // of device and pinned memory that exist
  int opened = 0;               // memory of other processes that is open
  std::string reads;            // devices of the peers that copies read from: "2,3,0"
  std::string violations;       // of CUDA's rules, a sentence each
};
Usage usage();

// From now on, call number `n` (1 is the next) fails with `error`. Sticky: so do all later ones, as
// after a kernel's illegal access.
void fail_call(std::uint64_t n, cudaError_t error = cudaErrorUnknown, bool sticky = false);
void fail_no_call();

// No stream of this process begins another piece of work until the object is destroyed.
class HeldStreams {
 public:
  HeldStreams();
  ~HeldStreams();
  HeldStreams(const HeldStreams&) = delete;
  HeldStreams& operator=(const HeldStreams&) = delete;
};

// The last block of a cooperative launch does not begin until the object is destroyed: the others
// wait for it.
class HeldBlock {
 public:
  HeldBlock();
  ~HeldBlock();
  HeldBlock(const HeldBlock&) = delete;
  HeldBlock& operator=(const HeldBlock&) = delete;
};

// The machine of this process: how many devices there are, and whether they can share memory with
// other processes. Forgets which contexts this process has.
void set_machine(int devices, bool ipc = true);

}  // namespace ringside::standin
