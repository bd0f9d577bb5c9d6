#include "autograd/kernels/shared/optimizer.hpp"

#include <doctest/doctest.h>

#include "autograd/kernels/shared/sums.hpp"
#include "autograd/optim/optimizer.hpp"
#include "tests/autograd/kernels/emulated/emulations.hpp"

using namespace ringside::autograd;
using namespace ringside::autograd::cuda;
using namespace ringside::tests;

namespace {

// Tensors of different lengths: more elements than one block takes, none, one; and one tensor whose
// memory is not aligned to 16 bytes.
constexpr std::int64_t lengths[] = {3 * elements_per_block + 5, 0, 1, 40, 1003};
constexpr std::size_t count = std::size(lengths), unaligned = 4;

template <class S>
struct Tensors {
  explicit Tensors(std::uint64_t seed) {
    for (std::size_t i = 0; i < count; ++i) memory[i] = numbers<S>(lengths[i] + 1, seed + i);
  }
  S* at(std::size_t i) { return memory[i].data() + (i == unaligned); }
  std::vector<S> memory[count];
};

// The update of optim/adamw.cpp, in fp64.
struct Reference {
  double p, m, v;
};
void adamw(Reference& x, double g, int t) {
  x.m = 0.9 * x.m + 0.1 * g;
  x.v = 0.95 * x.v + 0.05 * g * g;
  x.p = (1 - 0.01 * 0.1) * x.p -
        0.01 * (x.m / (1 - std::pow(0.9, t))) / (std::sqrt(x.v / (1 - std::pow(0.95, t))) + 1e-8);
}
AdamWRule::Factors adamw_factors(int t) {
  return {static_cast<float>(1 - 0.01 * 0.1), static_cast<float>(0.01 / (1 - std::pow(0.9, t))),
          static_cast<float>(1 / std::sqrt(1 - std::pow(0.95, t)))};
}

template <class Rule, class S, class G, class Factors, class Definition>
void check(Rule rule, const Factors& factors, const Definition& definition, Emulation emulation) {
  constexpr bool with_master = std::is_same_v<S, Bf16>;
  Tensors<float> values(1), m(20), v(30);
  Tensors<G> gradients(10);
  Tensors<S> rounded(40);
  for (auto* const state : {&m, &v})
    for (auto& all : state->memory) std::fill(all.begin(), all.end(), 0.0f);
  std::vector<Reference> expected[count];
  for (std::size_t i = 0; i < count; ++i)
    for (std::int64_t j = 0; j < lengths[i]; ++j)
      expected[i].push_back({static_cast<double>(values.at(i)[j]), 0, 0});
  for (int t = 1; t <= 3; ++t) {
    OptimizerUpdate<Rule, S, G> kernel{.table = {}, .rule = rule};
    for (std::size_t i = 0; i < count; ++i) {
      typename OptimizerUpdate<Rule, S, G>::Parameter parameter{};
      parameter.elements = lengths[i];
      parameter.values = values.at(i);
      if constexpr (with_master) parameter.stored = rounded.at(i);
      parameter.gradient = gradients.at(i);
      if (Rule::states > 0) parameter.state[0] = m.at(i);
      if constexpr (Rule::states > 1) parameter.state[1] = v.at(i);
      parameter.factors = factors(t);
      kernel.table.add(parameter);
      for (std::size_t j = 0; j < expected[i].size(); ++j)
        definition(expected[i][j], 0.5 * static_cast<double>(float(gradients.at(i)[j])), t);
    }
    CHECK(kernel.blocks() == 4 + 1 + 1 + 1);
    launch_emulated(kernel, kernel.blocks(), emulation);
  }
  double apart = 0, apart_rounded = 0;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < expected[i].size(); ++j) {
      apart = std::max(apart, std::abs(static_cast<double>(values.at(i)[j]) - expected[i][j].p));
      if constexpr (with_master)
        apart_rounded = std::max(
            apart_rounded,
            std::abs(static_cast<double>(float(rounded.at(i)[j]) - float(Bf16(values.at(i)[j])))));
    }
  CHECK(apart < 2e-6);
  CHECK(apart_rounded == 0);
  // Nothing was written outside of the tensors.
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t beside = i == unaligned ? 0 : static_cast<std::size_t>(lengths[i]);
    CHECK(values.memory[i][beside] == numbers<float>(lengths[i] + 1, 1 + i)[beside]);
    CHECK(m.memory[i][beside] == 0);
  }
}

}  // namespace

