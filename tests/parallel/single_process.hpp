// The test that every parallel method must pass: after each step, every parameter and every
// gradient equals that of a single process with the whole batch.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "ddp/replicate.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/toy_nets.hpp"
#include "tests/sample.hpp"
#include "tests/text.hpp"

namespace ringside::tests {

using Tensors = std::map<std::string, Tensor>;  // by name
using History = std::vector<Tensors>;           // [epoch]

// What a method offers to these tests, for methods that keep whole tensors on every rank. The
// stages of zero/ offer the same functions, but show tensors on rank 0 only.
struct WholeTensors {
  explicit WholeTensors(Module& its_net) : net(its_net) {}
  std::unique_ptr<Optimizer> make_optimizer(std::vector<ParameterGroup> groups,
                                            const MakeOptimizer& make) {
    return make(std::move(groups));
  }
  template <class See>
  void visit_parameters(const See& see) const {
    for (const NamedTensor& each : net.named_parameters()) see(each);
  }
  template <class See>
  void visit_gradients(const See& see) const {
    for (const auto& [name, parameter] : net.named_parameters())
      if (parameter.grad().defined()) see(NamedTensor{name, parameter.grad()});
  }
  Module& net;
};

struct SingleProcess : WholeTensors {
  using WholeTensors::WholeTensors;
  void finish() {}
};

// A class of ddp/ as such a method.
template <class Strategy>
struct Replicated : Strategy, WholeTensors {
  Replicated(Module& its_net, ProcessGroup& its_group)
      : Strategy(its_net, its_group), WholeTensors(its_net) {}
};

// Copies of the parameters, and of the gradients as "gradient of NAME".
template <class Method>
Tensors state_of(const Method& method) {
  Tensors state;
  method.visit_parameters(
      [&](const NamedTensor& each) { state[each.name] = each.tensor.detach().clone(); });
  method.visit_gradients(
      [&](const NamedTensor& each) { state["gradient of " + each.name] = each.tensor.clone(); });
  return state;
}

// Throws Error with the first difference. Buffers, too, must be those of the single process.
template <class T>
void must_be_equal(const Tensors& seen, const Tensors& expected, double tolerance) {
  for (const auto& [name, tensor] : seen)
    require(expected.contains(name), "there is a tensor {}, which should not exist", name);
  for (const auto& [name, tensor] : expected) {
    const auto found = seen.find(name);
    require(found != seen.end(), "there is no {}", name);
    require(found->second.shape() == tensor.shape(), "{} has shape {} instead of {}", name,
            to_string(found->second.shape()), to_string(tensor.shape()));
    const auto a = found->second.template values<T>(), b = tensor.template values<T>();
    for (std::size_t k = 0; k < a.size(); ++k)
      require(std::abs(a[k] - b[k]) <= tolerance, "{}[{}] is {} instead of {}", name, k, a[k],
              b[k]);
  }
}

// Trains for some epochs on rows first .. first + rows, and returns the state after each step.
template <class T, class Method>
History train(Net& net, Method& method, std::int64_t first, std::int64_t rows,
              const MakeOptimizer& make) {
  constexpr int epochs = 10;
  // Gradients that live in buckets may be dropped or set to zero: takes turns.
  constexpr bool has_buckets = requires {
    method.buckets();
  };
  const auto optimizer = method.make_optimizer({{ddp::trained_parameters(net), 0.01, 0}}, make);
  History history;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    backward(loss_of_rows<T>(net, first, rows));
    method.finish();
    optimizer->step();
    history.push_back(state_of(method));
    for (const auto& [name, buffer] : net.named_buffers()) history.back()[name] = buffer.clone();
    optimizer->zero_grad(!has_buckets || epoch % 2 == 0);
  }
  return history;
}

// The worlds of the test that runs.
inline testing::Sample worlds_to_train;

