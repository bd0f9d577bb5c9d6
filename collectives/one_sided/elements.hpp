// How a block divides, copies and adds elements, sixteen bytes at a time.
//
// MEMORY (protocol.hpp) moves and converts data here: load() and store() of an element or of 16
// bytes, widen(T) to fp32, and narrow<T>(float), which rounds. A peer may have written what load()
// reads since the block began, so load() must not use a cache that assumes constant memory
// (ld.global.nc on a GPU).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "collectives/data_type.hpp"
#include "collectives/one_sided/mailbox.hpp"

namespace ringside::collectives::one_sided {

// What a thread moves at once. A GPU loads or stores a whole Pack with one instruction.
template <Element T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

struct Range {
  std::size_t begin = 0, end = 0;
};

// Stripe number `part` of the `parts` stripes of `whole`. Stripes begin and end on multiples of a
// pack, counted from the start of the buffer; only the two ends of `whole` may lie inside a pack.
// If the packs do not divide evenly, the first stripes have one more.
template <Element T>
constexpr Range stripe(Range whole, int part, int parts) {
  constexpr std::size_t pack = Pack<T>::size;
  if (whole.begin >= whole.end) return {whole.begin, whole.begin};
  const std::size_t first = whole.begin / pack, packs = (whole.end + pack - 1) / pack - first;
  const auto p = static_cast<std::size_t>(part), n = static_cast<std::size_t>(parts);
  const std::size_t each = packs / n, longer = packs % n;
  const std::size_t from = first + p * each + (p < longer ? p : longer),
                    to = from + each + (p < longer ? 1 : 0);
  const std::size_t begin = from * pack, end = to * pack;
  return {begin < whole.begin ? whole.begin : (begin > whole.end ? whole.end : begin),
          end > whole.end ? whole.end : end};
}

// The part of `range` that can be moved in packs; if `packs` is false, its empty end.
template <Element T>
constexpr Range whole_packs(Range range, bool packs) {
  constexpr std::size_t pack = Pack<T>::size;
  const std::size_t first = (range.begin + pack - 1) / pack * pack, last = range.end / pack * pack;
  return packs && first < last ? Range{first, last} : Range{range.end, range.end};
}

// Calls body(Pack<T>{}, i) for each whole pack in `range`, i being its first element, and body(T{},
// i) for the elements before and after. The calls are divided among the team. The first argument
// only gives the width. If `packs` is false (a buffer is not aligned to 16 bytes), every call has
// width T.
template <Element T, class Team, class Body>
constexpr void for_each(const Team& team, Range range, bool packs, Body body) {
  constexpr std::size_t pack = Pack<T>::size;
  const auto [first, last] = whole_packs<T>(range, packs);
  const auto index = static_cast<std::size_t>(team.index()),
             count = static_cast<std::size_t>(team.count());
  for (std::size_t i = range.begin + index; i < first; i += count) body(T{}, i);
  for (std::size_t i = first + index * pack; i < last; i += count * pack) body(Pack<T>{}, i);
  for (std::size_t i = last + index; i < range.end; i += count) body(T{}, i);
}

// Pack i and `more` packs after it, `step` elements apart: all values before the first store. By
// recursion, so that a GPU keeps the values in registers.
template <int more, Element T, class Value, class Store>
constexpr void transform_packs(std::size_t i, std::size_t step, Value& value, Store& store) {
  const Pack<T> first = value(Pack<T>{}, i);
  if constexpr (more > 0) transform_packs<more - 1, T>(i + step, step, value, store);
  store(i, first);
}

// The same with store(i, value(width, i)) as the body, and `under_way` packs at a time: their loads
// begin before the first of them is stored, so that a thread waits for memory once for all of them.
template <int under_way, Element T, class Team, class Value, class Store>
constexpr void transform(const Team& team, Range range, bool packs, Value value, Store store) {
  constexpr std::size_t pack = Pack<T>::size;
  const auto [first, last] = whole_packs<T>(range, packs);
  const auto index = static_cast<std::size_t>(team.index()),
             count = static_cast<std::size_t>(team.count()), step = count * pack;
  std::size_t i = first + index * pack;
  for (; under_way > 1 && i + (under_way - 1) * step < last; i += under_way * step)
    transform_packs<under_way - 1, T>(i, step, value, store);
  for (; i < last; i += step) store(i, value(Pack<T>{}, i));
  for (i = range.begin + index; i < first; i += count) store(i, value(T{}, i));
  for (i = last + index; i < range.end; i += count) store(i, value(T{}, i));
}

// Of a copy, and of a sum, which loads a pack from each rank. Two sums of 16-bit elements would
// need more registers than a thread of a GPU has.
inline constexpr int copies_under_way = 8;
template <Element T>
inline constexpr int sums_under_way = sizeof(T) == 4 ? 2 : 1;

// Chunk number `chunk` of `count` elements, as reduce_scatter and all_gather promise it to their
// callers: if the chunks do not divide evenly, the first have one more element.
constexpr Range even_chunk(std::size_t count, int chunk, int chunks) {
  const auto c = static_cast<std::size_t>(chunk), n = static_cast<std::size_t>(chunks);
  const std::size_t each = count / n, longer = count % n;
  const std::size_t begin = c * each + (c < longer ? c : longer);
  return {begin, begin + each + (c < longer ? 1 : 0)};
}

template <class T>
constexpr bool on_16_bytes(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

template <class Memory, Element T, class Team>
constexpr void copy(const Team& team, T* into, const T* from, std::size_t count) {
  if (into == from) return;
  transform<copies_under_way, T>(
      team, {0, count}, on_16_bytes(into) && on_16_bytes(from),
      [&](const auto& width, std::size_t i) { return Memory::load(from + i, width); },
      [&](std::size_t i, const auto& value) { Memory::store(into + i, value); });
}

// A sum is computed in fp32, from rank 0 to the last. The order is the same on all ranks, so the
// bits are too.
template <Element T>
struct Sum {
  float at[Pack<T>::size] = {};
  template <class Memory>
  constexpr void add(const Pack<T>& pack) {
    for (int i = 0; i < Pack<T>::size; ++i) at[i] += Memory::widen(pack.at[i]);
  }
  template <class Memory>
  constexpr void add(const T& element) {
    at[0] += Memory::widen(element);
  }
  // The result in the width of the first argument, times `scale`.
  template <class Memory>
  constexpr Pack<T> as(const Pack<T>&, float scale) const {
    Pack<T> pack{};
    for (int i = 0; i < Pack<T>::size; ++i) pack.at[i] = Memory::template narrow<T>(at[i] * scale);
    return pack;
  }
  template <class Memory>
  constexpr T as(const T&, float scale) const {
    return Memory::template narrow<T>(at[0] * scale);
  }
};

// The sum of element, or pack, i of `count` buffers, times `scale`. All loads are under way before
// the first addition, from buffer number `first` on. The indices are constants, so that a GPU keeps
// the values in registers.
template <class Memory, class T, class Width>
constexpr Width sum_of(const T* const* buffers, int count, int first, std::size_t i,
                       const Width& width, float scale) {
  Width loaded[most_ranks] = {};
  for (int n = 0; n < most_ranks; ++n)
    if (n >= first && n < count) loaded[n] = Memory::load(buffers[n] + i, width);
  for (int n = 0; n < most_ranks; ++n)
    if (n < first) loaded[n] = Memory::load(buffers[n] + i, width);
  Sum<T> sum;
  for (int n = 0; n < most_ranks; ++n)
    if (n < count) sum.template add<Memory>(loaded[n]);
  return sum.template as<Memory>(width, scale);
}

// MEMORY on the CPU.
struct HostSide : HostMemory {
  static std::uint64_t nanoseconds() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }
  template <Element T>
  static constexpr float widen(const T& element) {
    return static_cast<float>(element);
  }
  template <Element T>
  static constexpr T narrow(float value) {
    return static_cast<T>(value);
  }
  template <class Width, class T>
  static constexpr Width load(const T* from, const Width&) {
    return *reinterpret_cast<const Width*>(from);
  }
  template <class Width, class T>
  static constexpr void store(T* into, const Width& value) {
    *reinterpret_cast<Width*>(into) = value;
  }
};

}  // namespace ringside::collectives::one_sided
