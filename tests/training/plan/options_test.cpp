// The table of options: its rows, and fields as text.
#include "training/plan/options.hpp"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::training;

namespace {

Option row_of(Plan& plan, const std::string& flag) {
  for (const Option& row : options_of(plan))
    if (row.flag_name() == flag) return row;
  fail("there is no option {}", flag);
}

}  // namespace

TEST_CASE("no two options have a name or a key in common") {
  Plan plan;
  std::set<std::string> names, keys;
  for (const Option& row : options_of(plan)) {
    CAPTURE(row.name);
    CAPTURE(row.kept);
    if (!row.name.empty()) CHECK(names.insert(row.flag_name()).second);
    if (row.is_in_metadata()) CHECK(keys.insert(std::string(row.kept)).second);
    CHECK((row.name.empty() || !row.help.empty()));
  }
}

TEST_CASE("what get() writes set() reads back") {
  Plan from, to;
  from.config.d_model = 77;
  from.config.tied_head = true;
  from.dtype = autograd::DType::bf16;
  from.device = autograd::Device::emulated;
  from.init = "a folder";
  from.mesh.shape = parallel::MeshShape("pp=2,tp=2");
  from.mesh.context = {context_parallel::Exchange::ulysses,
                       context_parallel::TokenOrder::contiguous};
  from.options.learning_rate = 0.1 + 0.2;  // no short decimal
  from.options.optimizer = OptimizerKind::sgd;
  from.options.recompute = {4, 2};
  from.options.seed = ~std::uint64_t{0};
  from.trace_steps = {3, 5};
  const auto written = options_of(from), read = options_of(to);
  for (std::size_t i = 0; i < written.size(); ++i) {
    const std::string text = written[i].get();
    CAPTURE(written[i].name);
    if (text.empty()) continue;
    CHECK(read[i].set(text));
    CHECK(read[i].get() == text);
  }
  CHECK(to.config.d_model == 77);
  CHECK(to.config.tied_head);
  CHECK(to.dtype == autograd::DType::bf16);
  CHECK(to.mesh.shape == from.mesh.shape);
  CHECK(to.mesh.context == from.mesh.context);
  CHECK(to.options.learning_rate == from.options.learning_rate);
  CHECK(to.options.recompute == from.options.recompute);
  CHECK(to.options.seed == from.options.seed);
  CHECK(to.trace_steps == from.trace_steps);
}

TEST_CASE("set() refuses what is not a number of the field's type") {
  Plan plan;
  const Option steps = row_of(plan, "--steps"), rate = row_of(plan, "--lr"),
               seed = row_of(plan, "--seed"), threads = row_of(plan, "--threads");
  for (const char* text : {"", "three", "3 ", "1.5", "1e3", "99999999999999999999", "0x"})
    CHECK_FALSE(steps.set(text));
  CHECK_FALSE(threads.set("3000000000"));
  for (const char* text : {"", "fast", "0.1x", "1e"}) CHECK_FALSE(rate.set(text));
  CHECK(steps.set("-3"));
  CHECK(plan.options.steps == -3);
  CHECK(seed.set("0x10"));
  CHECK(plan.options.seed == 16);
  CHECK(rate.set("3e-4"));
  CHECK(plan.options.learning_rate == 3e-4);
}

TEST_CASE("a list keeps what was there, and ranks compare whether there is a path") {
  Plan plan;
  const Option data = row_of(plan, "--data"), save = row_of(plan, "--save");
  CHECK(data.set("a"));
  CHECK(data.set("b"));
  CHECK(plan.data == std::vector<std::filesystem::path>{"a", "b"});
  CHECK(save.compared() == "");
  CHECK(save.set("model"));
  CHECK(save.compared() == "given");
  CHECK(plan.save == "model");
}
