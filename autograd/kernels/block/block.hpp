// Kernels written once for GPU and CPU: what a kernel may use of the thread block that runs it.
//
// A kernel is an object that holds its arguments:
//
//     static constexpr int threads = 256;       per block on a GPU; the CPU may run any number
//     std::size_t shared_bytes() const;         shared memory per block; without it: none
//     template <Block B> constexpr void operator()(B& block) const;
//
// A launch runs the kernel on `blocks` blocks. Blocks run in any order, and any number of them at
// the same time, so a block never waits for another:
//
//     blocks:   [ 0 ] [ 1 ] [ 2 ] [ 3 ] ...      block.index() of block.count()
//                 |
//     threads:  0 1 2 3 ... 255                  block.thread() of block.threads();
//                                                they share memory and synchronise in sync()
//
// On a GPU a launch is a grid of thread blocks (device_block.cuh). On the CPU it is a loop over
// blocks of one thread, for a debugger; tests run several threads per block and several blocks at
// once under ThreadSanitizer (emulated.hpp). So a kernel must be correct for every number of
// threads: it loops `for (i = block.thread(); i < n; i += block.threads())` and never addresses a
// fixed thread such as "thread 17".
//
// Barriers: sync() is a barrier for all threads of a block. A thread may read what another thread
// wrote only after a sync() between the write and the read. All threads of a block must reach the
// same sync(), so it never stands in a branch that only some threads take. sum() and max() are
// barriers too.
//
// Kernels are constexpr because nvcc lets device code call constexpr functions of the host: no
// function needs a __device__ of its own.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "autograd/tensor/bf16.hpp"

namespace ringside::autograd::cuda {

// sum() and max() reduce over the threads of the block. All threads get the result, with the same
// bits on every run. shared() points to shared_bytes_of(kernel) of uninitialised memory, aligned to
// 16 bytes.
template <class B>
concept Block = requires(B& block, float x) {
  { block.thread() } -> std::same_as<int>;
  { block.threads() } -> std::same_as<int>;
  { block.index() } -> std::same_as<std::int64_t>;
  { block.count() } -> std::same_as<std::int64_t>;
  block.sync();
  { block.sum(x) } -> std::same_as<float>;
  { block.max(x) } -> std::same_as<float>;
  { block.shared() } -> std::same_as<std::byte*>;
  { B::exp(x) } -> std::same_as<float>;
  { B::exp2(x) } -> std::same_as<float>;
  { B::log(x) } -> std::same_as<float>;
  { B::sqrt(x) } -> std::same_as<float>;
  { B::larger(x, x) } -> std::same_as<float>;
};

template <class Kernel>
constexpr std::size_t shared_bytes_of(const Kernel& kernel) {
  if constexpr (requires { kernel.shared_bytes(); })
    return kernel.shared_bytes();
  else
    return 0;
}

// ---- Packs: 16-byte vectors, which a thread loads or stores in one instruction ----

template <class S>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(S);
  S at[size];
};

// Whether rows of n elements that begin at these addresses can be accessed as packs: n is a
// multiple of the pack size, and every address is aligned to 16 bytes.
template <class S, class... More>
constexpr bool fits_packs(std::int64_t n, const S* first, const More*... more) {
  const auto aligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % sizeof(Pack<S>) == 0;
  };
  return n % Pack<S>::size == 0 && aligned(first) && (aligned(more) && ...);
}

// load() reads any memory; store() writes global memory.
template <class S>
constexpr Pack<S> load(const S* from) {
  return *reinterpret_cast<const Pack<S>*>(from);
}

}  // namespace ringside::autograd::cuda

#ifdef __CUDACC__
#include "autograd/kernels/block/device_store.cuh"
#else
namespace ringside::autograd::cuda {

template <class S>
constexpr void store(S* into, const Pack<S>& pack) {
  *reinterpret_cast<Pack<S>*>(into) = pack;
}

}  // namespace ringside::autograd::cuda
#endif

