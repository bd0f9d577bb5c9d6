// Mistakes that would make replicas diverge must be errors that name the parameter.
#include "ddp/bucketed.hpp"

#include <algorithm>

#include "ddp/flat.hpp"
#include "ddp/gradient_errors.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "tests/parallel/single_process.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

// On rank 1 the bias of fc2 gets no gradient, because forward does not use it there. At least one
// rank's error must name what it calls, `one`, and what another rank calls, `other`.
template <class Strategy>
void names_the_gradient_that_is_missing(const char* one, const char* other) {
  const auto outcomes = run_tcp(3, [](ProcessGroup& group) {
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

template <class Strategy>
std::string error_of_second_backward(ProcessGroup& group) {
  ToyNet net(0, DType::fp32);
  Strategy strategy(net, group);
  backward(loss_of_rows<float>(net, 0, 4));
  std::string text;
  try {
    backward(loss_of_rows<float>(net, 0, 4));
  } catch (const Error& error) {
    text = error.what();
  }
  strategy.finish();

  // The second backward added nothing to what was being reduced.
  ToyNet once(0, DType::fp32);
  Strategy plain(once, group);
  backward(loss_of_rows<float>(once, 0, 4));
  plain.finish();
  const auto twice = net.named_parameters(), expected = once.named_parameters();
  for (std::size_t i = 0; i < twice.size(); ++i)
    require(std::ranges::equal(twice[i].tensor.grad().values<float>(),
                               expected[i].tensor.grad().values<float>()),
            "the second backward has changed the gradient of {}", twice[i].name);
  return text;
}

}  // namespace

TEST_CASE("a gradient that is missing on one rank is named") {
  names_the_gradient_that_is_missing<ddp::Naive>("for fc2.bias", "barrier");
  names_the_gradient_that_is_missing<ddp::Flat>("for flat buffer without 1 gradient (",
                                                "for flat buffer,");
  names_the_gradient_that_is_missing<ddp::Overlap>("for fc2.bias", "for fc1.");
  names_the_gradient_that_is_missing<ddp::Bucketed>("for bucket 0 without 1 gradient (",
                                                    "for bucket 0,");
  // The rank that lacks it says which one.
  names_the_gradient_that_is_missing<ddp::Flat>("On rank 1 backward gave no gradient to fc2.bias",
                                                "flat buffer");
  names_the_gradient_that_is_missing<ddp::Bucketed>(
      "On rank 1 backward gave no gradient to fc2.bias", "bucket 0");
}

// Labels that name only the first missing parameter would agree.
TEST_CASE("ranks that lack different gradients do not agree, even if the first one is the same") {
  different_missing_gradients_are_named<Replicated<ddp::Naive>>();
  different_missing_gradients_are_named<Replicated<ddp::Flat>>();
  different_missing_gradients_are_named<Replicated<ddp::Overlap>>();
  different_missing_gradients_are_named<Replicated<ddp::Bucketed>>();
}

TEST_CASE("labels of missing gradients depend on every name and fit into a message") {
  CHECK(ddp::label_without("bucket 0", {}) == "bucket 0");
  const auto label = [](const std::vector<std::string>& missing) {
    return ddp::label_without("bucket 0", missing);
  };
  CHECK(label({"a"}).starts_with("bucket 0 without 1 gradient ("));
  CHECK(label({"a", "b"}).starts_with("bucket 0 without 2 gradients ("));
  CHECK(label({"a", "b"}) == label({"a", "b"}));
  CHECK(label({"a", "b"}) != label({"a", "c"}));
  CHECK(label({"ab", "c"}) != label({"a", "bc"}));
  const std::string longest =
      ddp::label_without("bucket 999", std::vector<std::string>(999, "a.long.name"));
  CHECK(collectives::Label(longest).view() == longest);
}

// It would accumulate into a gradient that an all-reduce is using.
TEST_CASE("a second backward without finish() is refused by name") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      for (const std::string& text : {error_of_second_backward<ddp::Overlap>(group),
                                      error_of_second_backward<ddp::Bucketed>(group)})
        require(text ==
                    "the gradient of fc2.weight is complete a second time since the last finish(), "
                    "and its reduction may be under way: call finish() after every backward, or "
                    "no_sync() before all but the last",
                "the message is: {}", text);
    });
}

TEST_CASE("a method that is destroyed waits for its calls under way") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      destructor_waits<ddp::Overlap>(group);
      destructor_waits<ddp::Bucketed>(group);
    });
}

TEST_CASE("Overlap accepts a backward under no_sync() after finish()") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    ToyNet net(0, DType::fp32);
    ddp::Overlap parallel(net, group);
    for (int step = 0; step < 2; ++step) {
      for (int i = 0; i < 2; ++i) {
        const auto accumulate = parallel.no_sync();
        backward(loss_of_rows<float>(net, 0, 4));
      }
      backward(loss_of_rows<float>(net, 0, 4));
      parallel.finish();
    }
  });
}
