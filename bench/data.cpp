#include "bench/data.hpp"

#include <array>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/with_element.hpp"

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
  if (call.type == DataType::boolean) return static_cast<std::int64_t>(bits % 2);
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
    if (call.reduce == ReduceOp::bit_and) result &= x;
    if (call.reduce == ReduceOp::bit_or) result |= x;
    if (call.reduce == ReduceOp::bit_xor) result ^= x;
  }
  return call.reduce == ReduceOp::avg ? result / ranks : result;
}

// What an element of type T is computed in.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

void put_as(DataType type, std::byte* at, std::int64_t value) {
  if (type == DataType::boolean) value = value != 0;
  collectives::with_element(type, [&]<class T>(T element) {
    element = T(static_cast<Wide<T>>(value));
    std::memcpy(at, &element, sizeof element);
  });
}

double value_at(DataType type, const std::byte* at) {
  double value = 0;
  collectives::with_element(type, [&]<class T>(T element) {
    std::memcpy(&element, at, sizeof element);
    value = static_cast<double>(static_cast<Wide<T>>(element));
  });
  return value;
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

// A piece of a buffer: `count` elements of the data of `source`, from element `at`.
struct Piece {
  int source = 0;
  std::uint64_t at = 0, count = 0;
};

// What a rank contributes.
Piece input_of(const Call& call, int rank, const Chunks& blocks) {
  if (call.collective == Collective::barrier || call.collective == Collective::broadcast) return {};
  if (call.collective == Collective::all_gather || call.collective == Collective::gather)
    return {rank, blocks.begin(rank), blocks.size(rank)};
  return {rank, 0, call.count};
}

std::uint64_t output_count(const Call& call, int rank, const Chunks& blocks) {
  if (call.collective == Collective::barrier) return 0;
  if (call.collective == Collective::reduce_scatter || call.collective == Collective::scatter)
    return blocks.size(rank);
  return call.count;
}

// What must be in the output at the end, piece after piece.
std::vector<Piece> result_of(const Call& call, int rank, const Chunks& blocks) {
  std::vector<Piece> of_each_rank;
  for (int r = 0; r < blocks.chunks(); ++r) {
    const int block = call.collective == Collective::all_to_all ? rank : r;
    of_each_rank.push_back({r, blocks.begin(block), blocks.size(r)});
  }
  switch (call.collective) {
    case Collective::all_reduce:
      return {{of_all_ranks, 0, call.count}};
    case Collective::reduce:
      if (rank != call.root) return {};
      return {{of_all_ranks, 0, call.count}};
    case Collective::reduce_scatter:
      return {{of_all_ranks, blocks.begin(rank), blocks.size(rank)}};
    case Collective::broadcast:
      return {{call.root, 0, call.count}};
    case Collective::scatter:
      return {{call.root, blocks.begin(rank), blocks.size(rank)}};
    case Collective::gather:
      return rank == call.root ? of_each_rank : std::vector<Piece>{};
    case Collective::all_gather:
    case Collective::all_to_all:
      return of_each_rank;
    default:
      return {};  // barrier
  }
}

void fill(std::byte* into, const Call& call, int ranks, const Piece& piece) {
  const auto bytes = pattern(call, piece.source, ranks);
  const std::size_t element = size_of(call.type);
  for_each_stretch(
      piece.count, piece.at, [&](std::uint64_t done, std::uint64_t length, std::uint64_t position) {
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

BenchData::BenchData(const Call& call, int rank, int ranks, bool in_place)
    : call_(call), rank_(rank), ranks_(ranks), in_place_(in_place) {
  const Chunks blocks = Chunks::even(call.count, ranks);
  const Piece contribution = input_of(call, rank, blocks);
  const std::size_t element = size_of(call.type);
  const std::uint64_t outputs = output_count(call, rank, blocks);
  if (in_place) {
    if (contribution.count < call.count) input_at_ = blocks.begin(rank) * element;
    if (outputs < call.count) output_at_ = blocks.begin(rank) * element;
  } else {
    input_bytes_ = contribution.count * element;
    input_ = allocate(input_bytes_);
    fill(input_.get(), call, ranks, contribution);
  }
  memory_bytes_ = (in_place ? call.count : outputs) * element;
  memory_ = allocate(memory_bytes_);
  renew();
}

void BenchData::renew() {
  std::memset(memory(), 0x5a, memory_bytes_);
  if (in_place_)
    fill(memory() + input_at_, call_, ranks_,
         input_of(call_, rank_, Chunks::even(call_.count, ranks_)));
  if (call_.collective == Collective::broadcast && rank_ == call_.root)
    fill(memory(), call_, ranks_, {rank_, 0, call_.count});
}

template <class Body>
void BenchData::for_each_wrong(Body body) const {
  const std::size_t element = size_of(call_.type);
  std::uint64_t begin = 0;  // of the piece
  for (const Piece& piece : result_of(call_, rank_, Chunks::even(call_.count, ranks_))) {
    const auto expected = pattern(call_, piece.source, ranks_);
    for_each_stretch(piece.count, piece.at,
                     [&](std::uint64_t done, std::uint64_t length, std::uint64_t position) {
                       const std::byte* seen = memory() + output_at_ + (begin + done) * element;
                       const std::byte* wanted = expected.data() + position * element;
                       if (std::memcmp(seen, wanted, length * element) == 0) return;
                       for (std::uint64_t i = 0; i < length;
                            ++i, seen += element, wanted += element)
                         if (std::memcmp(seen, wanted, element) != 0)
                           body(begin + done + i, seen, wanted);
                     });
    begin += piece.count;
  }
}

std::uint64_t BenchData::wrong() const {
  std::uint64_t wrong = 0;
  for_each_wrong([&](std::uint64_t, const std::byte*, const std::byte*) { ++wrong; });
  return wrong;
}

std::string BenchData::first_wrong() const {
  std::string first;
  for_each_wrong([&](std::uint64_t index, const std::byte* seen, const std::byte* expected) {
    if (first.empty())
      first = fmt::format("element {} is {:g}, expected {:g}", index, value_at(call_.type, seen),
                          value_at(call_.type, expected));
  });
  return first;
}

}  // namespace ringside::cli
