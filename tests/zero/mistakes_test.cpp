// Mistakes in the use of a stage are errors that name the parameter.
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

// On rank 1 the bias b gets no gradient.
template <class Stage>
void names_the_gradient_that_is_missing() {
  const auto outcomes = run_tcp(3, [](ProcessGroup& group) {
    BiasNet net({true, group.rank() != 1, true});
    Stage stage(net, group);
    backward(mse_loss(net.forward(rows_of<float>(0, 0, 4, 5)), rows_of<float>(1, 0, 4, 5)));
    stage.finish();
    group.barrier();
  });
  int named = 0;
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, "the ranks disagree"));
    named += contains(text, "for bucket 0 without 1 gradient (") && contains(text, "for bucket 0,");
  }
  CHECK(named >= 1);
  CHECK(contains(outcomes[1], "On rank 1 backward gave no gradient to b.bias"));
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every stage names the gradient that is missing on one rank") {
  names_the_gradient_that_is_missing<zero::Zero1>();
  names_the_gradient_that_is_missing<zero::Zero2>();
  names_the_gradient_that_is_missing<zero::Zero3>();
}

TEST_CASE("in every stage ranks that lack different gradients do not agree") {
  different_missing_gradients_are_named<WithOwners<ddp::Bucketed>>();
  different_missing_gradients_are_named<zero::Zero1>();
  different_missing_gradients_are_named<zero::Zero2>();
  different_missing_gradients_are_named<zero::Zero3>();
}

TEST_CASE("a second backward without finish() is refused by name in every stage") {
  const auto check = [](ToyNet& net, auto&& stage) {
    backward(loss_of_rows<float>(net, 0, 4));
    const std::string text = error_of([&] { backward(loss_of_rows<float>(net, 0, 4)); });
    require(text.starts_with("the gradient of fc2.weight is complete a second time since the last "
                             "finish()"),
            "the message is: {}", text);
    stage.finish();
  };
  for (const int size : {2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      ToyNet one(0, DType::fp32), two(0, DType::fp32), three(0, DType::fp32);
      check(one, zero::Zero1(one, group));
      check(two, zero::Zero2(two, group));
      check(three, zero::Zero3(three, group));
    });
}

TEST_CASE("a stage that is destroyed waits for its calls under way") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      destructor_waits<zero::Zero1>(group);
      destructor_waits<zero::Zero2>(group);
      destructor_waits<zero::Zero3>(group);
    });
}

TEST_CASE("an optimizer over a parameter that is not sharded says so") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    FrozenAndUnusedNet net(0, DType::fp32);
    zero::Zero1 stage(net, group);
    const std::string text = error_of([&] {
      (void)stage.make_optimizer({{net.named_parameters(), 0.1, 0}}, make_sgd);
    });
    require(text ==
                "the optimizer is given 'fc1.bias', which is not among the sharded parameters: it "
                "was frozen when the model was sharded, or it belongs to another model",
            "the message is: {}", text);
  });
}

TEST_CASE("in stage 3 a parameter cannot be read while its unit is sharded") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    ToyNet net(0, DType::fp32);
    zero::Zero3 stage(net, group);
    const std::string text = error_of([&] { (void)net.fc1.weight.values<float>(); });
    require(contains(text, "the memory of this tensor of shape [20, 10] is dropped"),
            "the message is: {}", text);
  });
}