namespace ringside::autograd::cuda {

// The narrower of two element types. A pack of it has more elements, so a loop over its packs
// accesses whole packs of both types.
template <class S, class T>
using Narrower = std::conditional_t<(sizeof(T) < sizeof(S)), T, S>;

// Calls body(0) ... body(count - 1). A loop of up to 64 calls is unrolled, so that a GPU keeps an
// array that is indexed by it in registers.
template <int count, class Body>
constexpr void unrolled(const Body& body) {
  if constexpr (count <= 64) [&]<int... i>(std::integer_sequence<int, i...>) {
      (body(i), ...);
    }
  (std::make_integer_sequence<int, count>{});
  else for (int i = 0; i < count; ++i) body(i);
}

// Divides 0..n-1 among the threads of a block. With `packs` (see fits_packs) each thread takes a
// pack at a time: body(i, width) gets the index of its first element and its size. The size is a
// type, so that the compiler unrolls loops over it. Without `packs` body is called for each element
// with width 1.
template <int n>
struct Width {
  static constexpr int value = n;
};
template <class S, Block B, class Body>
constexpr void for_each(B& block, std::int64_t n, bool packs, const Body& body) {
  constexpr int size = Pack<S>::size;
  if (packs)
    for (std::int64_t i = std::int64_t{block.thread()} * size; i < n;
         i += std::int64_t{block.threads()} * size)
      body(i, Width<size>{});
  else
    for (std::int64_t i = block.thread(); i < n; i += block.threads()) body(i, Width<1>{});
}

// for_each over begin..end-1. With `packs`, `begin` must be the start of a pack; the elements after
// the last whole pack are visited one by one.
template <class S, Block B, class Body>
constexpr void for_each_in_range(B& block, std::int64_t begin, std::int64_t end, bool packs,
                                 const Body& body) {
  const std::int64_t whole = packs ? (end - begin) / Pack<S>::size * Pack<S>::size : 0;
  for_each<S>(block, whole, true, [&](std::int64_t i, auto width) { body(begin + i, width); });
  for_each<S>(block, end - begin - whole, false,
              [&](std::int64_t i, auto width) { body(begin + whole + i, width); });
}

// `width` consecutive elements as fp32. load_floats converts from S and store_floats rounds to S;
// both access whole packs if the width is a multiple of the pack size.
template <int width>
struct Floats {
  float at[width];
};
template <int width, class S>
constexpr Floats<width> load_floats(const S* from) {
  constexpr int size = width % Pack<S>::size == 0 ? Pack<S>::size : 1;
  Floats<width> floats{};
  for (int first = 0; first < width; first += size) {
    if constexpr (size > 1) {
      const Pack<S> pack = load(from + first);
      for (int k = 0; k < size; ++k) floats.at[first + k] = static_cast<float>(pack.at[k]);
    } else {
      floats.at[first] = static_cast<float>(from[first]);
    }
  }
  return floats;
}
// `width` consecutive elements as they are stored: in half the registers of Floats, if S is Bf16.
template <class S, int width>
struct Elements {
  S at[width];
};
template <int width, class S>
constexpr Elements<S, width> load_elements(const S* from) {
  if constexpr (width == Pack<S>::size)
    return std::bit_cast<Elements<S, width>>(load(from));
  else
    return {{*from}};
}
template <int width, class S>
constexpr Floats<width> floats_of(const Elements<S, width>& elements) {
  Floats<width> floats{};
  for (int k = 0; k < width; ++k) floats.at[k] = static_cast<float>(elements.at[k]);
  return floats;
}
template <int width, class S>
constexpr void store_floats(S* into, const Floats<width>& floats) {
  constexpr int size = width % Pack<S>::size == 0 ? Pack<S>::size : 1;
  for (int first = 0; first < width; first += size) {
    if constexpr (size > 1) {
      Pack<S> pack{};
      for (int k = 0; k < size; ++k) pack.at[k] = S(floats.at[first + k]);
      store(into + first, pack);
    } else {
      into[first] = S(floats.at[first]);
    }
  }
}

}  // namespace ringside::autograd::cuda
