// The ops of a divided vocabulary on a device equal the whole ones on the CPU.
#include "tests/autograd/divided_vocabulary.hpp"

#include "tests/autograd/device/against_cpu.hpp"

using namespace ringside;
using namespace ringside::tests;

TEST_CASE("device: a divided embedding equals the CPU's") {
  if (skipped()) return;
  for (const DType type : {DType::fp32, DType::bf16})
    for (int r = 0; r < 3; ++r) {
      const Rows part = rows_of_rank(16, 3, r);
      const Tensor ids = Tensor::from({0, 15, 6, 6, 5, 10, 11}, {7});
      check_against_cpu("embedding of a range",
                        [&](const auto& in) {
                          return embedding(ids, in[0], {part.first, 16});
                        },
                        {drawn({part.count, 8}, "w", type)});
    }
}

TEST_CASE("device: a divided cross-entropy equals the CPU's of the whole vocabulary") {
  if (skipped()) return;
  for (const DType type : {DType::fp32, DType::bf16})
    for (const std::int64_t rows : {0, 3}) {
      DividedLoss problem{.x = drawn({6, 8}, "x", type),
                          .w = drawn({25, 8}, "w", type),
                          .targets = Tensor::from({0, 24, 12, -100, 13, 7}, {6}),
                          .rows_at_once = rows};
      const RankLoss expected = problem.whole();
      problem.device = device_under_test();
      for (const int ranks : {2, 3}) {
        CAPTURE(ranks);
        const std::vector<RankLoss> seen = problem.divided(ranks);
        Tensor dx = Tensor::zeros(problem.x.shape());
        for (int r = 0; r < ranks; ++r) {
          const RankLoss& rank = seen[static_cast<std::size_t>(r)];
          const Rows part = rows_of_rank(25, ranks, r);
          CHECK(rank.loss.item() == seen[0].loss.item());
          CHECK(apart(rank.loss, expected.loss) <= tolerance_of(type));
          CHECK(rank.dx.device() == device_under_test());
          CHECK(apart(rank.dw, expected.dw.narrow(0, part.first, part.count)) <=
                tolerance_of(type));
          dx = dx + autograd::to_compute_dtype(rank.dx.to(Device::cpu));
        }
        CHECK(apart(dx, autograd::to_compute_dtype(expected.dx)) <= tolerance_of(type));
      }
    }
}
