// A launch on the CPU: every kernel of this folder in a debugger, under sanitizers, and on machines
// without a GPU.
#pragma once

#include <barrier>
#include <cmath>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "autograd/kernels/block/block.hpp"
#include "autograd/kernels/emulated/emulated_tiles.hpp"
#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/parallel.hpp"

namespace ringside::autograd::cuda {

// What the threads of one emulated block have in common.
class EmulatedTeam {
 public:
  EmulatedTeam(int threads, std::size_t shared_bytes)
      : threads_(threads),
        barrier_(threads),
        said_(static_cast<std::size_t>(threads)),
        shared_((shared_bytes + sizeof(Sixteen) - 1) / sizeof(Sixteen)) {}

  int threads() const { return threads_; }
  std::byte* shared() { return reinterpret_cast<std::byte*>(shared_.data()); }
  void sync() {
    if (threads_ > 1) barrier_.arrive_and_wait();
  }
  // Combines what every thread says, in the order of the threads.
  template <class Combine>
  float all(int thread, float value, const Combine& combine) {
    if (threads_ == 1) return value;
    said_[static_cast<std::size_t>(thread)] = value;
    barrier_.arrive_and_wait();
    float result = said_[0];
    for (std::size_t t = 1; t < said_.size(); ++t) result = combine(result, said_[t]);
    barrier_.arrive_and_wait();
    return result;
  }

 private:
  struct alignas(16) Sixteen {
    std::byte bytes[16];
  };
  int threads_;
  std::barrier<> barrier_;
  std::vector<float> said_;
  std::vector<Sixteen> shared_;
};

class EmulatedBlock {
 public:
  EmulatedBlock(EmulatedTeam& team, int thread, std::int64_t index, std::int64_t count)
      : team_(team), thread_(thread), index_(index), count_(count) {}

  int thread() const { return thread_; }
  int threads() const { return team_.threads(); }
  std::int64_t index() const { return index_; }
  std::int64_t count() const { return count_; }
  void sync() { team_.sync(); }
  float sum(float x) {
    return team_.all(thread_, x, [](float a, float b) { return a + b; });
  }
  float max(float x) {
    return team_.all(thread_, x, [](float a, float b) { return a < b ? b : a; });
  }
  std::byte* shared() { return team_.shared(); }
  static float exp(float x) { return fast_exp(x); }
  static float log(float x) { return std::log(x); }
  static float sqrt(float x) { return std::sqrt(x); }

  // For kernels of tiles (tiles.hpp).
  template <class T, int m, int n>
  using Product = EmulatedProduct<T, m, n>;
  using Group = EmulatedGroup;
  void copy_later(void* into, const void* from) { copies_.copy_later(into, from); }
  void end_of_batch() { copies_.end_of_batch(); }
  void finish_copies(int but) { copies_.finish_copies(but); }

 private:
  EmulatedTeam& team_;
  EmulatedCopies copies_;
  int thread_;
  std::int64_t index_, count_;
};
static_assert(Block<EmulatedBlock> && TileBlock<EmulatedBlock>);

// How launches are emulated: as given, a loop that a debugger can follow (shared out to the rank's
// threads, as all loops of the CPU). For tests: real threads for the threads of a block, and for
// blocks that are under way at once.
struct Emulation {
  int threads = 1, blocks_at_once = 1;
};

// Runs `kernel` on `blocks` blocks and returns when all are done. `B` is EmulatedBlock, or what a
// test puts in its place.
template <class B = EmulatedBlock, class Kernel>
void launch_emulated(const Kernel& kernel, std::int64_t blocks, Emulation emulation = {}) {
  if (emulation.threads == 1 && emulation.blocks_at_once == 1)
    return parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      EmulatedTeam team(1, kernel.shared_bytes());
      for (std::int64_t index = begin; index < end; ++index) {
        B block(team, 0, index, blocks);
        kernel(block);
      }
    });
  std::vector<std::unique_ptr<EmulatedTeam>> teams;
  std::vector<std::jthread> threads;
  for (int place = 0; place < emulation.blocks_at_once; ++place) {
    EmulatedTeam& team = *teams.emplace_back(
        std::make_unique<EmulatedTeam>(emulation.threads, kernel.shared_bytes()));
    for (int thread = 0; thread < emulation.threads; ++thread)
      threads.emplace_back([&kernel, &team, blocks, place, thread, emulation] {
        for (std::int64_t index = place; index < blocks; index += emulation.blocks_at_once) {
          B block(team, thread, index, blocks);
          kernel(block);
          team.sync();  // the next block takes over the shared memory
        }
      });
  }
}

}  // namespace ringside::autograd::cuda
