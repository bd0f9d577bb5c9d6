#include "cli/options/device_option.hpp"

#include <algorithm>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "base/error.hpp"
#include "cli/launcher/exit.hpp"
#include "cli/options/options.hpp"
#include "cli/options/training_options.hpp"
#include "collectives/backends/nccl.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/device_calls.hpp"

namespace ringside::cli {
namespace {

using autograd::Device;

std::unique_ptr<collectives::Backend> make_backend(const std::string& backend,
                                                   collectives::ProcessGroup& meeting) {
  const int local_rank = collectives::rank_info_from_environment().local_rank;
  if (backend == "nccl") return collectives::make_nccl_backend(meeting, local_rank);
  return collectives::cuda::make_cuda_ipc_backend(
      meeting, local_rank, collectives::cuda::cuda_ipc_options_from_environment());
}

}  // namespace

void add_device_option(const Options& option, DeviceOption& device) {
  add_training_option(option, "--device", device.name).show_default();
}

void add_device_backend_option(const Options& option, DeviceOption& device) {
  add_training_option(option, "--device-backend", device.backend);
}

void add_memory_limit(const Options& option, std::optional<double>& gigabytes) {
  add_training_option(option, "--memory-limit", gigabytes);
}

Device device_from(const DeviceOption& option, autograd::DType dtype) {
  const Device device = autograd::device_named(option.name);
  if (device == Device::cpu) return device;
  refuse_if(dtype == autograd::DType::fp64,
            "--dtype fp64 needs --device cpu: {} supports fp32 and bf16", option.name);
  if (device == Device::emulated)
    static_cast<void>(autograd::device_kernels(device));  // throws if they are not built
  if (device != Device::cuda) return device;
  if (const auto missing = collectives::cuda::what_is_missing())
    fail("--device cuda: {}; --device emulated runs the GPU's kernels on the CPU", *missing);
  return device;
}

void take_device(Device device) {
  if (device == Device::cuda)
    collectives::cuda::choose_device(collectives::rank_info_from_environment().local_rank);
}

void join_device(const DeviceOption& option, Device device, collectives::ProcessGroup& group) {
  if (device == Device::cpu) return;
  collectives::DeviceCalls calls;
  calls.fence = [device] { return autograd::device_memory(device).fence(); };
  if (device == Device::cuda && group.size() > 1) {
    calls.is_device_memory = collectives::cuda::is_device_memory;
    calls.make_backend = [backend = option.backend](collectives::ProcessGroup& meeting) {
      return make_backend(backend, meeting);
    };
  }
  group.use_device(std::move(calls));
}

Device begin_on_device(const DeviceOption& option, std::span<collectives::ProcessGroup> groups) {
  const Device device = device_from(option, autograd::DType::fp32);
  take_device(device);
  for (collectives::ProcessGroup& group : groups) join_device(option, device, group);
  return device;
}

void require_processes_for(const DeviceOption& option, const std::vector<std::string>& backends,
                           int ranks) {
  if (option.name != "cuda" || ranks == 1) return;
  refuse_if(std::ranges::find(backends, "threads") != backends.end(),
            "--device cuda needs a process for each rank: leave out --backend threads");
  refuse_if(backends.size() > 1,
            "on --device cuda the gradients go over --device-backend: name one --backend");
}

std::string describe(Device device) {
  if (device == Device::emulated) return "emulated: the GPU's kernels, run on the CPU";
  if (device == Device::cpu) return "cpu";
  return "cuda: " +
         collectives::cuda::choose_device(collectives::rank_info_from_environment().local_rank)
             .name;
}

}  // namespace ringside::cli
