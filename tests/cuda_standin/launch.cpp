#include "tests/cuda_standin/launch.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/memory.hpp"
#include "tests/cuda_standin/standin.hpp"
#include "tests/cuda_standin/stream.hpp"

using namespace ringside::standin;

namespace {

// The kernels that opted in to more than 48 KiB of shared memory.
struct OptIns {
  Lock lock;
  std::map<const void*, int> bytes;
};
OptIns& opt_ins() {
  static OptIns& the = *new OptIns;
  return the;
}

std::size_t most_dynamic_shared(const void* kernel) {
  const std::lock_guard guard(opt_ins().lock);
  const auto found = opt_ins().bytes.find(kernel);
  const int without = shared_without_opt_in - shared_static;
  return static_cast<std::size_t>(
      found == opt_ins().bytes.end() ? without : std::max(without, found->second));
}

// Each process loads its kernels for itself.
void load(const void* kernel, int device) {
  static Lock& lock = *new Lock;
  static std::set<const void*>& loaded = *new std::set<const void*>;
  {
    const std::lock_guard guard(lock);
    if (!loaded.insert(kernel).second) return;
  }
  Stream::wait_for_device(device);
}

bool is_cooperative(const cudaLaunchConfig_t& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const auto& attribute) {
    return attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0;
  });
}

std::atomic<int> held_blocks = 0;

// The room of each device for cooperative launches, in threads.
std::atomic<int> taken[most_devices] = {};

class Room {
 public:
  Room(int device, int threads) : taken_(taken[device]), threads_(threads) {
    constexpr int all = multiprocessors * threads_of_multiprocessor;
    for (int now = taken_;;)
      if (now + threads_ > all) {
        taken_.wait(now);
        now = taken_;
      } else if (taken_.compare_exchange_weak(now, now + threads_)) {
        return;
      }
  }
  ~Room() {
    taken_ -= threads_;
    taken_.notify_all();
  }

 private:
  std::atomic<int>& taken_;
  const int threads_;
};

void run_blocks(dim3 grid, bool together, const BlockBody& body) {
  const auto begin = [&body, grid](dim3 block) {
    const bool last = block.x + 1 == grid.x && block.y + 1 == grid.y && block.z + 1 == grid.z;
    for (int holding = held_blocks; last && holding != 0; holding = held_blocks)
      held_blocks.wait(holding);
    ++machine().blocks;
    body(grid, block);
    --machine().blocks;
  };
  std::vector<std::thread> running;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x)
        if (together)
          running.emplace_back(begin, dim3(x, y, z));
        else
          body(grid, dim3(x, y, z));
  for (auto& thread : running) thread.join();
}

}  // namespace

namespace ringside::standin {

HeldBlock::HeldBlock() {
  ++held_blocks;
}
HeldBlock::~HeldBlock() {
  --held_blocks;
  held_blocks.notify_all();
}

cudaError_t launch_blocks(const cudaLaunchConfig_t& config, const void* kernel, BlockBody body) {
  if (const auto error = enter()) return error;
  const auto stream = Stream::of(config.stream);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z,
                      threads = std::uint64_t{block.x} * block.y * block.z;
  if (blocks == 0 || threads == 0 || threads > 1024 || grid.y > 65535 || grid.z > 65535)
    return report(cudaErrorInvalidConfiguration);
  if (config.dynamicSmemBytes > most_dynamic_shared(kernel)) return report(cudaErrorInvalidValue);
  const bool together = is_cooperative(config);
  if (together && blocks > multiprocessors * (threads_of_multiprocessor / threads))
    return report(cudaErrorCooperativeLaunchTooLarge);
  if (machine().lazy) load(kernel, stream->device());
  const int room = together ? static_cast<int>(blocks * threads) : 0, device = stream->device();
  stream->add([grid, together, room, device, body = std::move(body)] {
    const Room its(device, room);
    const Access access;
    run_blocks(grid, together, body);
  });
  return cudaSuccess;
}

}  // namespace ringside::standin

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const auto error = enter()) return error;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
      value > shared_most - shared_static)
    return report(cudaErrorInvalidValue);
  const std::lock_guard guard(opt_ins().lock);
  opt_ins().bytes[kernel] = value;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t) {
  if (const auto error = enter()) return error;
  *blocks = threads_of_multiprocessor / threads;
  return cudaSuccess;
}

}  // extern "C"
