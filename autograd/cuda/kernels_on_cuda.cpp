// DeviceKernels on a GPU.
#include "autograd/cuda/blas.hpp"
#include "autograd/cuda/kernels_on.hpp"
#include "autograd/cuda/launch.hpp"
#include "autograd/cuda/of_device.hpp"
#include "autograd/cuda/stream.hpp"

namespace ringside::autograd {
namespace {

struct CudaLauncher {
  static constexpr Device device = Device::cuda;

  // Eight blocks of 256 threads fill a multiprocessor.
  std::int64_t most_blocks() const {
    thread_local const std::int64_t blocks = [] {
      int number = 0, processors = 0;
      cuda::check(cudaGetDevice(&number), "asking for the device");
      cuda::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, number), "asking a GPU what it is");
      return std::int64_t{8} * processors;
    }();
    return blocks;
  }

  template <class Kernel>
  void run(const char* op, const Kernel& kernel, std::int64_t blocks) const {
    cuda::check(cuda::launch(kernel, blocks, cuda::compute_stream()), op);
  }

  void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b, const Tensor& c) const {
    cuda::blas_gemm(product, a, b, c);
  }
};

}  // namespace

const DeviceKernels& cuda_kernels() {
  static_cast<void>(cuda_memory());  // throws where there is no GPU
  static const cuda::KernelsOn<CudaLauncher> kernels;
  return kernels;
}

}  // namespace ringside::autograd
