// Collectives on tensors, and the same model on every rank.
#include "ddp/tensor_collectives.hpp"

#include "ddp/replicate.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/toy_nets.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

void must_hold(const Tensor& tensor, double expected) {
  for (const double seen : tensor.values<double>())
    require(seen == expected, "{} instead of {}", seen, expected);
}

Tensor filled(std::int64_t elements, double value) {
  return Tensor::full({elements}, value, DType::fp64);
}

}  // namespace

TEST_CASE("collectives on tensors compute what their names say") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      const double rank = group.rank(), mean = (group.size() - 1) / 2.0;
      Tensor tensor = filled(5, rank);
      ddp::broadcast(tensor, 1, group, "tensor");
      must_hold(tensor, 1);

      tensor.fill_(rank);
      ddp::all_reduce_mean(tensor, group, "tensor");
      must_hold(tensor, mean);

      tensor.fill_(rank);
      ddp::all_reduce_mean_async(tensor, group, "tensor").wait();
      must_hold(tensor, mean);

      const Tensor sum = filled(5, -1);
      tensor.fill_(rank);
      ddp::all_reduce_sum(tensor, sum, group, "tensor");
      must_hold(sum, mean * group.size());
      must_hold(tensor, rank);
      ddp::all_reduce_max(tensor, tensor, group, "tensor");
      must_hold(tensor, group.size() - 1);

      const Tensor whole = filled(3 * group.size(), rank), block = filled(3, -1);
      ddp::reduce_scatter_mean_async(whole, block, group, "blocks").wait();
      must_hold(block, mean);

      block.fill_(rank);
      ddp::all_gather_async(block, whole, group, "blocks").wait();
      for (int r = 0; r < group.size(); ++r) must_hold(whole.narrow(0, 3 * r, 3), r);

      whole.fill_(rank);
      ddp::reduce_scatter_sum(whole, block, group, "blocks");
      must_hold(block, mean * group.size());
      block.fill_(rank);
      ddp::all_gather(block, whole, group, "blocks");
      for (int r = 0; r < group.size(); ++r) must_hold(whole.narrow(0, 3 * r, 3), r);

      for (int r = 0; r < group.size(); ++r) whole.narrow(0, 3 * r, 3).fill_(10 * rank + r);
      const Tensor received = Tensor::empty(whole.shape(), DType::fp64);
      ddp::all_to_all(whole, received, group, "blocks");
      for (int r = 0; r < group.size(); ++r) must_hold(received.narrow(0, 3 * r, 3), 10 * r + rank);
    });
}

TEST_CASE("a collective refuses a tensor that is not contiguous") {
  collectives::run_threads(1, [](ProcessGroup& group) {
    const Tensor transposed = Tensor::zeros({2, 3}).transpose(0, 1);
    std::string text;
    try {
      ddp::all_reduce_mean(transposed, group, "the matrix");
    } catch (const Error& error) {
      text = error.what();
    }
    require(
        text ==
            "a collective needs a contiguous tensor, but the matrix of shape [3, 2] has strides "
            "[1, 3]: call contiguous() first",
        "the message is: {}", text);
  });
}

TEST_CASE("replicate copies the parameters and buffers of rank 0 to all ranks") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      FrozenAndUnusedNet net(static_cast<std::uint64_t>(group.rank()), DType::fp64),
          first(0, DType::fp64);
      ddp::replicate(net, group);
      const auto must_be_those_of = [](const std::vector<NamedTensor>& seen,
                                       const std::vector<NamedTensor>& expected) {
        for (std::size_t i = 0; i < expected.size(); ++i)
          require(std::ranges::equal(seen[i].tensor.values<double>(),
                                     expected[i].tensor.values<double>()),
                  "{} differs from that of rank 0", seen[i].name);
      };
      must_be_those_of(net.named_parameters(), first.named_parameters());
      must_be_those_of(net.named_buffers(), first.named_buffers());
    });
}

TEST_CASE("replicate names the tensor in which the models of the ranks differ") {
  const auto outcomes = run_tcp(2, [](ProcessGroup& group) {
    std::unique_ptr<Net> net = make_net<ToyNet>(0, DType::fp32);
    if (group.rank() == 1) net = make_net<TiedNet>(0, DType::fp32);
    ddp::replicate(*net, group);
  });
  CHECK(contains(outcomes[1], "broadcast of 100 fp32 from rank 0 (binomial) for first.weight"));
  CHECK(contains(outcomes[1], "broadcast of 200 fp32 from rank 0 (binomial) for fc1.weight"));
}
