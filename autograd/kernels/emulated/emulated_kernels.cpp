// The GPU's kernels on the CPU: as a loop over blocks of one thread, that a debugger can follow,
// unless more threads are asked for.
#include "autograd/cuda/of_device.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/emulated/emulated.hpp"
#include "autograd/kernels/shared/kernels_on.hpp"
#include "base/environment.hpp"

namespace ringside::autograd {
namespace {

// RINGSIDE_EMULATED_THREADS: so many threads in a block, and two blocks at once; for tests, and for
// who wants to see a block's threads in a debugger.
cuda::Emulation emulation() {
  static const auto threads = integer_environment("RINGSIDE_EMULATED_THREADS", 1, 1024);
  return threads ? cuda::Emulation{static_cast<int>(*threads), 2} : cuda::Emulation{};
}

struct EmulatedLauncher {
  static constexpr Device device = Device::emulated;

  std::int64_t most_blocks(int) const { return 16; }

  template <class Kernel>
  void run(const char*, const Kernel& kernel, std::int64_t blocks) const {
    cuda::launch_emulated(kernel, blocks, emulation());
  }

  // Not a kernel on a GPU either but a library's: here the CPU's, in fp32.
  void gemm(const MatrixProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) const {
    const Tensor wide_a = to_compute_dtype(a), wide_b = to_compute_dtype(b),
                 wide_c = c.dtype() == DType::fp32 ? c
                          : p.beta == 0            ? Tensor::empty(c.shape(), DType::fp32, device)
                                                   : to_compute_dtype(c);
    for (std::int64_t i = 0; i < p.count; ++i)
      autograd::gemm(p.a, p.b, p.m, p.n, p.k, 1.0f, cuda::at<float>(wide_a) + i * p.m * p.k,
                     p.a == Transpose::yes ? p.m : p.k, cuda::at<float>(wide_b) + i * p.k * p.n,
                     p.b == Transpose::yes ? p.k : p.n, p.beta,
                     cuda::at<float>(wide_c) + i * p.m * p.n, p.n);
    if (c.dtype() != DType::fp32) device_kernels(device).copy(wide_c, c);
  }
};

}  // namespace

const DeviceKernels& emulated_kernels() {
  static const cuda::KernelsOn<EmulatedLauncher> kernels;
  return kernels;
}

}  // namespace ringside::autograd
