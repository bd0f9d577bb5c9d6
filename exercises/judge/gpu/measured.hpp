// Runs the student's kernels on a GPU, compares their numbers with those of the CPU, and times them
// beside what the machine can do. For nvcc: the gpu.cu of each exercise uses it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

// Ends the program with a sentence.
inline void must(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s. ./exercise check names the line of a mistake.\n", doing,
              cudaGetErrorString(error));
  std::exit(1);
}

// Number i of input `which`, from -1 to 1. The GPU and the CPU make the same one.
__host__ __device__ inline float number(std::uint32_t which, std::int64_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) + which * 0x9e3779b9u;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return static_cast<float>((x ^ x >> 16) >> 8) * 0x1p-23f - 1;
}

template <class T>
__global__ void fill_numbers(T* data, std::int64_t n, std::uint32_t which, float scale) {
  const std::int64_t all = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += all)
    data[i] = T(scale * number(which, i));
}

// Ends the program unless number i of `name` is the expected one, to an error of
// tolerance (1 + |expected|).
inline void expect_number(const char* name, std::int64_t i, double seen, double expected,
                          double tolerance) {
  if (std::abs(seen - expected) <= tolerance * (1 + std::abs(expected))) return;
  std::printf(
      "wrong on the GPU: %s[%lld] is %.7g, the CPU has %.7g%s. ./exercise check names the line of "
      "a mistake.\n",
      name, static_cast<long long>(i), seen, expected,
      std::isnan(seen) ? "; memory that nobody has written is nan" : "");
  std::exit(1);
}

// Numbers in the GPU's memory. An output begins with nan.
template <class T>
class NumbersOnGpu {
 public:
  NumbersOnGpu(const char* name, std::int64_t n) : name_(name), n_(n) {
    const cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&data_), bytes());
    if (error == cudaErrorMemoryAllocation) {
      std::printf("the GPU has no %.1f GB free for %s: close other programs that use it\n",
                  static_cast<double>(bytes()) / 1e9, name);
      std::exit(1);
    }
    must(error, name);
    must(cudaMemset(data_, 0xff, bytes()), name);
  }
  NumbersOnGpu(const char* name, const std::vector<T>& values)
      : NumbersOnGpu(name, static_cast<std::int64_t>(values.size())) {
    must(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), name);
  }
  ~NumbersOnGpu() { cudaFree(data_); }
  NumbersOnGpu(const NumbersOnGpu&) = delete;
  NumbersOnGpu& operator=(const NumbersOnGpu&) = delete;

  // number(which, i) times scale.
  void fill(std::uint32_t which, float scale = 1) {
    fill_numbers<<<1024, 256>>>(data_, n_, which, scale);
    must(cudaDeviceSynchronize(), name_);
  }
  T* data() const { return data_; }
  Global<T> global() const { return Global<T>(data_, n_, name_, true); }
  std::vector<T> values() const {
    std::vector<T> all(static_cast<std::size_t>(n_));
    must(cudaMemcpy(all.data(), data_, bytes(), cudaMemcpyDeviceToHost), name_);
    return all;
  }
  template <class Expected>
  void expect(const Expected& expected, double tolerance) const {
    const std::vector<T> seen = values();
    for (std::int64_t i = 0; i < n_; ++i)
      expect_number(name_, i, static_cast<float>(seen[static_cast<std::size_t>(i)]), expected(i),
                    tolerance);
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(n_) * sizeof(T); }

  const char* name_;
  std::int64_t n_;
  T* data_ = nullptr;
};

struct Shape {
  int blocks, threads, shared_floats = 0;
};

// Runs the kernel once, to its end.
template <class Kernel>
void run_once(const char* name, const Kernel& kernel, const Shape& shape) {
  run<<<shape.blocks, shape.threads, shape.shared_floats * sizeof(float)>>>(kernel);
  must(cudaDeviceSynchronize(), name);
}

// The streams and events of a device that a student's program drives.
template <class Device>
class CudaStreams : public Device {
 public:
  int new_stream() override {
    must(cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking), "new_stream");
    return static_cast<int>(streams_.size()) - 1;
  }
  int new_event() override {
    must(cudaEventCreateWithFlags(&events_.emplace_back(), cudaEventDisableTiming), "new_event");
    return static_cast<int>(events_.size()) - 1;
  }
  void record(int event, int stream) override {
    must(cudaEventRecord(events_[event], streams_[stream]), "record");
  }
  void wait(int stream, int event) override {
    must(cudaStreamWaitEvent(streams_[stream], events_[event]), "wait");
  }
  void synchronize(int stream) override {
    must(cudaStreamSynchronize(streams_[stream]), "synchronize");
  }

 protected:
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
};

