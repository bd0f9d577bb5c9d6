// What a group must know of a device, such as a GPU, to make calls on its memory.
#pragma once

#include <functional>
#include <memory>

namespace ringside::collectives {

class Backend;
class ProcessGroup;

// For calls whose input a device still computes. The caller's thread calls the fence when a call is
// made; the fence marks how much work the device has been given. The function that it returns
// waits, on any thread, until the device has done that work.
using Fence = std::function<std::function<void()>()>;

// Whether an address, not null, is memory of the device.
using IsDeviceMemory = std::function<bool(const void*)>;

struct DeviceCalls {
  // Each call first waits for a fence of its own. Empty: no call waits.
  Fence fence = {};

  // Makes the backend that carries out calls on memory of the device (host_and_device.hpp), over a
  // group with the same ranks: called once for the group, and once for each sub-group. Empty: the
  // group's own backend carries out all calls.
  std::function<std::unique_ptr<Backend>(ProcessGroup& group)> make_backend = {};
  IsDeviceMemory is_device_memory = {};
};

}  // namespace ringside::collectives
