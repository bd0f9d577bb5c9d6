// Kernels that are one text for GPU and CPU: what a kernel may ask of the block that runs it.
//
// A kernel here is an object that holds its arguments, with
//
//     static constexpr int threads = 256;                         of a block on a GPU; elsewhere there may be any number
//     std::size_t shared_bytes() const                            memory that the threads of a block have in common (0: none)
//     template <Block B> constexpr void operator()(B& block) const
//
// A LAUNCH runs it for `blocks` blocks, in any order and any number at once, so blocks never wait
// for each other:
//
//     blocks:   [ 0 ] [ 1 ] [ 2 ] [ 3 ] ...      block.index() of block.count()
//                 |
//     threads:  0 1 2 3 ... 255                  block.thread() of block.threads(), which share memory and meet in sync()
//
// On a GPU that is a grid of CTAs (device_block.cuh). On the CPU it is a loop over blocks of one
// thread each, to be stepped through; and in the tests several threads a block and several blocks
// at once, for ThreadSanitizer to watch (emulated.hpp). So a kernel must be right for every number
// of threads: it says `for (i = block.thread(); i < n; i += block.threads())`, and never "thread
// 17".
//
// THE RULE OF SYNC: what one thread wrote another may read only after a sync() between the two; and
// all threads of a block come to the same sync()s, so none stands under a condition that only some
// threads fulfil. sum() and max() are such meetings too.
//
// Why constexpr: nvcc lets a kernel call constexpr functions of the host, so that no function needs
// a mark of its own.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "autograd/tensor/bf16.hpp"

namespace ringside::autograd::cuda {

template <class B>
concept Block = requires(B& block, float x) {
  { block.thread() } -> std::same_as<int>;
  { block.threads() } -> std::same_as<int>;
  { block.index() } -> std::same_as<std::int64_t>;
  { block.count() } -> std::same_as<std::int64_t>;
  block.sync();
  {
    block.sum(x)
    }
    -> std::same_as<float>;  // over the block's threads; all get it, and the same bits on every run
  { block.max(x) } -> std::same_as<float>;  //
  {
    block.shared()
    } -> std::same_as<std::byte*>;  // shared_bytes() of it, on 16 bytes; what it holds at first is
                                    // anything
  { B::exp(x) } -> std::same_as<float>;
  { B::log(x) } -> std::same_as<float>;
  { B::sqrt(x) } -> std::same_as<float>;
};

// ---- Sixteen bytes at a time: what a thread loads and stores in one instruction ----

template <class S>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(S);
  S at[size];
};

// Whether rows of n numbers that begin at these addresses can be read in packs.
template <class S, class... More>
constexpr bool in_packs(std::int64_t n, const S* first, const More*... more) {
  const auto fits = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % sizeof(Pack<S>) == 0;
  };
  return n % Pack<S>::size == 0 && fits(first) && (fits(more) && ...);
}

template <class S>
constexpr Pack<S> load(const S* from) {
  return *reinterpret_cast<const Pack<S>*>(from);
}
// As one number: of a struct of eight the compiler for GPUs may make eight stores.
using Sixteen [[gnu::may_alias]] = unsigned __int128;
template <class S>
constexpr void store(S* into, const Pack<S>& pack) {
  *reinterpret_cast<Sixteen*>(into) = std::bit_cast<unsigned __int128>(pack);
}

// Of two types the one of which a pack holds more: a loop over its packs loads and stores whole
// packs of both.
template <class S, class T>
using Narrower = std::conditional_t<(sizeof(T) < sizeof(S)), T, S>;

// The threads of a block share out 0..n-1. With `packs` (in_packs: each thread a pack at a time)
// body(i, width) is called with the first index of a pack and its size as a type, so that a loop
// over it is unrolled; otherwise for every single number, of width 1.
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

// for_each over begin..end-1: in packs as far as they go, if the addresses are on packs (as `begin`
// must be then), and the rest one by one.
template <class S, Block B, class Body>
constexpr void for_each_from(B& block, std::int64_t begin, std::int64_t end, bool packs,
                             const Body& body) {
  const std::int64_t whole = packs ? (end - begin) / Pack<S>::size * Pack<S>::size : 0;
  for_each<S>(block, whole, true, [&](std::int64_t i, auto width) { body(begin + i, width); });
  for_each<S>(block, end - begin - whole, false,
              [&](std::int64_t i, auto width) { body(begin + whole + i, width); });
}

// `width` neighbouring numbers, widened to fp32, and back: in packs where the width is a whole
// number of them.
template <int width>
struct Lanes {
  float at[width];
};
template <int width, class S>
constexpr Lanes<width> widened(const S* from) {
  constexpr int size = width % Pack<S>::size == 0 ? Pack<S>::size : 1;
  Lanes<width> lanes{};
  for (int first = 0; first < width; first += size) {
    if constexpr (size > 1) {
      const Pack<S> pack = load(from + first);
      for (int k = 0; k < size; ++k) lanes.at[first + k] = static_cast<float>(pack.at[k]);
    } else {
      lanes.at[first] = static_cast<float>(from[first]);
    }
  }
  return lanes;
}
template <int width, class S>
constexpr void narrow_into(S* into, const Lanes<width>& lanes) {
  constexpr int size = width % Pack<S>::size == 0 ? Pack<S>::size : 1;
  for (int first = 0; first < width; first += size) {
    if constexpr (size > 1) {
      Pack<S> pack{};
      for (int k = 0; k < size; ++k) pack.at[k] = S(lanes.at[first + k]);
      store(into + first, pack);
    } else {
      into[first] = S(lanes.at[first]);
    }
  }
}

}  // namespace ringside::autograd::cuda
