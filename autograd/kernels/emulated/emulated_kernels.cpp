// DeviceKernels of the emulated device: the GPU's kernels, run on the CPU. A library of its own
// (emulated_device.cpp), which calls the tensors of the program that opens it.
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/devices.hpp"
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
                 fp32_c = p.beta == 0 ? compute_buffer(c) : to_compute_dtype(c);
    multiply_at(p, cuda::at<float>(fp32_a), cuda::at<float>(fp32_b), cuda::at<float>(fp32_c));
    convert_into(c, fp32_c);
  }
};

}  // namespace

// What a program looks up in the library.
extern "C" const DeviceKernels* ringside_emulated_kernels() {
  static const cuda::KernelsOn<EmulatedLauncher> kernels;
  return &kernels;
}

}  // namespace ringside::autograd
