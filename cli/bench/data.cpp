#include "cli/bench/data.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/chunks.hpp"

namespace ringside::cli {
namespace {

using collectives::Call;
using collectives::Chunks;
using collectives::Collective;
using collectives::DataType;
using collectives::ReduceOp;

constexpr std::uint64_t period = 509;  // a prime: no chunk begins where another one did
constexpr int of_all_ranks = -1;       // the source of a reduced result
constexpr std::align_val_t page{4096};

// Element i of rank r, i < period. It is small, so that the sum over 64 ranks is exact even in
// bf16. For a product it is 1 or, rarely, 2; for an average, a multiple of the number of ranks.
std::int64_t number(const Call& call, int rank, int ranks, std::uint64_t i) {
  const std::uint64_t bits = mix_bits(mix_bits(static_cast<std::uint64_t>(rank) + 1) + i);
  if (call.reduce == ReduceOp::product)
    return bits % static_cast<std::uint64_t>(2 * ranks) == 0 ? 2 : 1;
  return static_cast<std::int64_t>(bits % 5) * (call.reduce == ReduceOp::avg ? ranks : 1);
}

std::int64_t reduced(const Call& call, int ranks, std::uint64_t i) {
  std::int64_t result = number(call, 0, ranks, i);
  for (int r = 1; r < ranks; ++r) {
    const std::int64_t x = number(call, r, ranks, i);
    if (call.reduce == ReduceOp::sum || call.reduce == ReduceOp::avg) result += x;
    if (call.reduce == ReduceOp::product) result *= x;
    if (call.reduce == ReduceOp::min) result = std::min(result, x);
    if (call.reduce == ReduceOp::max) result = std::max(result, x);
  }
  return call.reduce == ReduceOp::avg ? result / ranks : result;
}

// An integer from 0 to 2048 as IEEE binary16.
std::uint16_t half_bits(std::int64_t value) {
  if (value == 0) return 0;
  const int exponent = std::bit_width(static_cast<std::uint64_t>(value)) - 1;
  const std::int64_t fraction =
      exponent <= 10 ? value << (10 - exponent) : value >> (exponent - 10);
  return static_cast<std::uint16_t>(((exponent + 15) << 10) | (fraction & 0x3ff));
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void put_as(DataType type, std::byte* at, std::int64_t value) {
  const std::string_view name = name_of(type);
  if (name == "fp32") return put(at, static_cast<float>(value));
  if (name == "fp64") return put(at, static_cast<double>(value));
  if (name == "fp16") return put(at, half_bits(value));
  if (name == "bf16")
    return put(at, static_cast<std::uint16_t>(
                       std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
  if (name == "int32") return put(at, static_cast<std::int32_t>(value));
  if (name == "int64") return put(at, value);
  if (name == "uint8") return put(at, static_cast<std::uint8_t>(value));
  fail("bench has no test data of the type {}", name);
}

// One period of the data of `source`, or of the reduction over all ranks, as bytes.
std::vector<std::byte> pattern(const Call& call, int source, int ranks) {
  const std::size_t element = size_of(call.type);
  std::vector<std::byte> bytes(period * element);
  for (std::uint64_t i = 0; i < period; ++i)
    put_as(call.type, bytes.data() + i * element,
           source == of_all_ranks ? reduced(call, ranks, i) : number(call, source, ranks, i));
  return bytes;
}

// Calls body(element, length, position in the pattern) for each stretch of `count` elements that
// lies within one period; the first of them is element `at` of the whole.
template <class Body>
void for_each_stretch(std::uint64_t count, std::uint64_t at, Body body) {
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t position = (at + done) % period,
                        length = std::min(period - position, count - done);
    body(done, length, position);
    done += length;
  }
}

// The part of the whole that a rank contributes: `count` elements from element `at`.
struct Share {
  std::uint64_t at = 0, count = 0;
};

Share input_share(const Call& call, int rank, const Chunks& blocks) {
  if (call.collective == Collective::barrier || call.collective == Collective::broadcast) return {};
  if (call.collective == Collective::all_gather || call.collective == Collective::gather)
    return {blocks.begin(rank), blocks.size(rank)};
  return {0, call.count};
}

std::uint64_t output_count(const Call& call, int rank, const Chunks& blocks) {
  if (call.collective == Collective::barrier) return 0;
  if (call.collective == Collective::reduce_scatter || call.collective == Collective::scatter)
    return blocks.size(rank);
  return call.count;
}

void fill(std::byte* into, const Call& call, int source, int ranks, Share share) {
  const auto bytes = pattern(call, source, ranks);
  const std::size_t element = size_of(call.type);
  for_each_stretch(
      share.count, share.at, [&](std::uint64_t done, std::uint64_t length, std::uint64_t position) {
        std::memcpy(into + done * element, bytes.data() + position * element, length * element);
      });
}

}  // namespace

void BenchData::Free::operator()(std::byte* bytes) const {
  ::operator delete(bytes, page);
}

BenchData::Buffer BenchData::allocate(std::size_t bytes) {
  return Buffer(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), page)));
}

