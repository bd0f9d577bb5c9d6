// Overlap, proved by the order of events and not by a stopwatch; and which gradients travel
// together.
#include <memory>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/overlap.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::autograd;
using ringside::collectives::ProcessGroup;

namespace {

// Three layers of 8 x 8; `seen` is called when backward is about to enter layer 1 or 2 (numbered
// from 0) on its way back.
struct Deep : Module {
  Deep() {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(std::make_unique<Linear>(8, 8, true, Init{1, std::to_string(i)}));
      register_module(std::to_string(i), *layers.back());
    }
  }
  Tensor forward(Tensor x, const std::function<void(int)>& seen = {}) const {
    for (int i = 0; i < 3; ++i) {
      x = relu(layers[static_cast<std::size_t>(i)]->forward(x));
      if (seen && i < 2) x.register_hook([seen, i](const Tensor&) { seen(i); });
    }
    return x;
  }
  std::vector<std::unique_ptr<Linear>> layers;
};

Tensor ones(std::int64_t rows) {
  return Tensor::full({rows, 8}, 1.0);
}

std::vector<NamedTensor> parameters_of_bytes(std::initializer_list<std::int64_t> sizes) {
  std::vector<NamedTensor> parameters;
  for (const auto size : sizes)
    parameters.push_back({fmt::format("p{}", parameters.size()), Tensor::zeros({size / 4})});
  return parameters;
}

std::string to_text(const std::vector<ddp::Bucket>& buckets) {
  std::string text;
  for (const auto& bucket : buckets) {
    text += text.empty() ? "" : " | ";
    for (const auto& entry : bucket.entries)
      text += fmt::format("{}{}@{}", &entry == &bucket.entries.front() ? "" : " ",
                          entry.parameter.name, entry.begin);
  }
  return text;
}

}  // namespace

TEST_CASE(
    "with overlap a layer's gradients are on their way before backward enters the layer below") {
  tests::on_every_transport(3, [](ProcessGroup& group) {
    Deep net;
    ddp::Overlap parallel(net, group);
    std::vector<int> launched(2, -1);
    backward(sum(net.forward(ones(4), [&](int layer) {
      launched[static_cast<std::size_t>(layer)] = parallel.launched();
    })));
    require(launched == std::vector<int>{4, 2}, "launched before layers 0 and 1: {}", launched);
    require(parallel.launched() == 6, "launched by the end of backward: {}", parallel.launched());
    parallel.finish();
    require(parallel.launched() == 0, "still under way after finish()");
  });
}

TEST_CASE("with buckets the same holds bucket by bucket") {
  tests::on_every_transport(3, [](ProcessGroup& group) {
    Deep net;
    ddp::Bucketed parallel(net, group, 288e-6);  // a layer is 8 * 8 + 8 floats
    require(parallel.buckets().size() == 3, "{} buckets", parallel.buckets().size());
    std::vector<int> launched(2, -1);
    backward(sum(net.forward(ones(4), [&](int layer) {
      launched[static_cast<std::size_t>(layer)] = parallel.launched();
    })));
    require(launched == std::vector<int>{2, 1}, "launched before layers 0 and 1: {}", launched);
    require(parallel.launched() == 3, "launched by the end of backward: {}", parallel.launched());
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

TEST_CASE("a parameter larger than a bucket has one to itself") {
  const auto p = parameters_of_bytes({100, 4000, 100, 100});
  CHECK(to_text(ddp::plan_buckets(p, 400, 100)) == "p3@0 | p2@0 | p1@0 | p0@0");
  CHECK(to_text(ddp::plan_buckets(p, 400, 400)) == "p3@0 p2@25 | p1@0 | p0@0");
}

TEST_CASE("a bucket holds one type") {
  std::vector<NamedTensor> p = {{"a", Tensor::zeros({4})},
                                {"b", Tensor::zeros({4}, DType::fp64)},
                                {"c", Tensor::zeros({4}, DType::fp64)}};
  CHECK(to_text(ddp::plan_buckets(p, 1000, 1000)) == "c@0 b@4 | a@0");
}

TEST_CASE("gradients are views into their buckets as long as they are not dropped") {
  tests::on_every_transport(2, [](ProcessGroup& group) {
    Deep net;
    ddp::Bucketed parallel(net, group);
    const auto storage = net.layers[0]->weight.grad().storage();
    for (const bool drop : {false, false, true, true}) {
      net.zero_grad(drop);
      backward(sum(net.forward(ones(4))));
      parallel.finish();
      for (const auto& [name, parameter] : net.named_parameters())
        require(parameter.grad().storage() == storage, "the gradient of {} is not in the bucket",
                name);
    }
  });
}

TEST_CASE("no_sync adds up gradients and the last backward averages the sum") {
  const auto check = []<class Strategy>(ProcessGroup& group, Strategy& parallel, Deep& net) {
    const auto micro_batch = [&](int i) {
      return Tensor::full({2, 8}, 1.0 + i + 10 * group.rank());
    };
    {
      const auto pause = parallel.no_sync();
      backward(sum(net.forward(micro_batch(0))));
      require(parallel.launched() == 0, "no_sync sent something");
    }
    backward(sum(net.forward(micro_batch(1))));
    parallel.finish();

    Deep alone;
    for (int r = 0; r < group.size(); ++r)
      for (int i = 0; i < 2; ++i)
        backward(
            scale(sum(alone.forward(Tensor::full({2, 8}, 1.0 + i + 10 * r))), 1.0 / group.size()));
    for (std::size_t i = 0; i < 3; ++i) {
      const auto seen = net.layers[i]->weight.grad().template values<float>(),
                 wanted = alone.layers[i]->weight.grad().template values<float>();
      for (std::size_t k = 0; k < seen.size(); ++k)
        require(std::abs(seen[k] - wanted[k]) < 1e-4, "layer {}: {} instead of {}", i, seen[k],
                wanted[k]);
    }
  };
  tests::on_every_transport(3, [&](ProcessGroup& group) {
    Deep one, other;
    ddp::Overlap overlap(one, group);
    check(group, overlap, one);
    ddp::Bucketed bucketed(other, group, 300e-6);
    check(group, bucketed, other);
  });
}
