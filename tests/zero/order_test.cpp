// Which units are in memory, and which collectives have started: proved by the order of events.
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

// The units that are in memory when forward, and backward, reaches the MLP of each block.
std::vector<Event> watch(ProcessGroup& group, bool recomputes) {
  transformer::Model model(small_llama());
  model.set_recompute({recomputes ? 1 : 0});
  zero::Zero3 stage(model, group);
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

void must_be(const std::vector<Event>& seen, const std::vector<Event>& expected) {
  require(seen.size() == expected.size(), "{} events instead of {}", seen.size(), expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    require(seen[i].what == expected[i].what, "event {}: {} instead of {}", i, seen[i].what,
            expected[i].what);
    require(seen[i].units == expected[i].units, "{}: {} in memory instead of {}", seen[i].what,
            seen[i].units, expected[i].units);
  }
}

const std::string b0 = "model.layers.0", b1 = "model.layers.1", b2 = "model.layers.2";

}  // namespace

TEST_CASE("in stage 3 the unit that runs and the next one are in memory") {
  on_every_transport(2, [](ProcessGroup& group) {
    must_be(watch(group, false),
            {{"forward layers.0", {b1, b0}},
             {"forward layers.1", {b2, b1}},
             {"forward layers.2", {"root", b2}},
             {"backward layers.2", {b2, b1}},
             {"backward layers.1", {b1, b0}},
             {"backward layers.0", {b0}},  // backward of the embedding reads no weight
             {"after backward", {}},
             {"after finish", {}}});
  });
}

TEST_CASE("in stage 3 a recomputed block stays in memory until its backward is done") {
  on_every_transport(2, [](ProcessGroup& group) {
    must_be(watch(group, true), {{"forward layers.0", {b1, b0}},
                                 {"forward layers.1", {b2, b1}},
                                 {"forward layers.2", {"root", b2}},
                                 {"forward layers.2", {b2, b1}},  // recomputed
                                 {"backward layers.2", {b2, b1}},
                                 {"forward layers.1", {b1, b0}},
                                 {"backward layers.1", {b1, b0}},
                                 {"forward layers.0", {b0}},
                                 {"backward layers.0", {b0}},
                                 {"after backward", {}},
                                 {"after finish", {}}});
  });
}

TEST_CASE("in stage 3 recomputed blocks give the same gradients to the bit") {
  on_every_transport(3, [](ProcessGroup& group) {
    Tensors seen[2];
    for (const bool recompute : {false, true}) {
      transformer::Model model(small_llama());
      model.set_recompute({recompute ? 1 : 0});
      zero::Zero3 stage(model, group);
      backward(loss_of(model, group.rank()));
      stage.finish();
      stage.visit_gradients(
          [&](const NamedTensor& each) { seen[recompute][each.name] = each.tensor.clone(); });
    }
    require(seen[0].size() == seen[1].size(), "{} gradients instead of {}", seen[1].size(),
            seen[0].size());
    for (const auto& [name, tensor] : seen[0])
      require(std::ranges::equal(tensor.values<float>(), seen[1][name].values<float>()),
              "{} differs", name);
  });
}

// As the test of tests/ddp/overlap_test.cpp, for the stages.
TEST_CASE("every stage starts a layer's reduce-scatter before backward enters the layer below") {
  const auto check = [](DeepNet& net, auto&& stage, auto&& launched) {
    std::vector<int> seen(3, -1);
    for (std::size_t i = 0; i < 3; ++i)
      net.layers[i]->register_forward_hook([&, i](const Tensor& y) {
        y.register_hook([&, i](const Tensor&) { seen[i] = launched(stage); });
      });
    backward(sum(net.forward(DeepNet::ones(4))));
    require(seen == std::vector<int>{2, 1, 0}, "started when backward entered layers 0 to 2: {}",
            seen);
    require(launched(stage) == 3, "{} started by the end of backward", launched(stage));
    stage.finish();
  };
  const auto by_gradients = [](const auto& stage) { return stage.gradients().launched(); };
  for (const int size : {2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      DeepNet one, two, three;
      check(one, zero::Zero1(one, group, DeepNet::layer_mb),
            [](const auto& stage) { return stage.launched(); });
      check(two, zero::Zero2(two, group, DeepNet::layer_mb), by_gradients);
      check(three, ParametersByLayer(three, group), by_gradients);
    });
}

// A slow link keeps every reduce-scatter under way for longer than backward takes.
TEST_CASE("in stages 2 and 3 at most two reduce-scatters are under way") {
  const auto check = [](DeepNet& net, auto&& stage) {
    std::size_t most = 0;
    ddp::GradientHooks hooks;
    for (const auto& [name, parameter] : net.named_parameters())
      hooks.add(parameter,
                [&](const Tensor&) { most = std::max(most, stage.gradients().under_way()); });
    for (int micro = 0; micro < 2; ++micro) {
      const auto accumulate = stage.no_sync();
      backward(sum(net.forward(DeepNet::ones(4))));
    }
    stage.finish();
    require(most == zero::GradientShards::most_under_way,
            "{} reduce-scatters were under way, of at most {}", most,
            zero::GradientShards::most_under_way);
  };
  collectives::GroupOptions options;
  options.link = collectives::parse_link("1Mbps,2ms");
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          DeepNet one(6), two(6);
          check(one, zero::Zero2(one, group, DeepNet::layer_mb));
          check(two, ParametersByLayer(two, group));
        },
        options);
}

TEST_CASE("a shared weight belongs to the root, other parameters to their unit") {
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

TEST_CASE("the default wrap policy makes units of the elements of lists and of embeddings") {
  const auto units_of = [](bool tied) {
    Names names;
    collectives::run_threads(2, [&](ProcessGroup& group) {
      transformer::Model model(small_llama(tied));
      zero::Zero3 stage(model, group);
      if (group.rank() != 0) return;
      for (const auto& unit : stage.plan().buckets())
        names.push_back(unit.entries.back().parameter.name);  // the first to be registered
    });
    return names;
  };
  const std::string norm = ".input_layernorm.weight", embedding = "model.embed_tokens.weight";
  // The root holds the last norm and the head; a tied head is the embedding's matrix.
  CHECK(units_of(false) == Names{"model.norm.weight", b2 + norm, b1 + norm, b0 + norm, embedding});
  CHECK(units_of(true) == Names{b2 + norm, b1 + norm, b0 + norm, embedding});
  ToyNet toy(0, DType::fp32);
  CHECK(zero::default_wrap_policy(toy).empty());
}