// Worlds of 2, 3 and 4 ranks over every transport. Each rank starts with other numbers, so the
// method must copy those of rank 0, and trains on other rows.
template <class T, class Method>
void agrees_with_single_process(const MakeNet& make, const MakeOptimizer& make_optimizer,
                                double tolerance) {
  for (const int size : {2, 3, 4}) {
    if (!worlds_to_train.takes()) continue;
    CAPTURE(size);
    const std::int64_t batch = 100 / size * size, share = batch / size;
    const auto alone = make(0, dtype_of<T>());
    SingleProcess single(*alone);
    const History expected = train<T>(*alone, single, 0, batch, make_optimizer);
    on_every_transport(size, [&](ProcessGroup& group) {
      const auto net = make(static_cast<std::uint64_t>(group.rank()), dtype_of<T>());
      Method method(*net, group);
      const History seen = train<T>(*net, method, group.rank() * share, share, make_optimizer);
      if (group.rank() > 0 && !std::is_base_of_v<WholeTensors, Method>) return;
      for (std::size_t epoch = 0; epoch < seen.size(); ++epoch)
        must_be_equal<T>(seen[epoch], expected[epoch], tolerance);
    });
  }
}

// Every net above that maps 10 to 5 columns, with SGD, in fp32 and fp64.
template <class Method>
void agrees_for_all_nets() {
  const MakeNet nets[] = {make_net<ToyNet>, make_net<TiedNet>, make_net<FrozenAndUnusedNet>,
                          make_net<SometimesNet>};
  for (const MakeNet& make : nets) {
    agrees_with_single_process<float, Method>(make, make_sgd, 1e-5);
    agrees_with_single_process<double, Method>(make, make_sgd, 1e-12);
  }
}

// Runs `body` over one transport after the other, and calls `check` with the text of every rank's
// exception, "" if there is none: [rank].
inline void outcomes_on_every_transport(
    int size, const Body& body, const std::function<void(const std::vector<std::string>&)>& check) {
  const auto catching = [&](std::vector<std::string>& outcomes) {
    return [&](ProcessGroup& group) {
      try {
        body(group);
      } catch (const std::exception& error) {
        outcomes[static_cast<std::size_t>(group.rank())] = error.what();
        throw;
      }
    };
  };
  {
    INFO("over threads");
    std::vector<std::string> outcomes(static_cast<std::size_t>(size));
    try {
      collectives::run_threads(size, catching(outcomes));
    } catch (const std::exception&) {
    }
    check(outcomes);
  }
  {
    INFO("over shm");
    check(run_shm(size, body));
  }
  INFO("over tcp");
  check(run_tcp(size, body));
}

// Rank 0 lacks the gradients of a and b, rank 1 those of a and c, other ranks that of a. Every rank
// must fail, and ranks 0 and 1 must name what they lack. (With more than two ranks one of them may
// still be in an earlier call when the others fail.)
template <class Method>
void different_missing_gradients_are_named() {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    outcomes_on_every_transport(
        size,
        [](ProcessGroup& group) {
          const int rank = group.rank();
          BiasNet net({false, rank != 0, rank != 1});
          Method method(net, group);
          backward(mse_loss(net.forward(rows_of<float>(0, 0, 4, 5)), rows_of<float>(1, 0, 4, 5)));
          method.finish();
          group.barrier();
        },
        [size](const std::vector<std::string>& outcomes) {
          for (const std::string& text : outcomes) {
            CAPTURE(text);
            CHECK(contains(text, "the ranks disagree"));
          }
          CAPTURE(outcomes[0]);
          CAPTURE(outcomes[1]);
          const bool first = contains(outcomes[0], "b.bias");
          const bool second = contains(outcomes[1], "c.bias");
          CHECK((size == 2 ? first && second : first || second));
        });
  }
}

// A method is destroyed by an exception between backward and finish(). Rank 0 is early, so its
// calls are under way then.
template <class Method>
void destructor_waits(ProcessGroup& group) {
  ToyNet net(0, DType::fp32);
  try {
    const Method method(net, group);
    if (group.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    backward(loss_of_rows<float>(net, 0, 4));
    fail("the loss is not finite");
  } catch (const Error&) {
  }
  const auto ended = group.times().calls;
  group.barrier();  // behind all calls that are under way
  const auto under_way = group.times().calls - ended - 1;
  require(under_way == 0, "{} calls under way use memory that is freed", under_way);
}

}  // namespace ringside::tests
