// --device of the commands that compute: which device, is it there, and how a rank takes it.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

struct DeviceOption {
  std::string name = "cpu", backend = "cuda_ipc";
};

// Declares --device; add_device_backend declares --device-backend, for commands that run on several
// ranks.
CLI::Option* add_device_option(CLI::App& command, DeviceOption& option);
CLI::Option* add_device_backend_option(CLI::App& command, DeviceOption& option);

// The device that is named. Throws Error, with a sentence that says what is missing, where it is
// not here, and UsageError for numbers that are not kept there. Takes no memory of a GPU: a
// launcher asks too.
autograd::Device device_from(const DeviceOption& option, autograd::DType dtype);

// On the thread that will compute: takes its GPU, by its place among the ranks of this host, which
// may share one. Nothing happens for other devices.
void take_device(autograd::Device device);

// For a group of ranks that compute on that device: its calls wait for what the device is still to
// compute, and where memory is a GPU's they go over option.backend. Every rank must call it.
void join_device(const DeviceOption& option, autograd::Device device,
                 collectives::ProcessGroup& group);

// "emulated: the GPU's kernels, run on the CPU", "cuda: NVIDIA H200"
std::string describe(autograd::Device device);

}  // namespace ringside::cli
