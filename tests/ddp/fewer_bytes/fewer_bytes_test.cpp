// Data parallelism that sends fewer bytes: exact where it is exact, nothing lost where it is not,
// and the bytes of the formulas.
#include <cmath>

#include "autograd/optim/sgd.hpp"
#include "ddp/fewer_bytes/bf16_wire.hpp"
#include "ddp/fewer_bytes/local_updates.hpp"
#include "ddp/fewer_bytes/power_sgd.hpp"
#include "tests/parallel/single_process.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

struct FullRank : ddp::PowerSGD {
  FullRank(const Module& net, ProcessGroup& group) : PowerSGD(net, group, 1000) {}
};

std::vector<double> numbers_of(const Tensor& tensor) {
  const auto values = tensor.values<double>();
  return {values.begin(), values.end()};
}

std::vector<double> all_parameters(const Module& net) {
  std::vector<double> all;
  for (const NamedTensor& each : net.named_parameters())
    for (const double number : numbers_of(each.tensor)) all.push_back(number);
  return all;
}

void must_be_near(const std::vector<double>& seen, const std::vector<double>& expected,
                  double tolerance, const std::string& what) {
  require(seen.size() == expected.size(), "{}: {} numbers instead of {}", what, seen.size(),
          expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i)
    require(std::abs(seen[i] - expected[i]) <= tolerance, "{}: number {} is {} instead of {}", what,
            i, seen[i], expected[i]);
}

// Steps of SGD on rows of this rank; each rank takes other rows in every step.
template <class AfterUpdate>
void take_steps(Net& net, ProcessGroup& group, int steps, const AfterUpdate& after_update) {
  SGD sgd({{ddp::trained_parameters(net), 0.05, 0}});
  for (int step = 0; step < steps; ++step) {
    net.zero_grad();
    backward(loss_of_rows<double>(net, (step * group.size() + group.rank()) * 4 % 96, 4));
    sgd.step();
    after_update();
  }
}

// The sum over steps of what a method makes of the gradients, and of the exact means. Parameters do
// not change, and the rows do, so a rounding that is forgotten shows.
template <class Method>
void sums_of_steps(Method& method, ToyNet& net, ProcessGroup& group, int steps,
                   std::map<std::string, std::vector<double>>& applied,
                   std::map<std::string, std::vector<double>>& exact) {
  const auto add = [](std::vector<double>& sum, const std::vector<double>& more) {
    sum.resize(more.size());
    for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
  };
  for (int step = 0; step < steps; ++step) {
    net.zero_grad();
    backward(loss_of_rows<double>(net, (step * group.size() + group.rank()) * 4 % 96, 4));
    for (const auto& [name, parameter] : net.named_parameters()) {
      std::vector<double> mean = numbers_of(parameter.grad());
      group.all_reduce(std::span(mean), collectives::ReduceOp::avg);
      add(exact[name], mean);
    }
    method.finish();
    for (const auto& [name, parameter] : net.named_parameters())
      add(applied[name], numbers_of(parameter.grad()));
  }
}

