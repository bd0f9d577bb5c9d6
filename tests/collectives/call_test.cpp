// Calls in words, labels, and which calls share a numbering.
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/call_mismatch.hpp"

#include <set>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "collectives/transport/message_header.hpp"
#include "collectives/transport/shm/announcement.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

Call make_call(Collective collective, DataType type, std::uint64_t count) {
  Call call;
  call.collective = collective;
  call.algorithm = number_of(find_algorithm(collective));
  call.type = type;
  call.count = count;
  call.root = 2;
  call.peer = 1;
  return call;
}

}  // namespace

TEST_CASE("headers that differ in one field have different fingerprints") {
  MessageHeader header;
  header.call = make_call(Collective::all_reduce, DataType::fp32, 1000);
  const std::uint64_t fingerprint = fingerprint_of(header);
  CHECK(fingerprint_of(MessageHeader(header)) == fingerprint);
  std::set<std::uint64_t> seen{fingerprint};
  const auto add = [&](auto change) {
    MessageHeader changed = header;
    change(changed);
    CHECK(changed != header);
    CHECK(seen.insert(fingerprint_of(changed)).second);
  };
  for (int bit = 0; bit < 32; ++bit) {
    add([&](MessageHeader& h) { h.job ^= 1u << bit; });
    add([&](MessageHeader& h) { h.call.root ^= 1 << bit; });
    add([&](MessageHeader& h) { h.call.peer ^= 1 << bit; });
    add([&](MessageHeader& h) { h.step ^= 1u << bit; });
    add([&](MessageHeader& h) { h.slice ^= 1u << bit; });
  }
  for (int bit = 0; bit < 64; ++bit) {
    add([&](MessageHeader& h) { h.sequence ^= std::uint64_t{1} << bit; });
    add([&](MessageHeader& h) { h.call.count ^= std::uint64_t{1} << bit; });
    add([&](MessageHeader& h) { h.bytes ^= std::uint64_t{1} << bit; });
    // Two differences at the same place of two words must not cancel out.
    add([&](MessageHeader& h) {
      h.sequence ^= std::uint64_t{1} << bit;
      h.call.count ^= std::uint64_t{1} << bit;
    });
  }
  add([](MessageHeader& h) { h.call.reduce = ReduceOp::max; });
  add([](MessageHeader& h) { h.call.type = DataType::int32; });
  add([](MessageHeader& h) { h.call.algorithm = 3; });
  add([](MessageHeader& h) { h.call.collective = Collective::barrier; });
  for (std::size_t i = 0; i < sizeof(Label::text); ++i)
    add([&](MessageHeader& h) { h.call.label.text[i] ^= 1; });
}

TEST_CASE("calls in words") {
  CHECK(describe(make_call(Collective::gather, DataType::fp16, 8)) ==
        "gather of 8 fp16 to rank 2 (linear)");
  CHECK(describe(make_call(Collective::scatter, DataType::bf16, 8)) ==
        "scatter of 8 bf16 from rank 2 (linear)");
  CHECK(describe(make_call(Collective::all_to_all, DataType::uint8, 8)) ==
        "all_to_all of 8 uint8 (pairwise)");
  Call call = make_call(Collective::barrier, DataType::int64, 8);
  call.collective = Collective::point_to_point;
  call.label = Label("activations");
  CHECK(describe(call) == "send/recv of 8 int64 from rank 2 to rank 1 for activations");
}

TEST_CASE("a label that is too long keeps its end") {
  CHECK(Label("model.layers.11.self_attention.query_projection.weight").view() ==
        "....self_attention.query_projection.weight");
  CHECK(Label("norm.weight").view() == "norm.weight");
}

TEST_CASE("sends are not numbered with collectives, nor with the sends of another pair") {
  const Call reduction = make_call(Collective::all_reduce, DataType::fp32, 8);
  Call send = reduction, other;
  send.collective = Collective::point_to_point;
  other = send;
  other.root = 0;
  CHECK(numbered_alike(reduction, make_call(Collective::barrier, DataType::fp32, 0)));
  CHECK_FALSE(numbered_alike(reduction, send));
  CHECK_FALSE(numbered_alike(send, other));
  CHECK(numbered_alike(send, send));
}
