// Whether there is a GPU, and which one belongs to this rank. Includes no CUDA header, so that
// every program can use it in every build.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace ringside::collectives::cuda {

// Whether this build has the GPU half. Does not look for a GPU.
bool built_with_cuda();

// One sentence that says what is missing (the toolkit at build time, the driver, or a GPU) and what
// to do about it; nothing if a GPU can be used.
std::optional<std::string> what_is_missing();

// How many GPUs this process may use; 0 if something is missing.
int device_count();

// Whether an address is memory of a GPU. Throws Error if something is missing.
bool is_device_memory(const void* pointer);

struct Device {
  int number = 0;
  std::string name;  // "NVIDIA H200"
  // "0000:1b:00.0, UUID 5f3c2a10", the PCI bus id and the first digits that `nvidia-smi -L` shows:
  // the same for ranks that share a GPU. Two MIG instances differ in the UUID alone.
  std::string place;
};

// Makes GPU number `local_rank` modulo device_count() current for this thread and returns what it
// is. With more ranks than GPUs some ranks share one. Throws Error with the sentence of
// what_is_missing().
Device choose_device(int local_rank);

// Memory of the calling thread's device, freed by the destructor; or what another allocator gave,
// given back by `free`. Throws Error when the device is out of memory. copy_from and copy_to copy
// from and to the host, and return when the copy is done.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes);
  DeviceBuffer(void* data, std::size_t bytes, std::function<void()> free)
      : data_(data), bytes_(bytes), free_(std::move(free)) {}
  ~DeviceBuffer();
  // Keeps the memory until the process ends: another process may have it open.
  void leak() { data_ = nullptr; }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_),
        free_(std::move(other.free_)) {}

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void copy_from(const void* host, std::size_t bytes);
  void copy_to(void* host, std::size_t bytes) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
  std::function<void()> free_;
};

// How calls queue up: each alone; as one group; or captured as a CUDA graph before, and launched at
// once, which ranks that share a stream cannot do.
enum class Queueing { alone, group, graph };

}  // namespace ringside::collectives::cuda
