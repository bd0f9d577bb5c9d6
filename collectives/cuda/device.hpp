// Is there a GPU, and which one is this rank's? Includes nothing of CUDA, so that any program can
// ask in any build.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace ringside::collectives::cuda {

// Whether this build has the GPU half; asks nobody.
bool built_with_cuda();

// One sentence that says what is missing (the toolkit when this was built, the driver, a GPU, and
// what to do); nothing if all is there.
std::optional<std::string> what_is_missing();

// GPUs that this process may use; 0 where something is missing.
int device_count();

// Whether an address is memory of a GPU. Throws Error where something is missing.
bool is_device_memory(const void* pointer);

struct Device {
  int number = 0;
  std::string name;  // "NVIDIA H200"
  std::string
      bus;  // where it sits on its host, "0000:1b:00.0": two ranks with the same share a GPU
  int driver = 0, runtime = 0;  // versions: 13000 is 13.0
};

// Makes GPU `local_rank` modulo device_count() this thread's, and tells what it is: with more ranks
// than GPUs some share one. Throws Error with the sentence of what_is_missing().
Device choose_device(int local_rank);

// Memory of the calling thread's device, for data: freed when this goes. Throws Error when it is
// full. copy_from and copy_to move bytes from and to the host, and wait for it.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void copy_from(const void* host, std::size_t bytes);
  void copy_to(void* host, std::size_t bytes) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace ringside::collectives::cuda
