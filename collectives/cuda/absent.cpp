// Replaces one_gpu.cpp and ipc/ in a build without the CUDA Toolkit.
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::collectives::cuda {

class OneGpuWorld {};

std::shared_ptr<OneGpuWorld> make_one_gpu_world(int, Seconds) {
  fail("{}", *what_is_missing());
}
std::shared_ptr<OneGpuWorld> make_bare_gpu_world(int) {
  fail("{}", *what_is_missing());
}
std::unique_ptr<Backend> make_one_gpu_backend(std::shared_ptr<OneGpuWorld>, int) {
  fail("{}", *what_is_missing());
}
std::unique_ptr<Backend> make_cuda_ipc_backend(ProcessGroup&, int, const CudaIpcOptions&) {
  fail("{}", *what_is_missing());
}
std::unique_ptr<Backend> make_cuda_ipc_backend(const RankInfo&, const CudaIpcOptions&) {
  fail("{}", *what_is_missing());
}

}  // namespace ringside::collectives::cuda
