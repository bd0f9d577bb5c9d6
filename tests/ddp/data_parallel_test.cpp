// Data parallel against the single process: after every step, every gradient and every parameter is
// the same.
//
// SGD without momentum or clipping, and different data on every rank: an optimizer that divides by
// the gradient's size, as Adam does, would hide a wrong scale.
#include "ddp/bucketed.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/ddp/toy_nets.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;
using ringside::collectives::ProcessGroup;

namespace {

template <class T, class Strategy>
void agrees_with_single_process(const MakeNet& make, double tolerance) {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const std::int64_t batch = 100 / size * size, share = batch / size;
    const auto alone = make(0, dtype_of<T>());
    const History wanted = train<T>(*alone, 0, batch, [] {});
    tests::on_every_transport(size, [&](ProcessGroup& group) {
      // Every rank starts from numbers of its own: that all have rank 0's in the end is the form's
      // doing.
      const auto net = make(static_cast<std::uint64_t>(group.rank()), dtype_of<T>());
      Strategy strategy(*net, group);
      must_agree<T>(train<T>(*net, group.rank() * share, share, [&] { strategy.finish(); }), wanted,
                    tolerance);
    });
  }
}

template <class Strategy>
void all_nets_agree() {
  const MakeNet nets[] = {
      [](std::uint64_t seed, DType dtype) { return std::make_unique<ToyNet>(seed, dtype); },
      [](std::uint64_t seed, DType dtype) { return std::make_unique<TiedNet>(seed, dtype); },
      [](std::uint64_t seed, DType dtype) {
        return std::make_unique<FrozenAndUnusedNet>(seed, dtype);
      },
  };
  for (const MakeNet& make : nets) {
    agrees_with_single_process<float, Strategy>(make, 1e-5);
    agrees_with_single_process<double, Strategy>(make, 1e-12);
  }
}

// fc2's bias gets no gradient on rank 1, because there forward does not use it.
template <class Strategy>
void names_the_gradient_that_is_missing(const char* one, const char* other) {
  const auto outcomes = tests::run_tcp(3, [](ProcessGroup& group) {
    ToyNet net(0, DType::fp32);
    Strategy strategy(net, group);
    const Tensor x = rows_of<float>(0, 0, 4, 10), y = rows_of<float>(1, 0, 4, 5);
    const Tensor hidden = relu(net.fc1.forward(x));
    backward(
        mse_loss(group.rank() == 1 ? linear(hidden, net.fc2.weight) : net.fc2.forward(hidden), y));
    strategy.finish();
    group.barrier();
  });
  int named = 0;
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, "the ranks disagree"));
    named += contains(text, one) && contains(text, other);
  }
  CHECK(named >= 1);
}

}  // namespace

TEST_CASE("naive data parallel gives the single process's gradients and parameters") {
  all_nets_agree<ddp::Naive>();
}

TEST_CASE("flat data parallel gives the single process's gradients and parameters") {
  all_nets_agree<ddp::Flat>();
}

TEST_CASE("overlapped data parallel gives the single process's gradients and parameters") {
  all_nets_agree<ddp::Overlap>();
}

TEST_CASE("bucketed data parallel gives the single process's gradients and parameters") {
  all_nets_agree<ddp::Bucketed>();
}

TEST_CASE("buckets of one parameter and of a few give the same") {
  struct OneParameter : ddp::Bucketed {
    OneParameter(const Module& net, ProcessGroup& group) : Bucketed(net, group, 1e-6) {}
  };
  struct Few : ddp::Bucketed {
    Few(const Module& net, ProcessGroup& group) : Bucketed(net, group, 0.5e-3) {}
  };
  all_nets_agree<OneParameter>();
  all_nets_agree<Few>();
}

