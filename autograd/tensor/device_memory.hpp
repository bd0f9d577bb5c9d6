// DeviceMemory: how memory of a device is had, and how bytes get there and back. The lower half of
// what a device is; the upper is device_kernels.hpp.
//
// Everything happens on the calling thread's COMPUTE STREAM, which is made when it is first used:
// kernels and copies of one thread (a rank) are carried out in the order in which they were asked
// for, while the host goes on. Only what gives numbers to the host waits.
//
//     host      copy_in ── kernel ── kernel ── copy_out ─┐          ┌─ goes on
//     stream         [copy][  kernel  ][   kernel   ][copy]──────────┘
//
// The CPU has none of it: its tensors are never asked for here.
#pragma once

#include <cstddef>
#include <functional>

#include "autograd/tensor/device.hpp"

namespace ringside::autograd {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // How large a buffer is made for `bytes`, of which there is at least one: buffers of one size
  // serve each other (storage.cpp keeps them).
  virtual std::size_t buffer_size(std::size_t bytes) const = 0;
  // A buffer of `size`, as buffer_size() gave it, aligned to 256; nullptr where there is no such
  // memory. free() may not throw.
  virtual void* allocate(std::size_t size) = 0;
  virtual void free(void* buffer) noexcept = 0;

  // copy_in returns when `host` may be written again, copy_out when the bytes are there, and
  // within() at once.
  virtual void copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, std::size_t bytes) = 0;

  // Returns when all that this thread has asked for is done.
  virtual void synchronise() = 0;

  // A place in this thread's stream, here and now. What is returned waits, on any thread, until all
  // that was asked for before is done: so that another thread may read what this one has the device
  // compute.
  virtual std::function<void()> fence() = 0;

  // Bytes that could still be allocated.
  virtual std::size_t free_bytes() const = 0;

 protected:
  DeviceMemory() = default;
};

// Of cuda or emulated. Throws Error, with a sentence that says what is missing, where there is no
// such device, and for the CPU.
DeviceMemory& device_memory(Device device);

// How large the GPU's buffers are: multiples of 512 bytes, and above 1 MiB of 2 MiB, so that sizes
// which differ little are one size, and what a buffer shares with another process (CUDA IPC) is
// whole pages.
constexpr std::size_t cuda_buffer_size(std::size_t bytes) {
  const std::size_t unit = bytes > (std::size_t{1} << 20) ? std::size_t{2} << 20 : 512;
  return bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
}

}  // namespace ringside::autograd