std::uint64_t bytes_sent_by_all(ProcessGroup& group, const std::function<void()>& body) {
  const auto before = group.traffic().payload_bytes_sent;
  body();
  auto bytes = static_cast<std::int64_t>(group.traffic().payload_bytes_sent - before);
  group.all_reduce(std::span(&bytes, 1));
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace

TEST_CASE("PowerSGD of full rank has the gradients and parameters of a single process") {
  agrees_for_all_nets<Replicated<FullRank>>();
}

TEST_CASE("columns become orthonormal, and one that depends on others zero") {
  const Tensor p = Tensor::from({3.0, 3.0, 1.0, 4.0, 4.0, 1.0, 0.0, 0.0, 1.0}, {3, 3});
  CHECK(ddp::make_orthonormal(p) == std::vector<std::int64_t>{1});
  const auto at = numbers_of(p);
  CHECK(at[0] == doctest::Approx(0.6));
  CHECK(at[3] == doctest::Approx(0.8));
  for (const std::size_t row : {0, 1, 2}) CHECK(at[3 * row + 1] == 0);
  double squares = 0, along = 0;
  for (const std::size_t row : {0, 1, 2})
    squares += at[3 * row + 2] * at[3 * row + 2], along += at[3 * row] * at[3 * row + 2];
  CHECK(squares == doctest::Approx(1));
  CHECK(std::abs(along) < 1e-15);
}

TEST_CASE("what PowerSGD does not send in a step stays in the errors") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      ToyNet net(static_cast<std::uint64_t>(group.rank()), DType::fp64);
      ddp::PowerSGD method(net, group, 2);
      std::map<std::string, std::vector<double>> applied, exact;
      sums_of_steps(method, net, group, 12, applied, exact);
      double largest = 0;
      for (const auto& [name, error] : method.errors()) {
        std::vector<double> mean = numbers_of(error);
        group.all_reduce(std::span(mean), collectives::ReduceOp::avg);
        for (std::size_t i = 0; i < mean.size(); ++i) {
          applied[name][i] += mean[i];
          largest = std::max(largest, std::abs(mean[i]));
        }
      }
      require(largest > 1e-3, "rank 2 left no more than {}", largest);
      for (const auto& [name, sum] : exact) must_be_near(applied[name], sum, 1e-12, name);
    });
}

TEST_CASE("what rounding to bf16 takes from a gradient stays in the errors") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      ToyNet net(static_cast<std::uint64_t>(group.rank()), DType::fp64);
      ddp::Bf16Wire method(net, group);
      std::map<std::string, std::vector<double>> applied, exact;
      sums_of_steps(method, net, group, 12, applied, exact);
      std::vector<double> errors = numbers_of(method.error());
      group.all_reduce(std::span(errors), collectives::ReduceOp::avg);
      std::vector<double> of_owners(errors.size());
      group.all_gather(std::span(method.owner_error().values<double>()), std::span(of_owners));
      double largest = 0;
      for (const ddp::BucketEntry& entry : method.bucket().entries)
        for (std::int64_t i = 0; i < entry.parameter.tensor.elements(); ++i) {
          const auto at = static_cast<std::size_t>(entry.begin + i);
          applied[entry.parameter.name][static_cast<std::size_t>(i)] += errors[at] + of_owners[at];
          largest = std::max(largest, std::abs(errors[at]));
        }
      require(largest > 1e-6, "rounding left no more than {}", largest);
      for (const auto& [name, sum] : exact) must_be_near(applied[name], sum, 1e-12, name);
    });
}

TEST_CASE("local SGD with rounds of one step is data parallelism") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      ToyNet local(static_cast<std::uint64_t>(group.rank()), DType::fp64),
          together(static_cast<std::uint64_t>(group.rank()), DType::fp64);
      ddp::LocalUpdates one(local, group, 1);
      ddp::replicate(together, group);
      take_steps(local, group, 10, [&] { one.after_update(); });
      SGD sgd({{ddp::trained_parameters(together), 0.05, 0}});
      for (int step = 0; step < 10; ++step) {
        together.zero_grad();
        backward(loss_of_rows<double>(together, (step * group.size() + group.rank()) * 4 % 96, 4));
        for (const auto& [name, parameter] : together.named_parameters())
          group.all_reduce(parameter.grad().values<double>(), collectives::ReduceOp::avg);
        sgd.step();
      }
      must_be_near(all_parameters(local), all_parameters(together), 1e-12, "parameters");
    });
}

