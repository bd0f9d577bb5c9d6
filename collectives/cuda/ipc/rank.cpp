#include "collectives/cuda/ipc/rank.hpp"

#include <algorithm>

#include "base/cuda.hpp"
#include "collectives/call_mismatch.hpp"
#include "collectives/calls/values_of_all_ranks.hpp"
#include "collectives/cuda/kernels.hpp"

namespace ringside::collectives::cuda {
namespace {

Device choose_device_with_ipc(int local_rank, int rank) {
  const Device device = choose_device(local_rank);
  int supported = 0;
  check_cuda(cudaDeviceGetAttribute(&supported, cudaDevAttrIpcEventSupport, device.number),
             fmt::format("rank {} asking what GPU {} supports", rank, device.number));
  require(supported != 0,
          "rank {}: GPU {} ({}) cannot share memory and events with other processes, which "
          "cuda_ipc needs: use nccl",
          rank, device.number, device.name);
  return device;
}

int resident_blocks_of(int rank) {
  int blocks = 0;
  check_cuda(resident_blocks(&blocks),
             fmt::format("rank {} computing how many blocks run at once", rank));
  return blocks;
}

// Kernels of several groups spin at the same time, in another order on each GPU: if those of one
// waited for multiprocessors that another's have, ranks could wait for each other for ever. So the
// groups of a process share the multiprocessors, and later ones get half of the rest. 32 blocks of
// 512 threads keep a GPU's links busy: of a copy they have 1 MiB under way, and of a sum more.
int blocks_for_next_group(int resident) {
  constexpr int most = 32;
  return std::clamp((resident - IpcRank::taken + 1) / 2, 0, most);
}

}  // namespace

std::atomic<int> IpcRank::taken = 0;

IpcRank::IpcRank(ProcessGroup group_of_hosts, int local_rank, const CudaIpcOptions& given)
    : options(given),
      device(choose_device_with_ipc(local_rank, group_of_hosts.rank())),
      resident_blocks(resident_blocks_of(group_of_hosts.rank())),
      group(std::move(group_of_hosts)),
      placement(group, device, blocks_for_next_group(resident_blocks), given.area_bytes) {}

void IpcRank::compare(const Call& call) {
  const auto calls = values_of_all_ranks(group, call, {});
  ++calls_;
  for (int r = 0; r < size(); ++r) check_call(calls_, call, calls[r], rank(), r);
}

void IpcRank::look(const Call& call) {
  interruption_.throw_if_any();
  constexpr std::uint64_t looks_between_system_calls = 256;
  if (++looks_ % looks_between_system_calls == 0) placement.require_all_alive(describe(call));
}

void IpcRank::interrupt(const std::string& cause) noexcept {
  interruption_.keep(Error(cause));
  group.abort(cause);
}

}  // namespace ringside::collectives::cuda
