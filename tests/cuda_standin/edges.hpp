// Order that ThreadSanitizer sees, and a lock that it does not see.
//
// This library is compiled without sanitizers, and uses no lock of the C library. So its own
// bookkeeping orders nothing in the eyes of ThreadSanitizer. What CUDA promises is told to it by
// these two functions: all that a thread did before before(token) is visible to a thread after
// after(token).
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {
__attribute__((weak)) void __tsan_acquire(void* token);
__attribute__((weak)) void __tsan_release(void* token);
__attribute__((weak)) std::uint32_t __tsan_atomic32_load(const volatile std::uint32_t* from, int);
__attribute__((weak)) void __tsan_atomic32_store(volatile std::uint32_t* to, std::uint32_t, int);
}

namespace ringside::standin {

inline void before(const void* token) {
  if (__tsan_release) __tsan_release(const_cast<void*>(token));
}
inline void after(const void* token) {
  if (__tsan_acquire) __tsan_acquire(const_cast<void*>(token));
}

class Lock {
 public:
  void lock() {
    while (taken_.exchange(1, std::memory_order_acquire) != 0) taken_.wait(1);
  }
  void unlock() {
    taken_.store(0, std::memory_order_release);
    taken_.notify_one();
  }

 private:
  std::atomic<int> taken_ = 0;
};

}  // namespace ringside::standin
