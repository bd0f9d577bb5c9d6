// What travels between ranks: a header that says which call the bytes belong to, then the bytes.
//
// Every message carries the whole call, so that two ranks that disagree find it out from the first
// message that passes between them, with no extra round trip: in a ring, if every pair of
// neighbours agrees, all agree.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/data_type.hpp"

namespace ringside::collectives {

// What a caller calls the data, "model.norm.weight" say: it travels with the call, is compared like
// the rest of it, and is what an error names. Of a name that is too long the end is kept, which
// tells more than the beginning.
struct Label {
  char text[44] = {};
  Label() = default;
  Label(std::string_view name);
  std::string_view view() const { return {text, ::strnlen(text, sizeof text)}; }
  bool operator==(const Label&) const = default;
};

// One call of a collective, as every rank must make it; or of a send and its recv, as the two ranks
// must.
struct Call {
  Collective collective = Collective::barrier;
  std::uint8_t algorithm = 0;  // its place in all_algorithms()
  DataType type = DataType::fp32;
  ReduceOp reduce = ReduceOp::sum;
  std::int32_t root = 0;    // where the collective has one; of a point_to_point the rank that sends
  std::uint64_t count = 0;  // elements of the whole buffer: of reduce_scatter's and scatter's
                            // input, of all_gather's and gather's output
  std::int32_t peer = 0;    // of a point_to_point the rank that receives
  Label label;
  bool operator==(const Call&) const = default;
};

// What came from elsewhere, fit for a terminal: control characters become question marks.
std::string printable(std::string_view text);

// "all_reduce of 1000 fp32 (sum, ring)", and " for model.norm.weight" if it has a label
std::string describe(const Call& call);

struct MessageHeader {
  static constexpr std::uint32_t expected_magic = 0x53474e52;  // "RNGS" in memory
  std::uint32_t magic = expected_magic;
  std::uint32_t job = 0;  // hash of the job key: a message of another job is never taken for ours
  std::uint64_t sequence = 0;  // which call of the group, counted from 1; of a point_to_point,
                               // which from that rank to that other
  Call call;
  std::uint32_t step = 0;
  std::uint32_t slice = 0;
  std::uint64_t bytes = 0;  // of the payload that follows
  bool operator==(const MessageHeader&) const = default;
};
static_assert(sizeof(Call) == 64 && sizeof(MessageHeader) == 96, "the layout is the wire format");

// Whether a number means the same for both calls: all ranks count their collectives, but each pair
// of ranks what it sends and receives.
bool numbered_alike(const Call& a, const Call& b);

// Throws Error, with both calls in its text, unless what rank `peer` does as call number `sequence`
// is what rank `self` does.
void check_call(std::uint64_t sequence, const Call& ours, const Call& theirs, int self, int peer);

// The ranks are in different calls: which is wrong, and may be but the consequence of an earlier
// call that they did not make alike.
class OutOfStep : public Error {
 public:
  using Error::Error;
};

// Throws Error, with both calls in its text (OutOfStep where their numbers differ), unless the
// message `seen` from rank `peer` is the one that rank `self` waits for.
void check_message(const MessageHeader& expected, const MessageHeader& seen, int self, int peer);

}  // namespace ringside::collectives
