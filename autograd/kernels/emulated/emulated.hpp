// Launches of the GPU's kernels on the CPU: for debuggers, sanitizers, and machines without a GPU.
#pragma once

#include <barrier>
#include <cmath>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <numbers>
#include <thread>
#include <vector>

#include "autograd/kernels/block/block.hpp"
#include "autograd/kernels/emulated/emulated_tiles.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd::cuda {

// What the threads of an emulated block share: the barrier, scratch memory for reductions, and the
// kernel's shared memory.
class EmulatedSharedState {
 public:
  EmulatedSharedState(int threads, std::size_t shared_bytes)
      : threads_(threads),
        barrier_(threads),
        scratch_(static_cast<std::size_t>(threads)),
        shared_((shared_bytes + sizeof(Aligned) - 1) / sizeof(Aligned)) {}

  int threads() const { return threads_; }
  std::byte* shared() { return reinterpret_cast<std::byte*>(shared_.data()); }
  void sync() {
    if (threads_ > 1) barrier_.arrive_and_wait();
  }
  // Combines the values of all threads, in the order of the threads. Returns the result to each.
  template <class Combine>
  float reduce(int thread, float value, const Combine& combine) {
    if (threads_ == 1) return value;
    scratch_[static_cast<std::size_t>(thread)] = value;
    barrier_.arrive_and_wait();  // all values are written
    float result = scratch_[0];
    for (std::size_t t = 1; t < scratch_.size(); ++t) result = combine(result, scratch_[t]);
    barrier_.arrive_and_wait();  // all values are read
    return result;
  }

 private:
  struct alignas(16) Aligned {
    std::byte bytes[16];
  };
  int threads_;
  std::barrier<> barrier_;
  std::vector<float> scratch_;
  std::vector<Aligned> shared_;
};

class EmulatedBlock {
 public:
  EmulatedBlock(EmulatedSharedState& state, int thread, std::int64_t index, std::int64_t count)
      : state_(state), thread_(thread), index_(index), count_(count) {}

  int thread() const { return thread_; }
  int threads() const { return state_.threads(); }
  std::int64_t index() const { return index_; }
  std::int64_t count() const { return count_; }
  void sync() { state_.sync(); }
  float sum(float x) {
    return state_.reduce(thread_, x, [](float a, float b) { return a + b; });
  }
  float max(float x) {
    return state_.reduce(thread_, x, [](float a, float b) { return a < b ? b : a; });
  }
  std::byte* shared() { return state_.shared(); }
  static float exp(float x) { return fast_exp(x); }
  static float exp2(float x) { return fast_exp(x * std::numbers::ln2_v<float>); }
  static float log(float x) { return std::log(x); }
  static float sqrt(float x) { return std::sqrt(x); }
  static float larger(float a, float b) { return a < b ? b : a; }

  // For kernels that use tiles (tiles.hpp).
  template <class T, int m, int n>
  using Accumulator = EmulatedAccumulator<T, m, n>;
  template <int size_on_gpu>
  using RowGroup = EmulatedRowGroup;
  void copy_async(void* into, const void* from, bool exists = true) {
    copies_.copy_async(into, exists ? from : nullptr);
  }
  void commit_copies() { copies_.commit_copies(); }
  void wait_copies(int newest) { copies_.wait_copies(newest); }

 private:
  EmulatedSharedState& state_;
  EmulatedAsyncCopies copies_;
  int thread_;
  std::int64_t index_, count_;
};
static_assert(Block<EmulatedBlock> && TileBlock<EmulatedBlock>);

// How a launch is emulated. The default is a loop over blocks of one thread, easy to follow in a
// debugger; like every loop of the CPU it is divided among the rank's threads. Tests run `threads`
// real threads per block, and several blocks at once.
struct Emulation {
  int threads = 1, blocks_at_once = 1;
};

// Runs `kernel` on `blocks` blocks and returns when all are done. A test may pass another block
// type as B.
template <class B = EmulatedBlock, class Kernel>
void launch_emulated(const Kernel& kernel, std::int64_t blocks, Emulation emulation = {}) {
  if (emulation.threads == 1 && emulation.blocks_at_once == 1)
    return parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      EmulatedSharedState state(1, shared_bytes_of(kernel));
      for (std::int64_t index = begin; index < end; ++index) {
        B block(state, 0, index, blocks);
        kernel(block);
      }
    });
  std::vector<std::unique_ptr<EmulatedSharedState>> states;
  std::vector<std::jthread> threads;
  for (int first = 0; first < emulation.blocks_at_once; ++first) {
    EmulatedSharedState& state = *states.emplace_back(
        std::make_unique<EmulatedSharedState>(emulation.threads, shared_bytes_of(kernel)));
    for (int thread = 0; thread < emulation.threads; ++thread)
      threads.emplace_back([&kernel, &state, blocks, first, thread, emulation] {
        for (std::int64_t index = first; index < blocks; index += emulation.blocks_at_once) {
          B block(state, thread, index, blocks);
          kernel(block);
          state.sync();  // the next block reuses the shared memory
        }
      });
  }
}

}  // namespace ringside::autograd::cuda