TEST_CASE("naive makes one call for each parameter and flat makes one") {
  collectives::GroupOptions ring;
  ring.algorithms = collectives::AlgorithmSelection("all_reduce=ring");
  for (const int size : {2, 3, 4})
    tests::on_every_transport(
        size,
        [](ProcessGroup& group) {
          const auto messages_of = [&](auto&& finish) {
            const auto before = group.traffic().messages_sent;
            finish();
            return group.traffic().messages_sent - before;
          };
          ToyNet net(0, DType::fp32);
          ddp::Naive naive(net, group);
          ddp::Flat flat(net, group);
          backward(mse_loss(net.forward(rows_of<float>(0, 0, 4, 10)), rows_of<float>(1, 0, 4, 5)));
          // A call round the ring is 2 (p-1) messages from each rank.
          const std::uint64_t call = 2 * static_cast<std::uint64_t>(group.size() - 1);
          const auto by_naive = messages_of([&] { naive.finish(); }),
                     by_flat = messages_of([&] { flat.finish(); });
          require(by_naive == 4 * call, "naive sent {} messages", by_naive);
          require(by_flat == call, "flat sent {} messages", by_flat);
        },
        ring);
}

// Round the ring, an all-reduce of n bytes sends 2 (p-1)/p n from each rank, where p divides n;
// from all ranks together always 2 (p-1) n.
TEST_CASE("every form makes its number of calls and sends as much as all others") {
  collectives::GroupOptions ring;
  ring.algorithms = collectives::AlgorithmSelection("all_reduce=ring");
  for (const int size : {2, 3, 4})
    tests::on_every_transport(
        size,
        [](ProcessGroup& group) {
          ToyNet net(0, DType::fp32);
          const auto must_send = [&](auto& strategy, std::uint64_t calls) {
            net.zero_grad();
            const auto before = group.traffic();
            backward(
                mse_loss(net.forward(rows_of<float>(0, 0, 4, 10)), rows_of<float>(1, 0, 4, 5)));
            strategy.finish();
            const auto after = group.traffic();
            const std::uint64_t messages = after.messages_sent - before.messages_sent,
                                p = static_cast<std::uint64_t>(group.size());
            require(messages == calls * 2 * (p - 1), "{} messages in place of {} calls", messages,
                    calls);
            std::int64_t bytes =
                static_cast<std::int64_t>(after.payload_bytes_sent - before.payload_bytes_sent);
            group.all_reduce(std::span(&bytes, 1));
            require(bytes == static_cast<std::int64_t>(2 * (p - 1) * 4 * (200 + 20 + 100 + 5)),
                    "all ranks together sent {} bytes", bytes);
          };
          {
            ddp::Naive strategy(net, group);
            must_send(strategy, 4);
          }
          {
            ddp::Flat strategy(net, group);
            must_send(strategy, 1);
          }
          {
            ddp::Overlap strategy(net, group);
            must_send(strategy, 4);
          }
          ddp::Bucketed strategy(net, group, 0.5e-3);  // fc2 and fc1's bias; fc1's weight
          must_send(strategy, 2);
        },
        ring);
}

TEST_CASE("a gradient that is missing on one rank is named") {
  names_the_gradient_that_is_missing<ddp::Naive>("for fc2.bias", "barrier");
  names_the_gradient_that_is_missing<ddp::Flat>("for all gradients without fc2.bias",
                                                "for all gradients,");
  names_the_gradient_that_is_missing<ddp::Overlap>("for fc2.bias", "for fc1.");
  names_the_gradient_that_is_missing<ddp::Bucketed>("for bucket 0 without fc2.bias",
                                                    "for bucket 0,");
}

TEST_CASE("models that differ between ranks are told apart by name when they are wrapped") {
  const auto outcomes = tests::run_tcp(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      ToyNet net(0, DType::fp32);
      ddp::Naive naive(net, group);
    } else {
      TiedNet net(0, DType::fp32);
      ddp::Naive naive(net, group);
    }
  });
  CHECK(contains(outcomes[1], "broadcast of 100 fp32 from rank 0 (binomial) for first.weight"));
  CHECK(contains(outcomes[1], "broadcast of 200 fp32 from rank 0 (binomial) for fc1.weight"));
}
