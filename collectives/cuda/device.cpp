#include "collectives/cuda/device.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/cuda.hpp"
#include "base/environment.hpp"
#include "collectives/cuda/device_backend.hpp"

namespace ringside::collectives::cuda {

bool built_with_cuda() {
  return true;
}

// CUDA loads a kernel at its first launch, and may wait for all that runs on the GPU. A kernel of
// ours that runs may wait for another process, which may wait for this launch. So processes that
// work together load all kernels, those of cuBLAS too, when the driver starts, unless the user has
// chosen (CUDA C++ Programming Guide, "Lazy Loading", "Concurrent execution").
static void load_kernels_at_the_start() {
  for (const char* size : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"})
    if (environment(size).value_or("1") != "1") ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

std::optional<std::string> what_is_missing() {
  load_kernels_at_the_start();
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return std::nullopt;
  static_cast<void>(cudaGetLastError());  // clear it: the question itself is no failure
  if (result == cudaErrorInsufficientDriver) {
    // CUDA returns this for a driver that is too old and also for one that is missing.
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
      return fmt::format(
          "the NVIDIA driver is too old: it supports CUDA {}.{}, and this program was built with "
          "{}.{}; install a newer driver",
          driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return "there is no NVIDIA driver on this machine, so no GPU can be used: install the driver; "
           "nvidia-smi should then list a GPU";
  }
  if (result == cudaErrorNoDevice || result == cudaSuccess)
    return "there is no GPU that this process may use: nvidia-smi should list one, and "
           "CUDA_VISIBLE_DEVICES should not hide it";
  return fmt::format("no GPU can be used here: {} ({})", cudaGetErrorString(result),
                     cudaGetErrorName(result));
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

bool is_device_memory(const void* pointer) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, pointer),
             "asking whether a buffer is memory of a GPU");
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

// cudaDeviceProp.uuid need not be that of a MIG instance. From version 11.4 on, this function
// promises it. A CUdevice is the device's number.
static std::string first_digits_of_uuid(int device) {
  unsigned char uuid[16] = {};
  const auto get_uuid = driver_function<int(unsigned char*, int)>("cuDeviceGetUuid", 11040);
  const int result = get_uuid(uuid, device);
  require(result == 0, "cuDeviceGetUuid failed with driver error {}", result);
  return fmt::format("{:02x}{:02x}{:02x}{:02x}", uuid[0], uuid[1], uuid[2], uuid[3]);
}

Device choose_device(int local_rank) {
  if (const auto missing = what_is_missing()) fail("{}", *missing);
  require(local_rank >= 0, "a local rank is 0 or more, not {}", local_rank);
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "counting the GPUs");
  Device device;
  device.number = local_rank % count;
  check_cuda(cudaSetDevice(device.number),
             fmt::format("selecting GPU {} for local rank {}", device.number, local_rank));
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device.number), "reading a GPU's properties");
  device.name = properties.name;
  char bus[32] = {};
  check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, device.number), "reading a GPU's PCI bus id");
  device.place = fmt::format("{}, UUID {}", bus, first_digits_of_uuid(device.number));
  return device;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  check_cuda(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)),
             fmt::format("allocating {} bytes of GPU memory", bytes));
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  if (free_)
    free_();
  else
    free_device_memory(data_);  // fails only after an earlier failure, which was reported
}

void DeviceBuffer::copy_from(const void* host, std::size_t bytes) {
  require(bytes <= bytes_, "{} bytes do not fit into a buffer of {} bytes of GPU memory", bytes,
          bytes_);
  check_cuda(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice),
             fmt::format("copying {} bytes to the GPU", bytes));
  // From pageable memory cudaMemcpy may return before the bytes land, and our streams do not wait
  // for the default stream.
  check_cuda(cudaStreamSynchronize(nullptr), fmt::format("copying {} bytes to the GPU", bytes));
}

void DeviceBuffer::copy_to(void* host, std::size_t bytes) const {
  require(bytes <= bytes_, "expected at most {} bytes to copy from GPU memory, got {}", bytes_,
          bytes);
  check_cuda(cudaMemcpy(host, data_, bytes, cudaMemcpyDeviceToHost),
             fmt::format("copying {} bytes from the GPU", bytes));
}

double seconds_of_queued_call(DeviceBackend& backend, const Call& call, const void* input,
                              void* output, int calls, Queueing queueing) {
  const CudaEvent begin(cudaEventDefault, "making an event"),
      end(cudaEventDefault, "making an event");
  const auto stream = static_cast<cudaStream_t>(backend.stream());
  const auto enqueue_all = [&] {
    for (int i = 0; i < calls; ++i) backend.enqueue(call, input, output);
  };
  const bool as_graph = queueing == Queueing::graph;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t launchable = nullptr;
  if (as_graph) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    enqueue_all();
    check_cuda(cudaStreamEndCapture(stream, &graph), "ending a capture");
    check_cuda(cudaGraphInstantiate(&launchable, graph, 0), "making a graph");
  }
  backend.enqueue(call, input, output);  // the ranks begin together
  check_cuda(cudaEventRecord(begin, stream), "recording an event");
  if (as_graph)
    check_cuda(cudaGraphLaunch(launchable, stream), "launching a graph");
  else if (queueing == Queueing::group)
    backend.enqueue_group(enqueue_all);
  else
    enqueue_all();
  check_cuda(cudaEventRecord(end, stream), "recording an event");
  backend.finish();
  check_cuda(cudaEventSynchronize(end), "waiting for an event");
  if (as_graph) {
    check_cuda(cudaGraphExecDestroy(launchable), "destroying a graph");
    check_cuda(cudaGraphDestroy(graph), "destroying a graph");
  }
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "reading the time of two events");
  return milliseconds * 1e-3 / calls;
}

}  // namespace ringside::collectives::cuda
