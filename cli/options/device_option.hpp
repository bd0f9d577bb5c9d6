// --device and --memory-limit of the commands that compute: the options, their checks, and how a
// rank uses the device.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "cli/options/cli11_names.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

struct DeviceOption {
  std::string name = "cpu", backend = "cuda_ipc";
};

// Declares --device, and --device-backend for commands that run on several ranks.
void add_device_option(const Options& option, DeviceOption& device);
void add_device_backend_option(const Options& option, DeviceOption& device);

// Declares --memory-limit GB, in 10^9 bytes, for all ranks on this machine. 0: do not check.
// Without it the limit is the available memory.
void add_memory_limit(const Options& option, std::optional<double>& gigabytes);

// The device of the option. Throws Error that says what is missing if this machine does not have
// it, and UsageError if it does not support `dtype`. Uses no GPU memory, so a launcher may call it.
autograd::Device device_from(const DeviceOption& option, autograd::DType dtype);

// Call it on the thread that will compute: selects the rank's GPU by its local rank. Ranks may
// share a GPU. Does nothing for other devices.
void take_device(autograd::Device device);

// Prepares a group for ranks that compute on the device: a call waits until the device has computed
// its data, and calls on GPU memory use option.backend. Every rank must call it.
void join_device(const DeviceOption& option, autograd::Device device,
                 collectives::ProcessGroup& group);

// take_device() and join_device() for the group or groups of a bench in fp32.
autograd::Device begin_on_device(const DeviceOption& option,
                                 std::span<collectives::ProcessGroup> groups);

// Throws UsageError if ranks that are threads, or groups over several backends, would compute on a
// GPU: each rank needs a process, and option.backend carries the gradients whatever the group is.
void require_processes_for(const DeviceOption& option, const std::vector<std::string>& backends,
                           int ranks);

// "emulated: the GPU's kernels, run on the CPU", "cuda: NVIDIA H200"
std::string describe(autograd::Device device);

}  // namespace ringside::cli
