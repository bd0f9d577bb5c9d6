// DeviceKernels on a GPU.
#include "autograd/cuda/blas.hpp"
#include "autograd/cuda/launch.hpp"
#include "autograd/cuda/stream.hpp"
#include "autograd/kernels/devices.hpp"
#include "autograd/kernels/shared/kernels_on.hpp"

namespace ringside::autograd {
namespace {

struct CudaLauncher {
  static constexpr Device device = Device::cuda;

  // A multiprocessor runs up to 2048 threads.
  std::int64_t max_blocks(int threads) const {
    thread_local const int processors =
        attribute(cudaDevAttrMultiProcessorCount, "reading the number of multiprocessors");
    return std::int64_t{2048 / threads} * processors;
  }

  std::size_t max_shared_bytes() const {
    thread_local const int most =
        attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, "reading the size of shared memory");
    return static_cast<std::size_t>(most) - cuda::static_shared_bytes;
  }

  template <class Kernel>
  void run(const char* op, const Kernel& kernel, std::int64_t blocks) const {
    check_cuda(cuda::launch(kernel, blocks, cuda::compute_stream()), op);
  }

  void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b, const Tensor& c) const {
    cuda::blas_gemm(product, a, b, c);
  }

 private:
  // Of the calling thread's GPU.
  static int attribute(cudaDeviceAttr which, const char* what) {
    int gpu = 0, value = 0;
    check_cuda(cudaGetDevice(&gpu), "reading the current device");
    check_cuda(cudaDeviceGetAttribute(&value, which, gpu), what);
    return value;
  }
};

}  // namespace

const DeviceKernels& cuda_kernels() {
  static_cast<void>(cuda_memory());  // throws if there is no GPU
  static const cuda::KernelsOn<CudaLauncher> kernels;
  return kernels;
}

}  // namespace ringside::autograd