// Against the algorithm of the paper, written down once more over vectors.
TEST_CASE("DiLoCo takes Nesterov's step along the mean difference, and local SGD the mean") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      for (const ddp::OuterStep& outer : {ddp::OuterStep{}, ddp::OuterStep::diloco()}) {
        ToyNet net(static_cast<std::uint64_t>(group.rank()), DType::fp64),
            free(static_cast<std::uint64_t>(group.rank()), DType::fp64);
        ddp::LocalUpdates method(net, group, 3, outer);
        ddp::replicate(free, group);
        std::vector<double> theta = all_parameters(free), v(theta.size());
        int steps = 0;
        const auto round = [&] {
          if (++steps % 3 != 0) return;
          std::vector<double> mean = all_parameters(free);
          group.all_reduce(std::span(mean), collectives::ReduceOp::avg);
          std::size_t i = 0;
          for (const NamedTensor& each : free.named_parameters())
            for (double& number : each.tensor.values<double>()) {
              const double d = theta[i] - mean[i];
              v[i] = outer.momentum * v[i] + d;
              theta[i] -= outer.learning_rate * (d + outer.momentum * v[i]);
              number = theta[i++];
            }
        };
        take_steps(net, group, 7, [&] { method.after_update(); });
        take_steps(free, group, 7, round);
        must_be_near(all_parameters(net), all_parameters(free), 1e-12, "replica");
        // One step into the third round: the replicas differ, and their mean is shown.
        std::vector<double> mean = all_parameters(free), shown;
        group.all_reduce(std::span(mean), collectives::ReduceOp::avg);
        method.visit_mean(net, [&](const NamedTensor& each) {
          for (const double number : numbers_of(each.tensor)) shown.push_back(number);
        });
        must_be_near(shown, mean, 1e-12, "mean");
      }
    });
}

TEST_CASE("fewer bytes: what is sent is what the formulas say") {
  collectives::GroupOptions ring;
  ring.algorithms = collectives::AlgorithmSelection("all_reduce=ring,all_gather=ring");
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [](ProcessGroup& group) {
          const auto p = static_cast<std::uint64_t>(group.size());
          constexpr std::uint64_t numbers = 200 + 20 + 100 + 5;
          ToyNet net(0, DType::fp32);
          const auto must_send = [&](std::uint64_t expected, const std::function<void()>& finish) {
            net.zero_grad();
            backward(loss_of_rows<float>(net, 0, 4));
            const std::uint64_t bytes = bytes_sent_by_all(group, finish);
            require(bytes == expected, "all ranks together sent {} bytes instead of {}", bytes,
                    expected);
          };
          ddp::Bf16Wire wire(net, group);
          must_send(2 * (p - 1) * 2 * numbers, [&] { wire.finish(); });
          for (const int rank : {1, 2}) {
            ddp::PowerSGD power(net, group, rank);
            const auto r = static_cast<std::uint64_t>(rank);
            must_send(2 * (p - 1) * 4 * (r * (20 + 10) + r * (5 + 20) + 20 + 5),
                      [&] { power.finish(); });
            require(static_cast<std::uint64_t>(power.numbers_sent()) == r * 55 + 25,
                    "{} numbers instead of {}", power.numbers_sent(), r * 55 + 25);
          }
          ddp::LocalUpdates local(net, group, 5);
          must_send(2 * (p - 1) * 4 * numbers, [&] {
            for (int step = 0; step < 5; ++step) local.finish(), local.after_update();
          });
        },
        ring);
}

TEST_CASE("fewer bytes: what cannot be compressed is refused with a sentence") {
  collectives::run_threads(1, [](ProcessGroup& group) {
    const ToyNet net(0, DType::bf16), wide(0, DType::fp32);
    CHECK_THROWS_WITH_AS(ddp::Bf16Wire(net, group),
                         "bf16_wire compresses gradients of fp32 or fp64, but fc1.weight is bf16: "
                         "train with --dtype fp32, or choose flat or bucketed",
                         Error);
    CHECK_THROWS_WITH_AS(ddp::PowerSGD(wide, group, 0),
                         "PowerSGD needs factors of at least one column, not 0", Error);
    CHECK_THROWS_WITH_AS(ddp::LocalUpdates(wide, group, 0),
                         "a round of local training needs at least 1 step, not 0", Error);
  });
}
