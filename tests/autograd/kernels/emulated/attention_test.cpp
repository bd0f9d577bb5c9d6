#include "autograd/kernels/shared/attention_backward.hpp"

#include <cstring>

#include <doctest/doctest.h>

#include "tests/autograd/kernels/emulated/attention_problem.hpp"

using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

template <class S>
void check(const AttentionCase& c, Emulation emulation) {
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  CAPTURE(c.head_size);
  CAPTURE(emulation.threads);
  AttentionProblem<S> problem(c);
  problem.template forward<EmulatedBlock>(emulation);
  problem.template compute_delta<EmulatedBlock>(emulation);
  problem.template keys_backward<EmulatedBlock>(emulation);
  problem.template queries_backward<EmulatedBlock>(emulation);
  const auto expected = problem.expected();
  CHECK(difference(problem.y, expected.y) < tolerance<S>);
  CHECK(difference(problem.log_sums, expected.log_sums) < 1e-5);
  CHECK(difference(problem.delta, expected.delta) < tolerance<S>);
  CHECK(difference(problem.dq, expected.dq) < tolerance<S>);
  CHECK(difference(problem.dk, expected.dk) < tolerance<S>);
  CHECK(difference(problem.dv, expected.dv) < tolerance<S>);
}

// The diagonal in different places of a tile, heads that share keys, more keys than queries, and
// heads of many sizes.
const AttentionCase cases[] = {
    {1, 1, 1, 1, 1, 1},          {2, 2, 1, 5, 5, 3},          {1, 4, 2, 64, 64, 8},
    {1, 1, 1, 65, 65, 16},       {1, 2, 1, 63, 130, 32},      {1, 1, 1, 3, 200, 40},
    {2, 2, 2, 70, 97, 33, true}, {1, 3, 1, 33, 33, 64, true}, {1, 1, 1, 66, 66, 80},
    {1, 2, 2, 40, 129, 128},     {1, 1, 1, 1, 64, 128, true}, {2, 1, 1, 129, 129, 48},
    {1, 2, 1, 200, 300, 64},
};

}  // namespace

TEST_CASE("cuda attention: forward and backward in fp32 equal the definition") {
  for (const AttentionCase& c : cases) check<float>(c, {});
}

TEST_CASE("cuda attention: forward and backward in bf16 equal the definition") {
  for (const AttentionCase& c : cases) check<Bf16>(c, {});
}

TEST_CASE("cuda attention: several threads per block and several blocks at once") {
  for (const AttentionCase& c :
       {AttentionCase{1, 2, 1, 65, 70, 8}, AttentionCase{1, 1, 1, 33, 130, 40, true}}) {
    check<float>(c, {3, 2});
    check<Bf16>(c, {4, 2});
  }
}

TEST_CASE("cuda attention: the same bits on every run and for any number of threads") {
  const AttentionCase c{1, 4, 2, 70, 90, 24};
  AttentionProblem<Bf16> one(c), other(c);
  for (auto* const problem : {&one, &other}) {
    const Emulation emulation = problem == &one ? Emulation{} : Emulation{4, 2};
    problem->forward<EmulatedBlock>(emulation);
    problem->compute_delta<EmulatedBlock>(emulation);
    problem->keys_backward<EmulatedBlock>(emulation);
    problem->queries_backward<EmulatedBlock>(emulation);
  }
  const auto same = [](const std::vector<Bf16>& a, const std::vector<Bf16>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(Bf16)) == 0;
  };
  CHECK(same(one.y, other.y));
  CHECK(same(one.dq, other.dq));
  CHECK(same(one.dk, other.dk));
  CHECK(same(one.dv, other.dv));
}

TEST_CASE("cuda attention: scores that would overflow exp give finite results") {
  AttentionProblem<float> problem({1, 1, 1, 80, 80, 16});
  for (float& x : problem.q) x *= 200;
  problem.forward<EmulatedBlock>({});
  for (const float y : problem.y) CHECK(std::abs(y) <= 1);
  for (const float log_sum : problem.log_sums) CHECK(std::isfinite(log_sum));
}

TEST_CASE("cuda attention: elements between the rows are not written") {
  const AttentionCase c{1, 2, 1, 33, 40, 5, true};
  AttentionProblem<float> problem(c);
  for (auto* const written : {&problem.y, &problem.dq, &problem.dk, &problem.dv})
    std::fill(written->begin(), written->end(), 77.0f);
  problem.forward<EmulatedBlock>({});
  problem.compute_delta<EmulatedBlock>({});
  problem.keys_backward<EmulatedBlock>({});
  problem.queries_backward<EmulatedBlock>({});
  for (auto* const written : {&problem.y, &problem.dq, &problem.dk, &problem.dv})
    for (std::size_t i = 0; i < written->size(); ++i)
      CHECK(((*written)[i] == 77.0f) == (i % 8 >= 5));
}

TEST_CASE("cuda attention: shared memory fits a GPU of the A100 generation") {
  constexpr std::size_t most = 163 * 1024;
  for (const int head_size : {32, 64, 128})
    with_padded_head_size(head_size, [&](auto d) {
      CHECK(AttentionForward<float, d.value>{}.shared_bytes() <= most);
      CHECK(AttentionKeysBackward<float, d.value>{}.shared_bytes() <= most);
      CHECK(AttentionQueriesBackward<float, d.value>{}.shared_bytes() <= most);
    });
}
