// A block of a GPU's kernel whose threads take turns: each runs alone from one sync() to the next.
//
//     threads in order, sync() in between     first order: 0 1 2 | 0 1 2 | ...
//                                             last first:  2 1 0 | 2 1 0 | ...
//
// A thread that reads what another writes without a sync() in between comes too early in one of the
// two orders, in every run: no luck, no clock, no ThreadSanitizer. Asynchronous copies arrive at
// once, or as late as wait_copies() lets them. Shared memory is full of NaN at first.
#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "autograd/kernels/emulated/emulated.hpp"
#include "base/error.hpp"

namespace ringside::exercises {

struct TurnOrder {
  int threads = 1;
  bool last_first = false, copies_at_once = false;
};

class Turns {
 public:
  explicit Turns(const TurnOrder& order)
      : takes_part_(static_cast<std::size_t>(order.threads), true),
        syncs_(static_cast<std::size_t>(order.threads)),
        step_(order.last_first ? order.threads - 1 : 1),
        turn_(order.last_first ? order.threads - 1 : 0) {}

  void start(int thread) {
    std::unique_lock lock(mutex_);
    wait_for_turn(lock, thread);
  }
  void sync(int thread) {
    std::unique_lock lock(mutex_);
    ++syncs_[static_cast<std::size_t>(thread)];
    pass();
    wait_for_turn(lock, thread);
  }
  void leave(int thread) {
    const std::scoped_lock lock(mutex_);
    takes_part_[static_cast<std::size_t>(thread)] = false;
    pass();
  }
  // How often each thread called sync().
  const std::vector<int>& syncs() const { return syncs_; }

 private:
  void wait_for_turn(std::unique_lock<std::mutex>& lock, int thread) {
    changed_.wait(lock, [&] { return turn_ == thread; });
  }
  void pass() {
    const int threads = static_cast<int>(syncs_.size());
    for (int i = 0; i < threads; ++i) {
      turn_ = (turn_ + step_) % threads;
      if (takes_part_[static_cast<std::size_t>(turn_)]) break;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> takes_part_;
  std::vector<int> syncs_;
  int step_, turn_;
};

class BlockInTurn : public autograd::cuda::EmulatedBlock {
 public:
  BlockInTurn(autograd::cuda::EmulatedSharedState& state, Turns& turns, const TurnOrder& order,
              int thread, std::int64_t index, std::int64_t count)
      : EmulatedBlock(state, thread, index, count),
        turns_(turns),
        copies_at_once_(order.copies_at_once) {}

  void sync() { turns_.sync(thread()); }
  float sum(float) { fail("block.sum() is not for kernels of tiles: use the group's sum()"); }
  float max(float) { fail("block.max() is not for kernels of tiles: use the group's max()"); }
  void copy_async(void* into, const void* from, bool exists = true) {
    EmulatedBlock::copy_async(into, from, exists);
    if (copies_at_once_) commit_copies(), wait_copies(0);
  }

 private:
  Turns& turns_;
  bool copies_at_once_;
};
static_assert(autograd::cuda::TileBlock<BlockInTurn>);

// Runs the blocks of a kernel one after another. Returns how often a thread of block 0 called
// sync(). Throws what a thread throws, and Error if the threads of a block do not reach the same
// sync().
template <class Kernel>
int launch_in_turn(const Kernel& kernel, std::int64_t blocks, const TurnOrder& order) {
  int syncs = 0;
  for (std::int64_t index = 0; index < blocks; ++index) {
    autograd::cuda::EmulatedSharedState state(order.threads,
                                              autograd::cuda::shared_bytes_of(kernel));
    std::memset(state.shared(), 0xff, autograd::cuda::shared_bytes_of(kernel));
    Turns turns(order);
    std::exception_ptr error;
    {
      std::vector<std::jthread> threads;
      for (int thread = 0; thread < order.threads; ++thread)
        threads.emplace_back([&, thread] {
          turns.start(thread);
          try {
            BlockInTurn block(state, turns, order, thread, index, blocks);
            kernel(block);
          } catch (...) {
            if (!error) error = std::current_exception();
          }
          turns.leave(thread);
        });
    }
    if (error) std::rethrow_exception(error);
    for (std::size_t thread = 1; thread < turns.syncs().size(); ++thread)
      require(turns.syncs()[thread] == turns.syncs()[0],
              "thread 0 of a block called sync() {} times, thread {} {} times: all threads must "
              "reach the same sync()",
              turns.syncs()[0], thread, turns.syncs()[thread]);
    if (index == 0) syncs = turns.syncs()[0];
  }
  return syncs;
}

}  // namespace ringside::exercises
