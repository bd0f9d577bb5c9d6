// The emulated device. Its memory is the heap. A launch returns when its kernel is done, so
// synchronise() and fence() have nothing to wait for. Its kernels (emulated_kernels.cpp) are a
// library that is opened when they are first used: only debuggers and tests need them, and they
// take longer to compile than any other source.
#include "autograd/kernels/devices.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/memory.hpp"
#include "base/system/shared_library.hpp"

namespace ringside::autograd {
namespace {

struct EmulatedMark final : StreamMark {
  const Clock::time_point time = Clock::now();

  double seconds_since(const StreamMark& earlier) const override {
    return Seconds(time - static_cast<const EmulatedMark&>(earlier).time).count();
  }
};

class EmulatedMemory final : public DeviceMemory {
 public:
  // Rounded up to one pack, a kernel's largest load, and no further: AddressSanitizer then finds a
  // kernel that reads beyond its buffer.
  std::size_t buffer_size(std::size_t bytes) const override {
    return bytes == 0 ? 16 : (bytes + 15) / 16 * 16;
  }
  void* allocate(std::size_t size) override {
    void* buffer = nullptr;
    return posix_memalign(&buffer, 256, size) == 0 ? buffer : nullptr;
  }
  void free(void* buffer) noexcept override { std::free(buffer); }
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void copy_within(void* to, const void* from, std::size_t bytes) override {
    std::memmove(to, from, bytes);
  }
  void synchronise() override {}
  std::function<void()> fence() override {
    return [] {};
  }
  std::unique_ptr<StreamMark> mark() override { return std::make_unique<EmulatedMark>(); }
  std::size_t free_bytes() const override {
    return static_cast<std::size_t>(available_memory().value_or(0));
  }
};

const DeviceKernels& open_kernels() {
  // The programs of build/release are in build/release/bin, those of an installation in bin/, too.
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe"),
                              root = program.parent_path().parent_path();
  const SharedLibrary library(
      "the emulated device", "libringside_emulated.so", root / "lib",
      fmt::format("build it: cmake --build --preset {} --target ringside_emulated",
                  root.filename().string()));
  const DeviceKernels* (*kernels)() = nullptr;
  library.find(kernels, "ringside_emulated_kernels");
  return *kernels();
}

}  // namespace

DeviceMemory& emulated_memory() {
  static EmulatedMemory memory;
  return memory;
}

const DeviceKernels& emulated_kernels() {
  static const DeviceKernels& kernels = open_kernels();
  return kernels;
}

}  // namespace ringside::autograd
