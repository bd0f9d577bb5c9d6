// A GPU on one thread of the CPU, for gpu.hpp: the threads of a block take turns, each from one
// sync() or shuffle to the next, in the order of their numbers or in the opposite one. Everything
// that a kernel does is the same in every run.
//
// Counted are, for each line of the kernel, what a GPU would do with the accesses of a warp:
//
//     global memory    sectors of 32 bytes that a request of a warp touches, and how many would do
//     shared memory    32 banks of 4 bytes: a request takes as many passes as one of its banks has
//                      different words to give
//
// An Error says what would be undefined on a GPU: an address that is not aligned or not there, two
// threads at one number without a sync() between them, a shuffle without one of its lanes.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

// What the requests of one line of the kernel came to.
struct Requests {
  std::string_view name;  // of the numbers; "shared memory"
  std::uint32_t line = 0;
  bool writes = false;
  std::int64_t requests = 0, bytes = 0;
  std::int64_t sectors = 0, sectors_needed = 0;  // global memory
  std::int64_t passes = 0;                       // shared memory
};

struct Launch {
  std::int64_t blocks = 1;
  int threads = 32;       // of a block, a multiple of 32
  int shared_floats = 0;  // NaN at first
  bool last_first = false;
};

struct Report {
  std::vector<Requests> lines;  // in the order of lines
  int syncs = 0;                // of each thread of block 0
  // Loads from shared memory, and how many of them ran while their thread had copies under way.
  std::int64_t shared_loads = 0, loads_under_copies = 0;
};

struct EmulatedState;

class EmulatedThread {
 public:
  using Where = std::source_location;

  EmulatedThread(EmulatedState& state, int thread) : state_(state), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const;
  std::int64_t block() const;
  std::int64_t blocks() const;

  template <class T>
  T load(const Global<T>& from, std::int64_t i, Where where = Where::current()) {
    check(from, i, 1, false, where);
    return from.data_[i];
  }
  template <class T>
  void store(const Global<T>& into, std::int64_t i, T value, Where where = Where::current()) {
    check(into, i, 1, true, where);
    into.data_[i] = value;
  }
  template <class T>
  Pack<T> load_pack(const Global<T>& from, std::int64_t i, Where where = Where::current()) {
    check(from, i, Pack<T>::size, false, where);
    return autograd::cuda::load(from.data_ + i);
  }
  template <class T>
  void store_pack(const Global<T>& into, std::int64_t i, const Pack<T>& pack,
                  Where where = Where::current()) {
    check(into, i, Pack<T>::size, true, where);
    autograd::cuda::store(into.data_ + i, pack);
  }
  float load_shared(int i, Where where = Where::current());
  void store_shared(int i, float value, Where where = Where::current());
  float add_shared(int i, float value, Where where = Where::current());
  void copy_async(int into, const Global<float>& from, std::int64_t i, bool exists,
                  Where where = Where::current()) {
    if (exists) check(from, i, Pack<float>::size, false, where);
    start_copy(into, exists ? from.data_ + i : nullptr, where);
  }
  void commit_copies();
  void wait_copies(int newest);
  void sync(Where where = Where::current());
  float sum(float value, Where where = Where::current());
  float shuffle_down(std::uint32_t mask, float value, int distance, Where where = Where::current());
  float shuffle_xor(std::uint32_t mask, float value, int distance, Where where = Where::current());
  static float exp(float x);
  static float log(float x);
  static float sqrt(float x);

 private:
  template <class T>
  void check(const Global<T>& at, std::int64_t i, int count, bool writes, const Where& where) {
    access(at.name_, at.data_, i, at.size_, sizeof(T), count, writes && !at.is_output_, writes,
           where);
  }
  void start_copy(int into, const float* from, const Where& where);
  void access(const char* name, const void* data, std::int64_t i, std::int64_t size,
              std::size_t bytes_each, int count, bool forbidden, bool writes, const Where& where);

  EmulatedState& state_;
  int thread_;
};

// Runs the blocks one after another. Throws what a thread throws.
Report launch(const Launch& how, const std::function<void(EmulatedThread&)>& kernel);

}  // namespace ringside::gpu
