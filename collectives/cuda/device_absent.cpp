// Replaces device.cpp in a build without the CUDA Toolkit.
#include "base/error.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::collectives::cuda {
namespace {

constexpr const char* missing =
    "this build has no CUDA: install the CUDA Toolkit 13, then configure with the preset cuda and "
    "build again";

}  // namespace

bool built_with_cuda() {
  return false;
}

std::optional<std::string> what_is_missing() {
  return missing;
}

int device_count() {
  return 0;
}

bool is_device_memory(const void*) {
  fail("{}", missing);
}

Device choose_device(int) {
  fail("{}", missing);
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  fail("{}", missing);
}
DeviceBuffer::~DeviceBuffer() = default;
void DeviceBuffer::copy_from(const void*, std::size_t) {}
void DeviceBuffer::copy_to(void*, std::size_t) const {}

}  // namespace ringside::collectives::cuda
