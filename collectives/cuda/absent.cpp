// Replaces device.cpp, one_gpu.cpp and ipc/ in a build without the CUDA Toolkit.
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::collectives::cuda {
namespace {

[[noreturn]] void fail_without_cuda() {
  fail("{}", *what_is_missing());
}

}  // namespace

bool built_with_cuda() {
  return false;
}
std::optional<std::string> what_is_missing() {
  return "this build has no CUDA: install the CUDA Toolkit 13, then configure with the preset cuda "
         "and build again";
}
int device_count() {
  return 0;
}
bool is_device_memory(const void*) {
  fail_without_cuda();
}
Device choose_device(int) {
  fail_without_cuda();
}

double seconds_of_queued_call(DeviceBackend&, const Call&, const void*, void*, int, Queueing) {
  fail_without_cuda();
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  fail_without_cuda();
}
DeviceBuffer::~DeviceBuffer() = default;
void DeviceBuffer::copy_from(const void*, std::size_t) {}
void DeviceBuffer::copy_to(void*, std::size_t) const {}

class OneGpuWorld {};
std::shared_ptr<OneGpuWorld> make_one_gpu_world(int, Seconds, bool) {
  fail_without_cuda();
}
std::unique_ptr<DeviceBackend> make_one_gpu_backend(std::shared_ptr<OneGpuWorld>, int) {
  fail_without_cuda();
}
std::unique_ptr<DeviceBackend> make_cuda_ipc_backend(ProcessGroup&, int, const CudaIpcOptions&) {
  fail_without_cuda();
}
std::unique_ptr<DeviceBackend> make_cuda_ipc_backend(const RankInfo&, const CudaIpcOptions&) {
  fail_without_cuda();
}

}  // namespace ringside::collectives::cuda
