// What a kernel of the GPU exercises may use. The same file runs on a GPU (on_gpu.hpp) and, one
// thread after another, on the CPU (emulation.hpp), which counts what the kernel does:
//
//     gpu.thread() of gpu.threads()      in a block; 32 threads in a row are a warp
//     gpu.block()  of gpu.blocks()       in the launch; blocks run in any order
//     gpu.load(x, i), gpu.store(y, i, v)             one number of global memory
//     gpu.load_pack(x, i), gpu.store_pack(y, i, p)   16 bytes from number i on, one instruction;
//                                                    their address must be a multiple of 16
//     gpu.load_shared(i), gpu.store_shared(i, v)     float i of the block's shared memory
//     gpu.add_shared(i, v)                           atomically; returns the value before
//     gpu.copy_async(s, x, i, exists)    starts to copy 16 bytes to the floats from s on of shared
//                                        memory; if not `exists`, zeros
//     gpu.commit_copies()                closes a batch of this thread's copies
//     gpu.wait_copies(n)                 until at most its n newest batches are missing
//     gpu.sync()                                     a barrier for all threads of the block
//     gpu.sum(v)                                     of v over the block, to all; a barrier, too
//     gpu.shuffle_down(mask, v, d)                   v of the lane that is d further; past the
//     gpu.shuffle_xor(mask, v, d)                    warp's end: one's own. v of lane ^ d
//
// Every lane that a mask names must call the same shuffle; no lane may that it does not name.
#pragma once

#include <cstdint>
#include <limits>

#include "autograd/kernels/block/block.hpp"

namespace ringside::gpu {

using autograd::Bf16;
using autograd::cuda::Pack;

constexpr int warp_size = 32;
constexpr std::uint32_t all_lanes = 0xffffffff;
constexpr float infinity = std::numeric_limits<float>::infinity();

// Numbers in global memory. Only load() and store() reach them, so that each access is counted.
template <class T>
class Global {
 public:
  constexpr Global(T* data, std::int64_t size, const char* name, bool is_output = false)
      : data_(data), size_(size), name_(name), is_output_(is_output) {}

  constexpr std::int64_t size() const { return size_; }
  // Whether number 0 begins at a multiple of 16 bytes. Then every pack from a multiple of
  // Pack<T>::size on does.
  constexpr bool aligned() const { return autograd::cuda::fits_packs(0, data_); }

 private:
  friend class EmulatedThread;
  friend class DeviceThread;
  T* data_;
  std::int64_t size_;
  const char* name_;
  bool is_output_;
};

}  // namespace ringside::gpu

#ifdef __CUDACC__
#include "exercises/judge/gpu/on_gpu.hpp"
#else
#include "exercises/judge/gpu/emulation.hpp"
#endif

namespace student::gpu {
using namespace ringside::gpu;
}
