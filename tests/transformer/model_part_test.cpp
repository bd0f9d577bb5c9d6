// Parts of a model: their parameters are regions of the whole model's, whatever the mesh.
#include "transformer/model_part.hpp"

#include <functional>
#include <map>
#include <memory>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/model.hpp"
#include "transformer/parameter_table.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using autograd::Tensor;

namespace {

Config grouped(bool tied) {
  return {.vocabulary = 257,
          .d_model = 24,
          .layers = 5,
          .heads = 12,
          .kv_heads = 2,
          .d_ff = 36,
          .sequence = 8,
          .tied_head = tied};
}

// A division that communicates nothing: enough to make and to load a part.
class Alone final : public ModelRanks {
 public:
  Alone(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

 private:
  int rank_, size_;
};

// The parts of `stages` stages with `t` tensor ranks each.
std::vector<ModelPart> parts_of(const Config& config, int stages, int t) {
  std::vector<ModelPart> parts;
  for (int stage = 0; stage < stages; ++stage) {
    ModelPart part;
    part.tensor_ranks = t;
    for (std::int64_t layer = config.layers * stage / stages;
         layer < config.layers * (stage + 1) / stages; ++layer)
      part.layers.push_back(layer);
    part.embedding = stage == 0;
    part.head = stage == stages - 1;
    for (part.tensor_rank = 0; part.tensor_rank < t; ++part.tensor_rank) parts.push_back(part);
  }
  return parts;
}

std::map<std::string, Tensor> parameters_of(const Model& model) {
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, tensor] : model.named_parameters()) parameters.emplace(name, tensor);
  return parameters;
}

bool equal(const Tensor& a, const Tensor& b) {
  const Tensor left = a.contiguous(), right = b.contiguous();
  const auto x = left.values<double>(), y = right.values<double>();
  return left.shape() == right.shape() && std::equal(x.begin(), x.end(), y.begin());
}

// Compares every parameter of every part with its region of the whole model's, and counts how often
// each element is counted.
void check_parts(const Model& whole, int stages, int t,
                 const std::function<void(const Model&)>& prepare = {}) {
  const Config& config = whole.config();
  const ParameterTable table(config);
  const auto expected = parameters_of(whole);
  std::map<std::string, std::int64_t> counted;
  const autograd::NoGrad no_grad;
  for (const ModelPart& part : parts_of(config, stages, t)) {
    const Alone division(part.tensor_rank, t);
    const Model model(config, DType::fp64, autograd::Device::cpu, part, &division);
    if (prepare) prepare(model);
    const auto held = parameters_of(model);
    std::size_t found = 0;
    for (const ParameterEntry& entry : table.entries()) {
      CAPTURE(entry.name);
      const auto name = name_in(part, entry);
      if (!name) continue;
      ++found;
      REQUIRE(held.contains(*name));
      const autograd::Region region = entry.region(part.tensor_rank, t);
      CHECK(equal(held.at(*name), region.of(expected.at(entry.name).detach())));
      if (is_counted(part, entry)) counted[entry.name] += region.elements();
    }
    CHECK(found == held.size());
  }
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    CHECK(counted[name] == tensor.elements());
  }
}

}  // namespace

TEST_CASE("the table lists the parameters of a whole model, in order") {
  for (const bool tied : {false, true}) {
    const Model model(grouped(tied), DType::fp64);
    const ParameterTable table(model.config());
    const auto parameters = model.named_parameters();
    REQUIRE(parameters.size() == table.entries().size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      CHECK(parameters[i].name == table.entries()[i].name);
      CHECK(parameters[i].tensor.shape() == table.entries()[i].shape);
    }
  }
}

TEST_CASE("first values do not depend on the mesh, and each element is counted once") {
  for (const bool tied : {false, true}) {
    const Model whole(grouped(tied), DType::fp64);
    for (const int stages : {1, 2, 5})
      for (const int t : {1, 2, 3, 4, 6, 12}) {
        if (grouped(tied).kv_heads % t != 0 && t % grouped(tied).kv_heads != 0) continue;
        CAPTURE(tied);
        CAPTURE(stages);
        CAPTURE(t);
        check_parts(whole, stages, t);
      }
  }
}

TEST_CASE("a part loads its regions of a checkpoint") {
  for (const bool tied : {false, true}) {
    const Model whole(grouped(tied), DType::fp64);
    double next = 0;
    for (const auto& [name, tensor] : whole.named_parameters())
      for (double& value : tensor.values<double>()) value = next += 0.25;
    const TemporaryDirectory directory;
    save_checkpoint(directory.path(), whole);
    for (const auto& [stages, t] : {std::pair(1, 2), std::pair(3, 1), std::pair(2, 4)})
      check_parts(whole, stages, t,
                  [&](const Model& model) { load_parameters(directory.path(), model); });
  }
}

TEST_CASE("what cannot be divided is refused with what would fit") {
  Config config = grouped(false);
  CHECK_THROWS_WITH_AS(require_divisible(config, 5),
                       "12 heads and d_ff 36 cannot be divided among 5 tensor-parallel ranks: "
                       "choose tp=1, 2, 3, 4, 6 or 12",
                       Error);
  CHECK_THROWS_WITH_AS(require_divisible(config, 3),
                       "2 key and value heads cannot be divided among 3 tensor-parallel ranks: "
                       "choose a tp that divides 2, or a multiple of it",
                       Error);
  config.d_ff = 35;
  CHECK_THROWS_WITH_AS(require_divisible(config, 2),
                       "12 heads and d_ff 35 cannot be divided among 2 tensor-parallel ranks: "
                       "choose tp=1",
                       Error);
  config = grouped(false);
  config.vocabulary = 3;
  CHECK_THROWS_WITH_AS(require_divisible(config, 4),
                       "a vocabulary of 3 has no row for each of 4 tensor-parallel ranks: choose a "
                       "tp of at most 3",
                       Error);
}

TEST_CASE("a part runs only what it holds") {
  ModelPart part;
  part.layers = {1, 2, 4};
  part.embedding = part.head = false;
  const Model model(grouped(false), DType::fp64, autograd::Device::cpu, part);
  const autograd::NoGrad no_grad;
  const Tensor x = Tensor::full({1, 4, 24}, 0.5, DType::fp64);
  CHECK(model.run_layers(x, 1, 3).shape() == x.shape());
  CHECK(model.run_layers(x, 4, 5).shape() == x.shape());
  CHECK_THROWS_WITH_AS(model.run_layers(x, 2, 5),
                       "layers 2 to 4 were asked of a part of the model with the layers 1, 2, 4",
                       Error);
  CHECK_THROWS_WITH_AS(model.embed(Tensor::zeros({1, 4}, DType::int32)),
                       "this part of the model has no embedding", Error);
  CHECK_THROWS_WITH_AS(model.last_norm(x), "this part of the model has no last norm and no head",
                       Error);
}

TEST_CASE("stages one after the other are the whole model to the bit") {
  const Config config = grouped(false);
  const Model whole(config, DType::fp64);
  const autograd::NoGrad no_grad;
  const Tensor tokens = Tensor::from<std::int32_t>({5, 9, 200, 256, 0, 3}, {2, 3});
  Tensor x;
  for (const ModelPart& part : parts_of(config, 2, 1)) {
    const Model stage(config, DType::fp64, autograd::Device::cpu, part);
    if (part.embedding) x = stage.embed(tokens);
    x = stage.run_layers(x, part.layers.front(), part.layers.back() + 1);
    if (part.head) x = stage.last_norm(x);
  }
  CHECK(equal(x, whole.hidden(tokens)));
}