BenchData::BenchData(const Call& call, int rank, int ranks)
    : call_(call), rank_(rank), ranks_(ranks) {
  const Chunks blocks = Chunks::even(call.count, ranks);
  const Share share = input_share(call, rank, blocks);
  input_bytes_ = share.count * size_of(call.type);
  input_ = allocate(input_bytes_);
  fill(input_.get(), call, rank, ranks, share);
  output_bytes_ = output_count(call, rank, blocks) * size_of(call.type);
  output_ = allocate(output_bytes_);
  std::memset(output_.get(), 0x5a, output_bytes_);
  if (call.collective == Collective::broadcast && rank == call.root)
    fill(output_.get(), call, rank, ranks, {0, call.count});
}

std::uint64_t BenchData::wrong() const {
  const Chunks blocks = Chunks::even(call_.count, ranks_);
  switch (call_.collective) {
    case Collective::all_reduce:
      return wrong_in(0, call_.count, of_all_ranks, 0);
    case Collective::reduce:
      return rank_ == call_.root ? wrong_in(0, call_.count, of_all_ranks, 0) : 0;
    case Collective::reduce_scatter:
      return wrong_in(0, blocks.size(rank_), of_all_ranks, blocks.begin(rank_));
    case Collective::broadcast:
      return wrong_in(0, call_.count, call_.root, 0);
    case Collective::scatter:
      return wrong_in(0, blocks.size(rank_), call_.root, blocks.begin(rank_));
    case Collective::gather:
      return rank_ == call_.root ? wrong_in_blocks(blocks, -1) : 0;
    case Collective::all_gather:
      return wrong_in_blocks(blocks, -1);
    case Collective::all_to_all:
      return wrong_in_blocks(blocks, rank_);
    default:
      return 0;  // barrier
  }
}

// Checks an output of one block from each rank: the rank's block `which`, or, if that is -1, the
// block with the rank's own number.
std::uint64_t BenchData::wrong_in_blocks(const Chunks& blocks, int which) const {
  std::uint64_t wrong = 0;
  for (int r = 0; r < ranks_; ++r)
    wrong += wrong_in(blocks.begin(r), blocks.size(r), r, blocks.begin(which < 0 ? r : which));
  return wrong;
}

// How many elements of the output from `begin` differ from the source's elements from `at`; `count`
// elements are compared.
std::uint64_t BenchData::wrong_in(std::uint64_t begin, std::uint64_t count, int source,
                                  std::uint64_t at) const {
  const auto expected = pattern(call_, source, ranks_);
  const std::size_t element = size_of(call_.type);
  std::uint64_t wrong = 0;
  for_each_stretch(count, at,
                   [&](std::uint64_t done, std::uint64_t length, std::uint64_t position) {
                     const std::byte* seen = output_.get() + (begin + done) * element;
                     const std::byte* wanted = expected.data() + position * element;
                     if (std::memcmp(seen, wanted, length * element) == 0) return;
                     for (std::uint64_t i = 0; i < length; ++i)
                       wrong += std::memcmp(seen + i * element, wanted + i * element, element) != 0;
                   });
  return wrong;
}

}  // namespace ringside::cli
