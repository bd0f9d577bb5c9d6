// What is where when: proved by the order of events.
#include "tests/zero/llama.hpp"
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

using Names = std::vector<std::string>;

struct Event {
  std::string what;
  Names units;
};

// The units that are in memory when forward, and backward, is in the middle of each block.
std::vector<Event> watch(ProcessGroup& group, bool checkpoint_activations) {
  transformer::Model model(small_llama());
  model.set_checkpoint_activations(checkpoint_activations);
  zero::ShardedParameters stage(model, group);
  std::vector<Event> events;
  for (const auto& [name, module] : model.named_modules()) {
    if (!name.ends_with("mlp")) continue;
    const std::string block = name.substr(0, name.size() - 4).substr(name.find("layers"));
    module->register_forward_pre_hook([&, block] {
      events.push_back({"forward " + block, stage.in_memory()});
    });
    module->register_forward_hook([&, block](const Tensor& y) {
      if (y.grad_fn())
        y.register_hook([&, block](const Tensor&) {
          events.push_back({"backward " + block, stage.in_memory()});
        });
    });
  }
  backward(loss_of(model, group.rank()));
  events.push_back({"after backward", {}});
  stage.finish();
  events.push_back({"after finish", stage.in_memory()});
  return events;
}

void must_be(const std::vector<Event>& seen, const std::vector<Event>& wanted) {
  require(seen.size() == wanted.size(), "{} events in place of {}", seen.size(), wanted.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    require(seen[i].what == wanted[i].what, "event {}: {} in place of {}", i, seen[i].what,
            wanted[i].what);
    require(seen[i].units == wanted[i].units, "{}: {} in memory in place of {}", seen[i].what,
            seen[i].units, wanted[i].units);
  }
}

const std::string b0 = "model.layers.0", b1 = "model.layers.1", b2 = "model.layers.2";

}  // namespace

TEST_CASE("in stage 3 the unit that runs is in memory and the next is on its way") {
  on_every_transport(2, [](ProcessGroup& group) {
    must_be(watch(group, false),
            {{"forward layers.0", {b1, b0}},
             {"forward layers.1", {b2, b1}},
             {"forward layers.2", {"root", b2}},
             {"backward layers.2", {b2, b1}},
             {"backward layers.1", {b1, b0}},
             {"backward layers.0", {b0}},  // the embedding's backward reads nothing
             {"after backward", {}},
             {"after finish", {}}});
  });
}

TEST_CASE("in stage 3 a block that is computed again stays until its backward is done") {
  on_every_transport(2, [](ProcessGroup& group) {
    must_be(watch(group, true), {{"forward layers.0", {b1, b0}},
                                 {"forward layers.1", {b2, b1}},
                                 {"forward layers.2", {"root", b2}},
                                 {"forward layers.2", {b2, b1}},  // again
                                 {"backward layers.2", {b2, b1}},
                                 {"forward layers.1", {b1, b0}},
                                 {"backward layers.1", {b1, b0}},
                                 {"forward layers.0", {b0}},
                                 {"backward layers.0", {b0}},
                                 {"after backward", {}},
                                 {"after finish", {}}});
  });
}

TEST_CASE("in stage 3 blocks that are computed again give the same gradients to the bit") {
  on_every_transport(3, [](ProcessGroup& group) {
    Tensors seen[2];
    for (const bool again : {false, true}) {
      transformer::Model model(small_llama());
      model.set_checkpoint_activations(again);
      zero::ShardedParameters stage(model, group);
      backward(loss_of(model, group.rank()));
      stage.finish();
      stage.visit_gradients(
          [&](const NamedTensor& each) { seen[again][each.name] = each.tensor.clone(); });
    }
    require(seen[0].size() == seen[1].size(), "{} gradients in place of {}", seen[1].size(),
            seen[0].size());
    for (const auto& [name, tensor] : seen[0])
      require(std::ranges::equal(tensor.values<float>(), seen[1][name].values<float>()),
              "{} differs", name);
  });
}

TEST_CASE("gradients of the last layers set out before backward enters the first") {
  // By the time that backward enters a layer, the buckets of all later ones are launched.
  struct Deep : Net {
    Deep() {
      for (int i = 0; i < 3; ++i)
        register_module(std::to_string(i), *layers.emplace_back(std::make_unique<Linear>(8, 8)));
    }
    Tensor forward(const Tensor& input) const override {
      Tensor x = input;
      for (const auto& layer : layers) x = relu(layer->forward(x));
      return x;
    }
    std::vector<std::unique_ptr<Linear>> layers;
  };
  const auto check = []<class Stage>(Deep& net, Stage& stage, auto&& launched) {
    std::vector<int> seen(3, -1);
    for (std::size_t i = 0; i < 3; ++i)
      net.layers[i]->register_forward_hook([&, i](const Tensor& y) {
        y.register_hook([&, i](const Tensor&) { seen[i] = launched(); });
      });
    backward(sum(net.forward(Tensor::full({4, 8}, 1.0))));
    require(seen == std::vector<int>{2, 1, 0}, "launched when backward enters layer 0, 1, 2: {}",
            seen);
    require(launched() == 3, "{} launched at the end of backward", launched());
    stage.finish();
  };
  on_every_transport(3, [&](ProcessGroup& group) {
    Deep one, other, third;
    zero::ShardedState state(one, group, 288e-6);  // a layer is 8 * 8 + 8 floats
    check(one, state, [&] { return state.launched(); });
    zero::ShardedGradients gradients(other, group, 288e-6);
    check(other, gradients, [&] { return gradients.gradients().launched(); });
    zero::ShardedParameters parameters(third, group);
    check(third, parameters, [&] { return parameters.gradients().launched(); });
  });
}

TEST_CASE("a shared weight belongs to the root and others to their unit") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    TiedNet net(0, DType::fp32);
    ParametersByLayer stage(net, group);
    Names units;
    for (const auto& bucket : stage.plan().buckets()) {
      std::string text;
      for (const auto& entry : bucket.entries) text += entry.parameter.name + " ";
      units.push_back(text);
    }
    require(units == Names{"out.weight ", "second.bias ", "first.bias ", "first.weight "}, "{}",
            units);
  });
}

TEST_CASE("units are the elements of lists and embeddings in the order of backward") {
  const auto units_of = [](bool tied) {
    Names names;
    collectives::run_threads(2, [&](ProcessGroup& group) {
      transformer::Model model(small_llama(tied));
      zero::ShardedParameters stage(model, group);
      if (group.rank() != 0) return;
      for (const auto& unit : stage.plan().buckets())
        names.push_back(unit.entries.back().parameter.name);  // in reverse, as all buckets
    });
    return names;
  };
  const std::string norm = ".input_layernorm.weight", embedding = "model.embed_tokens.weight";
  CHECK(units_of(false) == Names{"model.norm.weight", b2 + norm, b1 + norm, b0 + norm,
                                 embedding});  // and with the last norm the head
  CHECK(units_of(true) ==
        Names{b2 + norm, b1 + norm, b0 + norm, embedding});  // which is the embedding, too
  ToyNet toy(0, DType::fp32);
  CHECK(zero::usual_units(toy).empty());
}

TEST_CASE("outside of their unit parameters cannot be read") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    ToyNet net(0, DType::fp32);
    zero::ShardedParameters stage(net, group);
    std::string text;
    try {
      (void)net.fc1.weight.values<float>();
    } catch (const Error& error) {
      text = error.what();
    }
    require(text ==
                "the memory of this tensor of shape [20, 10] is dropped (Storage::drop) and not "
                "restored yet",
            "it said: {}", text);
  });
}
