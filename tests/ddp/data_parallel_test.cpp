// The four versions of data parallelism against a single process; their calls and bytes.
#include "ddp/bucketed.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "tests/parallel/single_process.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

TEST_CASE("naive data parallel has the gradients and parameters of a single process") {
  agrees_for_all_nets<Replicated<ddp::Naive>>();
}

TEST_CASE("flat data parallel has the gradients and parameters of a single process") {
  agrees_for_all_nets<Replicated<ddp::Flat>>();
}

TEST_CASE("overlapped data parallel has the gradients and parameters of a single process") {
  agrees_for_all_nets<Replicated<ddp::Overlap>>();
}

TEST_CASE("bucketed data parallel has the gradients and parameters of a single process") {
  agrees_for_all_nets<Replicated<ddp::Bucketed>>();
}

TEST_CASE("buckets of one parameter, and of a few, give the same results") {
  struct OneParameter : ddp::Bucketed {
    OneParameter(const Module& net, ProcessGroup& group) : Bucketed(net, group, 1e-6) {}
  };
  struct Few : ddp::Bucketed {
    Few(const Module& net, ProcessGroup& group) : Bucketed(net, group, 0.5e-3) {}
  };
  agrees_for_all_nets<Replicated<OneParameter>>();
  agrees_for_all_nets<Replicated<Few>>();
}

// A ring all-reduce of n bytes takes 2 (p-1) messages from each rank. All ranks together send
// 2 (p-1) n bytes.
TEST_CASE("each version makes its number of calls, and all send the same bytes") {
  collectives::GroupOptions ring;
  ring.algorithms = collectives::AlgorithmSelection("all_reduce=ring");
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [](ProcessGroup& group) {
          ToyNet net(0, DType::fp32);
          const auto must_send = [&](auto&& strategy, std::uint64_t calls) {
            net.zero_grad();
            const auto before = group.traffic();
            backward(loss_of_rows<float>(net, 0, 4));
            strategy.finish();
            const auto after = group.traffic();
            const std::uint64_t messages = after.messages_sent - before.messages_sent;
            const auto p = static_cast<std::uint64_t>(group.size());
            require(messages == calls * 2 * (p - 1), "{} messages instead of those of {} calls",
                    messages, calls);
            auto bytes =
                static_cast<std::int64_t>(after.payload_bytes_sent - before.payload_bytes_sent);
            group.all_reduce(std::span(&bytes, 1));
            require(bytes == static_cast<std::int64_t>(2 * (p - 1) * 4 * (200 + 20 + 100 + 5)),
                    "all ranks together sent {} bytes", bytes);
          };
          must_send(ddp::Naive(net, group), 4);
          must_send(ddp::Flat(net, group), 1);
          must_send(ddp::Overlap(net, group), 4);
          // Two buckets: fc2 and the bias of fc1; the weight of fc1.
          must_send(ddp::Bucketed(net, group, 0.5e-3), 2);
        },
        ring);
}