TEST_CASE("cuda AdamW: three steps of many parameters in one launch with and without masters") {
  const AdamWRule rule{0.9f, 0.95f, 1e-8f, 0.5f};
  for (const Emulation emulation : emulations) {
    check<AdamWRule, float, float>(rule, adamw_factors, adamw, emulation);
    check<AdamWRule, Bf16, Bf16>(rule, adamw_factors, adamw, emulation);
    check<AdamWRule, Bf16, float>(rule, adamw_factors, adamw, emulation);
  }
}

TEST_CASE("cuda SGD: without momentum and with it and with Nesterov's") {
  const auto factors = [](int) { return SgdRule::Factors{0.1f, 0.01f}; };
  for (const Emulation emulation : emulations) {
    check<SgdRule, float, float>(
        SgdRule{0.5f}, factors, [](Reference& x, double g, int) { x.p -= 0.1 * (g + 0.01 * x.p); },
        emulation);
    for (const bool nesterov : {false, true}) {
      const auto definition = [nesterov](Reference& x, double gradient, int) {
        const double g = gradient + 0.01 * x.p;
        x.m = 0.9 * x.m + g;
        x.p -= 0.1 * (nesterov ? g + 0.9 * x.m : x.m);
      };
      check<MomentumRule, float, float>(MomentumRule{0.9f, 0.5f, nesterov}, factors, definition,
                                        emulation);
      check<MomentumRule, Bf16, Bf16>(MomentumRule{0.9f, 0.5f, nesterov}, factors, definition,
                                      emulation);
    }
  }
}

TEST_CASE("cuda totals: squares of many tensors are summed in fp64, even if they overflow fp32") {
  for (const Emulation emulation : emulations) {
    Tensors<float> gradients(3);
    gradients.at(0)[7] = 1e25f;
    double expected = 0;
    SquareSums<float> kernel{};
    for (std::size_t i = 0; i < count; ++i) {
      SquareSums<float>::Entry entry{};
      entry.elements = lengths[i], entry.values = gradients.at(i);
      kernel.table.add(entry);
      for (std::int64_t j = 0; j < lengths[i]; ++j)
        expected +=
            static_cast<double>(gradients.at(i)[j]) * static_cast<double>(gradients.at(i)[j]);
    }
    std::vector<double> partials(static_cast<std::size_t>(kernel.blocks()));
    kernel.partials = partials.data();
    double total = 0;
    launch_emulated(kernel, kernel.blocks(), emulation);
    launch_emulated(Total<double, double>{partials.data(), kernel.blocks(), &total}, 1, emulation);
    CHECK(total == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("cuda tensor table: every element belongs to one block and a full table says so") {
  TensorTable<SquareSums<float>::Entry, 3> table{};
  const float number = 0;
  for (const std::int64_t length :
       {elements_per_block + 1, std::int64_t{1}, 2 * elements_per_block}) {
    CHECK(!table.full());
    SquareSums<float>::Entry entry{};
    entry.elements = length, entry.values = &number;
    table.add(entry);
  }
  CHECK(table.full());
  CHECK(table.blocks == 2 + 1 + 2);
  std::int64_t seen[3] = {};
  for (int block = 0; block < table.blocks; ++block) {
    const auto work = table.work_of(block);
    const auto which = static_cast<std::size_t>(&work.entry - table.at);
    CHECK(work.begin == seen[which]);
    seen[which] = work.end;
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(seen[i] == table.at[i].elements);
}
