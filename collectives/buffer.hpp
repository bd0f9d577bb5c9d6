// Memory that a call reads (ConstBuffer) or writes (Buffer): its address, how many elements, which
// type. A std::span becomes one by itself; for memory without a type in C++ give all three.
#pragma once

#include <span>
#include <type_traits>

#include "collectives/data_type.hpp"

namespace ringside::collectives {

struct Buffer {
  Buffer(void* data, std::size_t elements, DataType element_type)
      : address(data), count(elements), type(element_type) {}
  template <Element T, std::size_t N>
  Buffer(std::span<T, N> span) : Buffer(span.data(), span.size(), data_type_of<T>()) {}

  void* address;
  std::size_t count;
  DataType type;
};

struct ConstBuffer {
  ConstBuffer(const void* data, std::size_t elements, DataType element_type)
      : address(data), count(elements), type(element_type) {}
  ConstBuffer(const Buffer& buffer) : ConstBuffer(buffer.address, buffer.count, buffer.type) {}
  template <class T, std::size_t N>
  requires Element<std::remove_const_t<T>> ConstBuffer(std::span<T, N> span)
      : ConstBuffer(span.data(), span.size(), data_type_of<std::remove_const_t<T>>()) {}

  const void* address;
  std::size_t count;
  DataType type;
};

// A buffer with a block for each rank, one after the other: counts[r] elements for rank r, which
// may be 0. Without counts all blocks are equal, as ProcessGroup::block_size() says. The counts
// must stay in place until the function that takes them returns, even where its call runs on.
//
//     group.all_gather(std::span(mine), {std::span(all), counts});
struct Blocks : Buffer {
  using Buffer::Buffer;
  Blocks(const Buffer& data, std::span<const std::size_t> block_counts = {})
      : Buffer(data), counts(block_counts) {}
  std::span<const std::size_t> counts;
};

struct ConstBlocks : ConstBuffer {
  using ConstBuffer::ConstBuffer;
  ConstBlocks(const ConstBuffer& data, std::span<const std::size_t> block_counts = {})
      : ConstBuffer(data), counts(block_counts) {}
  ConstBlocks(const Blocks& blocks) : ConstBlocks(ConstBuffer(blocks), blocks.counts) {}
  std::span<const std::size_t> counts;
};

}  // namespace ringside::collectives