// The median time of 21 runs of what `start` gives to the GPU, in seconds.
template <class Start>
double median_time(const char* name, const Start& start) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), name);
  must(cudaEventCreate(&end), name);
  start();
  std::vector<float> milliseconds(21);
  for (float& each : milliseconds) {
    cudaEventRecord(begin);
    start();
    cudaEventRecord(end);
    must(cudaEventSynchronize(end), name);
    must(cudaEventElapsedTime(&each, begin, end), name);
  }
  std::nth_element(milliseconds.begin(), milliseconds.begin() + 10, milliseconds.end());
  return milliseconds[10] / 1e3;
}

// Multiplies and adds in registers only. The sum is never -1, but the compiler cannot know.
template <int numbers>
__global__ void multiply_in_registers(float* out, float factor, int times) {
  float x[numbers];
  for (int k = 0; k < numbers; ++k) x[k] = static_cast<float>(threadIdx.x + k);
  for (int n = 0; n < times; ++n)
    for (float& each : x) each = each * factor + 1;
  float sum = 0;
  for (const float each : x) sum += each;
  if (sum == -1) *out = sum;
}

// The GPU of this machine.
class Machine {
 public:
  Machine() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
      std::printf("there is no GPU that CUDA can use: %s. ./exercise check needs none.\n",
                  cudaGetErrorString(error));
      std::exit(1);
    }
    must(cudaGetDeviceProperties(&gpu_, 0), "the GPU");
    std::string driver = "unknown";
    std::ifstream("/sys/module/nvidia/version") >> driver;
    std::printf("%s, driver %s\n", gpu_.name, driver.c_str());
  }

  // Times the kernel, and prints how fast its bytes move beside a copy that CUDA makes.
  template <class Kernel>
  void measure_bytes(const char* name, const Kernel& kernel, const Shape& shape, double bytes) {
    print(name, time_of(name, kernel, shape), bytes / 1e9, "GB/s", copy_speed() / 1e9,
          "of cudaMemcpy's");
  }
  // The same for a kernel that multiplies and adds in fp32.
  template <class Kernel>
  void measure_flops(const char* name, const Kernel& kernel, const Shape& shape, double flops) {
    print(name, time_of(name, kernel, shape), flops / 1e12, "TFLOP/s", register_speed() / 1e12,
          "of what registers alone reach:");
  }
  static void print(const char* name, double seconds, double amount, const char* unit, double limit,
                    const char* of) {
    std::printf("%-24s values right %9.1f us %8.1f %s, %.2f %s %.1f\n", name, 1e6 * seconds,
                amount / seconds, unit, amount / seconds / limit, of, limit);
  }

 private:
  template <class Kernel>
  static double time_of(const char* name, const Kernel& kernel, const Shape& shape) {
    return median_time(name, [&] {
      run<<<shape.blocks, shape.threads, shape.shared_floats * sizeof(float)>>>(kernel);
    });
  }
  // Bytes in a second, each read and written.
  double copy_speed() {
    if (copy_speed_ > 0) return copy_speed_;
    constexpr std::size_t bytes = std::size_t{1} << 28;
    const NumbersOnGpu<float> from("a copy", bytes / 4), to("a copy", bytes / 4);
    copy_speed_ = 2.0 * bytes / median_time("cudaMemcpy", [&] {
                    must(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice),
                         "cudaMemcpy");
                  });
    return copy_speed_;
  }
  // FLOPs in a second.
  double register_speed() {
    constexpr int times = 1 << 14, threads = 256, numbers = 8;
    const int blocks = 8 * gpu_.multiProcessorCount;
    const NumbersOnGpu<float> out("out", 1);
    return 2.0 * numbers * times * blocks * threads / median_time("products", [&] {
             multiply_in_registers<numbers><<<blocks, threads>>>(out.data(), 0.5f, times);
           });
  }

  cudaDeviceProp gpu_;
  double copy_speed_ = 0;
};

}  // namespace ringside::gpu
