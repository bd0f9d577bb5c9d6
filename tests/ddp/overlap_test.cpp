// Overlap, proved by the order of events: a layer's collectives start before backward enters the
// layer below. And which gradients share a bucket.
#include "ddp/overlap.hpp"
#include "ddp/bucketed.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/toy_nets.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

// Runs backward, and returns how many collectives had started when it entered layers 0, 1 and 2.
template <class Strategy>
std::vector<int> launched_at_each_layer(DeepNet& net, const Strategy& strategy) {
  std::vector<int> launched(net.layers.size(), -1);
  for (std::size_t i = 0; i < net.layers.size(); ++i)
    net.layers[i]->register_forward_hook([&, i](const Tensor& y) {
      y.register_hook([&, i](const Tensor&) { launched[i] = strategy.launched(); });
    });
  backward(sum(net.forward(DeepNet::ones(4))));
  return launched;
}

std::vector<NamedTensor> parameters_of_bytes(std::initializer_list<std::int64_t> sizes) {
  std::vector<NamedTensor> parameters;
  for (const auto size : sizes)
    parameters.push_back({fmt::format("p{}", parameters.size()), Tensor::zeros({size / 4})});
  return parameters;
}

// "p1@0 p0@25 | ...": the parameters of each bucket, and where they begin.
std::string to_text(const std::vector<ddp::Bucket>& buckets) {
  std::string text;
  for (const ddp::Bucket& bucket : buckets) {
    text += text.empty() ? "" : " | ";
    for (const ddp::BucketEntry& entry : bucket.entries)
      text += fmt::format("{}{}@{}", &entry == &bucket.entries.front() ? "" : " ",
                          entry.parameter.name, entry.begin);
  }
  return text;
}

}  // namespace

TEST_CASE("overlap starts a layer's all-reduces before backward enters the layer below") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      DeepNet net;
      ddp::Overlap parallel(net, group);
      const std::vector<int> launched = launched_at_each_layer(net, parallel);
      require(launched == std::vector<int>{4, 2, 0},
              "started when backward entered layers 0 to 2: {}", launched);
      require(parallel.launched() == 6, "started by the end of backward: {}", parallel.launched());
      parallel.finish();
      require(parallel.launched() == 0, "{} are still under way after finish()",
              parallel.launched());
    });
}

TEST_CASE("bucketed starts a layer's all-reduce before backward enters the layer below") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      DeepNet net;
      ddp::Bucketed parallel(net, group, DeepNet::layer_mb);
      require(parallel.buckets().size() == 3, "{} buckets", parallel.buckets().size());
      const std::vector<int> launched = launched_at_each_layer(net, parallel);
      require(launched == std::vector<int>{2, 1, 0},
              "started when backward entered layers 0 to 2: {}", launched);
      require(parallel.launched() == 3, "started by the end of backward: {}", parallel.launched());
      parallel.finish();
    });
}

TEST_CASE("buckets are filled in reverse order and the first is small") {
  const auto p = parameters_of_bytes({400, 400, 400, 100, 100});
  CHECK(to_text(ddp::plan_buckets(p, 800, 200)) == "p4@0 p3@25 | p2@0 p1@100 | p0@0");
  CHECK(to_text(ddp::plan_buckets(p, 800, 800)) == "p4@0 p3@25 p2@50 | p1@0 p0@100");
  CHECK(to_text(ddp::plan_buckets(p, 1, 1)) == "p4@0 | p3@0 | p2@0 | p1@0 | p0@0");
  CHECK(to_text(ddp::plan_buckets(p, 1u << 30, 1u << 30)) == "p4@0 p3@25 p2@50 p1@150 p0@250");
}

TEST_CASE("a parameter larger than the limit gets its own bucket") {
  const auto p = parameters_of_bytes({100, 4000, 100, 100});
  CHECK(to_text(ddp::plan_buckets(p, 400, 100)) == "p3@0 | p2@0 | p1@0 | p0@0");
  CHECK(to_text(ddp::plan_buckets(p, 400, 400)) == "p3@0 p2@25 | p1@0 | p0@0");
}

TEST_CASE("a bucket holds one dtype") {
  const std::vector<NamedTensor> p = {{"a", Tensor::zeros({4})},
                                      {"b", Tensor::zeros({4}, DType::fp64)},
                                      {"c", Tensor::zeros({4}, DType::fp64)}};
  CHECK(to_text(ddp::plan_buckets(p, 1000, 1000)) == "c@0 b@4 | a@0");
}

TEST_CASE("gradients are views of their buckets, also after they were dropped") {
  on_every_transport(2, [](ProcessGroup& group) {
    DeepNet net;
    ddp::Bucketed parallel(net, group);
    std::shared_ptr<autograd::Storage> storage;
    for (const bool drop : {false, false, true, true}) {
      net.zero_grad(drop);
      backward(sum(net.forward(DeepNet::ones(4))));
      parallel.finish();
      if (!storage) storage = net.layers[0]->weight.grad().storage();
      for (const auto& [name, parameter] : net.named_parameters())
        require(parameter.grad().storage() == storage, "the gradient of {} is not in the bucket",
                name);
    }
  });
}
