#include "autograd/tensor/device.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::autograd {

Device device_named(std::string_view name) {
  const auto found = std::find_if(all_devices.begin(), all_devices.end(),
                                  [&](Device device) { return name == name_of(device); });
  require(found != all_devices.end(), "there is no device '{}': choose cpu, cuda or emulated",
          name);
  return *found;
}

}  // namespace ringside::autograd
