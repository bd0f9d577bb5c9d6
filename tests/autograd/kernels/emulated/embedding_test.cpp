#include "autograd/kernels/shared/embedding.hpp"

#include <doctest/doctest.h>

#include "tests/autograd/kernels/emulated/emulations.hpp"

using namespace ringside::autograd;
using namespace ringside::autograd::cuda;
using namespace ringside::tests;

namespace {

// Runs of ids 0, 1, ... with these lengths; the tokens are shuffled.
template <class S>
void check(const std::vector<std::int64_t>& runs, std::int64_t n, std::int64_t blocks,
           Emulation emulation) {
  std::vector<std::int32_t> ids, of;
  for (std::size_t id = 0; id < runs.size(); ++id)
    ids.insert(ids.end(), static_cast<std::size_t>(runs[id]), static_cast<std::int32_t>(id));
  const std::size_t tokens = ids.size();
  for (std::size_t i = 0; i < tokens; ++i)
    of.push_back(static_cast<std::int32_t>((i * 7 + 3) % tokens));
  const auto dy = numbers<S>(static_cast<std::int64_t>(tokens) * n, 1);
  const std::size_t elements = runs.size() * static_cast<std::size_t>(n);
  std::vector<double> expected(elements, 0);
  std::vector<S> dw(elements, S(0.0f));
  for (std::size_t i = 0; i < tokens; ++i)
    for (std::size_t c = 0; c < static_cast<std::size_t>(n); ++c)
      expected[static_cast<std::size_t>(ids[i] * n) + c] +=
          static_cast<double>(float(dy[static_cast<std::size_t>(of[i] * n) + c]));
  const SortedTokens sorted{ids.data(), of.data(), static_cast<std::int64_t>(tokens)};
  std::vector<float> partials(static_cast<std::size_t>(2 * sorted.stretches() * n), 77.0f);
  const bool packs = fits_packs(n, dy.data(), dw.data());
  launch_emulated(EmbeddingBackward<S>{sorted, dy.data(), dw.data(), partials.data(), n, packs},
                  blocks, emulation);
  launch_emulated(EmbeddingPartialSums<S>{sorted, partials.data(), dw.data(), n, packs}, blocks,
                  emulation);
  CHECK(difference(dw, expected) < tolerance<S>);
}

}  // namespace

TEST_CASE("cuda embedding: runs shorter and longer than a stretch, and across the ends of some") {
  for (const Emulation emulation : emulations)
    for (const std::vector<std::int64_t>& runs :
         std::vector<std::vector<std::int64_t>>{{1},
                                                {1, 2, 3},
                                                {32},
                                                {33},
                                                {32, 32, 1},
                                                {5, 100, 7, 0, 40},
                                                {31, 64, 33, 128, 9},
                                                {300}})
      for (const std::int64_t n : {3, 8}) {
        CAPTURE(runs.size());
        CAPTURE(runs[0]);
        CAPTURE(emulation.threads);
        // 7 has no common factor with these numbers of tokens, so every token comes once.
        check<float>(runs, n, 3, emulation);
        check<Bf16>(runs, n, 3, emulation);
      }
}
