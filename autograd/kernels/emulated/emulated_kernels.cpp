// DeviceKernels of the emulated device: the GPU's kernels, run on the CPU.
#include "autograd/cuda/of_device.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/emulated/emulated.hpp"
#include "autograd/kernels/shared/kernels_on.hpp"
#include "base/environment.hpp"

namespace ringside::autograd {
namespace {

// RINGSIDE_EMULATED_THREADS=N runs N threads per block and two blocks at once: for tests, and to
// see the threads of a block in a debugger. Unset, a launch is a loop over blocks of one thread.
cuda::Emulation emulation() {
  static const auto threads = integer_environment("RINGSIDE_EMULATED_THREADS", 1, 1024);
  return threads ? cuda::Emulation{static_cast<int>(*threads), 2} : cuda::Emulation{};
}

struct EmulatedLauncher {
  static constexpr Device device = Device::emulated;

  std::int64_t max_blocks(int) const { return 16; }
  std::size_t max_shared_bytes() const { return 227 << 10; }  // as an H200

  template <class Kernel>
  void run(const char*, const Kernel& kernel, std::int64_t blocks) const {
    cuda::launch_emulated(kernel, blocks, emulation());
  }

  // Matrix products come from a library on a GPU too. Here it is the gemm of the CPU, in fp32.
  void gemm(const MatrixProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) const {
    const Tensor fp32_a = to_compute_dtype(a), fp32_b = to_compute_dtype(b),
                 fp32_c = c.dtype() == DType::fp32 ? c
                          : p.beta == 0            ? Tensor::empty(c.shape(), DType::fp32, device)
                                                   : to_compute_dtype(c);
    for (std::int64_t i = 0; i < p.count; ++i)
      autograd::gemm(p.a, p.b, p.m, p.n, p.k, 1.0f, cuda::at<float>(fp32_a) + i * p.m * p.k,
                     p.a == Transpose::yes ? p.m : p.k, cuda::at<float>(fp32_b) + i * p.k * p.n,
                     p.b == Transpose::yes ? p.k : p.n, p.beta,
                     cuda::at<float>(fp32_c) + i * p.m * p.n, p.n);
    if (c.dtype() != DType::fp32) device_kernels(device).copy(fp32_c, c);
  }
};

}  // namespace

const DeviceKernels& emulated_kernels() {
  static const cuda::KernelsOn<EmulatedLauncher> kernels;
  return kernels;
}

}  // namespace ringside::autograd
