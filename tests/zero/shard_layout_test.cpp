// Every element of a parameter is in exactly one shard; shards are equal and start at a cache line.
#include "zero/shard_layout.hpp"

#include <doctest/doctest.h>

using namespace ringside;
using namespace ringside::autograd;
using zero::ShardLayout;

namespace {

std::vector<NamedTensor> parameters_of(std::initializer_list<std::int64_t> sizes, DType dtype) {
  std::vector<NamedTensor> all;
  for (const auto size : sizes)
    all.push_back({fmt::format("p{}", all.size()), Tensor::zeros({size}, dtype)});
  return all;
}

}  // namespace

TEST_CASE("the ranges of all ranks cover a parameter without gaps") {
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    for (const int ranks : {1, 2, 3, 4, 7, 64}) {
      const auto parameters = parameters_of({1, 100, 37, 1000, 16}, dtype);
      const auto cache_line = static_cast<std::int64_t>(64 / size_of(dtype));
      std::vector<ShardLayout> plans;
      for (int r = 0; r < ranks; ++r)
        plans.emplace_back(ddp::plan_buckets(parameters, 4000, 400), r, ranks);
      for (std::size_t b = 0; b < plans[0].buckets().size(); ++b) {
        const ddp::Bucket& bucket = plans[0].buckets()[b];
        CHECK(plans[0].shard_elements(b) % cache_line == 0);
        CHECK(plans[0].padded_elements(b) == plans[0].shard_elements(b) * ranks);
        CHECK(plans[0].padded_elements(b) >= bucket.elements);
        CHECK(plans[0].padded_elements(b) < bucket.elements + ranks * cache_line);
        const Tensor flat = Tensor::zeros({plans[0].padded_elements(b)}, dtype);
        for (std::size_t e = 0; e < bucket.entries.size(); ++e) {
          std::int64_t end = 0;
          for (int r = 0; r < ranks; ++r) {
            const auto range = plans[static_cast<std::size_t>(r)].range({b, e});
            const auto same = plans[0].range({b, e}, r);
            CHECK((range.begin == same.begin && range.count == same.count));
            if (range.count > 0) CHECK(range.begin == end);
            end += range.count;
            // A parameter's shard in flat memory is a view of its range.
            const Tensor shard = plans[static_cast<std::size_t>(r)].parameter_shard(
                plans[static_cast<std::size_t>(r)].shard_of(flat, b), {b, e});
            CHECK(shard.defined() == (range.count > 0));
            if (shard.defined()) CHECK(shard.offset() == bucket.entries[e].begin + range.begin);
          }
          CHECK(end == bucket.entries[e].parameter.tensor.elements());
        }
      }
    }
  }
}

TEST_CASE("a plan finds its own parameters only") {
  const auto parameters = parameters_of({10, 20}, DType::fp32);
  const ShardLayout plan(ddp::plan_buckets(parameters, 1000, 1000), 0, 2);
  CHECK(plan.find(parameters[0].tensor)->entry == 1);  // buckets are filled in reverse
  CHECK(plan.find(parameters[1].tensor)->entry == 0);
  CHECK_FALSE(plan.find(Tensor::zeros({10})));
  CHECK(plan.padded_bytes() == 4 * 32);
}
