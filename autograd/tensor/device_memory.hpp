// DeviceMemory: allocates memory of a device and copies bytes to and from it. It is one half of a
// device; the other half, DeviceKernels (kernels/device_kernels.hpp), computes.
//
// All work goes to the COMPUTE STREAM of the calling thread, which is created at its first use. A
// stream executes the kernels and copies of one thread (a rank) in the order of the calls, while
// the host continues. Only calls that return numbers to the host wait.
//
//     host      copy_in ── kernel ── kernel ── copy_out ─┐           ┌─ continues
//     stream         [copy][  kernel  ][   kernel   ][copy]──────────┘
//
// The CPU has none: the host reads its tensors in place.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "autograd/tensor/device.hpp"

namespace ringside::autograd {

// A point of a thread's stream.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  // How long the device took from `earlier`, of the same thread, to here. Waits until it is here.
  virtual double seconds_since(const StreamMark& earlier) const = 0;

 protected:
  StreamMark() = default;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // The size of the buffer that is allocated for `bytes`; at least 1. Buffers of equal size can
  // replace each other in the cache of storage.cpp.
  virtual std::size_t buffer_size(std::size_t bytes) const = 0;
  // A buffer of `size`, a result of buffer_size(), aligned to 256 bytes; nullptr if the device is
  // out of memory. free() must not throw.
  virtual void* allocate(std::size_t size) = 0;
  virtual void free(void* buffer) noexcept = 0;

  // copy_in returns when `host` may be overwritten, copy_out when the bytes have arrived,
  // copy_within at once.
  virtual void copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, std::size_t bytes) = 0;

  // Returns when all earlier work of this thread is done.
  virtual void synchronise() = 0;

  // Marks the current end of this thread's stream. The returned function waits, on any thread,
  // until all work before the mark is done, and makes the device of this thread that thread's own.
  // Another thread calls it before it reads results of this one.
  virtual std::function<void()> fence() = 0;

  // Marks the current end of this thread's stream, to measure what the device does in between.
  virtual std::unique_ptr<StreamMark> mark() = 0;

  // Bytes that can still be allocated.
  virtual std::size_t free_bytes() const = 0;

 protected:
  DeviceMemory() = default;
};

// The memory of cuda or emulated. Throws Error that says what is missing if this build or machine
// has no such device, and for the CPU. Defined in kernels/devices.cpp.
DeviceMemory& device_memory(Device device);

// Buffer sizes on a GPU: multiples of 512 bytes, and of 2 MiB above 1 MiB. So nearly equal requests
// get buffers of one size, and a buffer that is shared with another process (CUDA IPC) consists of
// whole pages.
constexpr std::size_t cuda_buffer_size(std::size_t bytes) {
  const std::size_t unit = bytes > (std::size_t{1} << 20) ? std::size_t{2} << 20 : 512;
  return bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
}

}  // namespace ringside::autograd
