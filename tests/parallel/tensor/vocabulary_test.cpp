// The embedding and the loss over a divided vocabulary, and a small language model trained with
// all matrices divided, against one process.
#include "autograd/optim/sgd.hpp"
#include "parallel/differentiable.hpp"
#include "tests/parallel/tensor/divided.hpp"

using namespace ringside;
using namespace ringside::tests;

namespace {

namespace tp = ringside::tensor_parallel;

constexpr std::int64_t vocabulary = 257, width = 6, hidden = 24, batch = 2, tokens = 12;

Tensor ids_of_step(int step) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < batch * tokens; ++i)
    ids.push_back(static_cast<std::int32_t>((i * 37 + step * 101) % vocabulary));
  return Tensor::from(ids, {batch, tokens});
}
// Some targets are ignored; both ends of the vocabulary occur.
Tensor targets_of_step(int step) {
  const Tensor targets = ids_of_step(step + 1);
  for (std::int64_t i = 0; i < targets.elements(); i += 7) targets.values<std::int32_t>()[i] = -100;
  targets.values<std::int32_t>()[1] = 0;
  targets.values<std::int32_t>()[2] = vocabulary - 1;
  return targets;
}

// embedding -> x + row(relu(column(x))) -> norm -> head and loss. `division` tells how each
// function of the model is carried out.
struct Model {
  Tensor table, w1, w2, b2, norm, head;

  static Model whole() {
    return {learned(drawn({vocabulary, width}, "table")),
            learned(drawn({hidden, width}, "w1")),
            learned(drawn({width, hidden}, "w2")),
            learned(drawn({width}, "b2")),
            learned(drawn({width}, "norm")),
            learned(drawn({vocabulary, width}, "head"))};
  }
  static Model part(const ProcessGroup& group) {
    const Model all = whole();
    return {learned(tp::part_of(all.table, 0, group)),
            learned(tp::part_of(all.w1, 0, group)),
            learned(tp::part_of(all.w2, 1, group)),
            all.b2,
            all.norm,
            learned(tp::part_of(all.head, 0, group))};
  }
  std::vector<NamedTensor> parameters() const {
    return {{"table", table}, {"w1", w1}, {"w2", w2}, {"b2", b2}, {"norm", norm}, {"head", head}};
  }
  // The tensors of `other`, a whole model, that this rank holds.
  void must_be_part_of(const Model& other, const ProcessGroup& group, bool gradients) const {
    const auto compare = [&](const char* name, const Tensor& own, const Tensor& all,
                             int dimension) {
      const Tensor seen = gradients ? own.grad() : own, expected = gradients ? all.grad() : all;
      must_be(seen, dimension < 0 ? expected : tp::part_of(expected, dimension, group),
              fmt::format("{}{}", gradients ? "gradient of " : "", name));
    };
    compare("table", table, other.table, 0);
    compare("w1", w1, other.w1, 0);
    compare("w2", w2, other.w2, 1);
    compare("b2", b2, other.b2, -1);
    compare("norm", norm, other.norm, -1);
    compare("head", head, other.head, 0);
  }
};

Tensor loss_of_whole(const Model& model, int step) {
  const Tensor x = embedding(ids_of_step(step), model.table);
  const Tensor y = x + linear(relu(linear(x, model.w1)), model.w2, model.b2);
  return linear_cross_entropy(rms_norm(y, model.norm), model.head, targets_of_step(step));
}

Tensor loss_of_part(const Model& model, int step, ProcessGroup& group) {
  const Tensor x = tp::embedding(ids_of_step(step), model.table, vocabulary, group, "embedding");
  const Tensor h = relu(tp::column_linear(x, model.w1, {}, group, "mlp.input"));
  const Tensor y = x + tp::row_linear(h, model.w2, model.b2, group, "mlp.output");
  return tp::cross_entropy(rms_norm(y, model.norm), model.head, targets_of_step(step), vocabulary,
                           group, "loss", tp::Tokens::all, -100, 10);
}

// Between the layers each rank has its tokens only. So its gradient of the norm is a term of a sum:
// copy_to_group adds the terms up.
Tensor loss_of_tokens(const Model& model, int step, ProcessGroup& group) {
  const Tensor x = tp::embedding(ids_of_step(step), model.table, vocabulary, group, "embedding",
                                 tp::Tokens::own);
  const Tensor h = relu(linear(parallel::gather_sequence(x, group, "mlp.input"), model.w1));
  const Tensor y = x + tp::row_linear_of_tokens(h, model.w2, model.b2, group, "mlp.output");
  const Tensor norm = parallel::copy_to_group(model.norm, group, "norm");
  return tp::cross_entropy(rms_norm(y, norm), model.head, targets_of_step(step), vocabulary, group,
                           "loss", tp::Tokens::own, -100, 10);
}

using LossOfPart = Tensor (*)(const Model&, int step, ProcessGroup&);

// Ten steps of SGD; after each one, loss, gradients and parameters are those of one process.
void trains_like_one_process(LossOfPart loss_of) {
  constexpr int steps = 10;
  for (const int size : {1, 2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      const Model single = Model::whole(), part = Model::part(group);
      SGD of_single({{single.parameters(), 0.05, 0}}), of_part({{part.parameters(), 0.05, 0}});
      for (int step = 0; step < steps; ++step) {
        const Tensor expected = loss_of_whole(single, step), loss = loss_of(part, step, group);
        backward(expected), backward(loss);
        must_be(loss, expected, fmt::format("the loss of step {}", step));
        part.must_be_part_of(single, group, true);
        of_single.step(), of_part.step();
        part.must_be_part_of(single, group, false);
        of_single.zero_grad(true), of_part.zero_grad(true);
      }
    });
}

}  // namespace

TEST_CASE("a model with all matrices divided trains like one process") {
  trains_like_one_process(loss_of_part);
}

TEST_CASE("with sequence parallel it trains like one process, too") {
  trains_like_one_process(loss_of_tokens);
}

TEST_CASE("the loss has the same bits on all ranks, also in fp32, and ignores what is ignored") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      const Tensor x = drawn({batch, tokens, width}, "x", DType::fp32),
                   head = drawn({vocabulary, width}, "head", DType::fp32);
      const Tensor own = tp::part_of(head, 0, group);
      // 0 is the first row of rank 0, 193 that of the last of four ranks.
      for (const std::int32_t ignored : {-100, 0, 193}) {
        const Tensor targets = targets_of_step(0);
        for (std::int32_t& target : targets.values<std::int32_t>())
          if (target == -100) target = ignored;
        const double loss =
            tp::cross_entropy(x, own, targets, vocabulary, group, "loss", tp::Tokens::all, ignored)
                .item();
        const double expected = linear_cross_entropy(x, head, targets, ignored).item();
        require(std::abs(loss - expected) < 1e-5 * expected, "{} instead of {}", loss, expected);
        std::vector<double> all(static_cast<std::size_t>(group.size()));
        group.all_gather(std::span<const double>(&loss, 1), std::span(all));
        for (const double other : all) require(other == loss, "{} and {}", other, loss);
      }
    });
}

TEST_CASE("embedding, layers and loss work on a device, too") {
  for (const int size : {2, 3})
    collectives::run_threads(size, [](ProcessGroup& group) {
      const auto gradient_of_table = [&](Device device, bool divided) {
        const auto there = [&](const Tensor& values) { return learned(values.to(device)); };
        const auto values = [](Shape shape, const char* name) {
          return drawn(std::move(shape), name, DType::fp32);
        };
        const Tensor table = values({vocabulary, width}, "table"),
                     w1 = values({hidden, width}, "w1"), w2 = values({width, hidden}, "w2");
        if (!divided) {
          const Tensor learns = there(table), x = embedding(ids_of_step(0), learns);
          const Tensor y = linear(relu(linear(x, there(w1))), there(w2));
          backward(linear_cross_entropy(y, there(table), targets_of_step(0)));
          return learns.grad().to(Device::cpu);
        }
        const Tensor learns = there(tp::part_of(table, 0, group));
        const Tensor x =
            tp::embedding(ids_of_step(0), learns, vocabulary, group, "embedding", tp::Tokens::own);
        const Tensor h = relu(linear(parallel::gather_sequence(x, group, "mlp.input"),
                                     there(tp::part_of(w1, 0, group))));
        const Tensor y =
            tp::row_linear_of_tokens(h, there(tp::part_of(w2, 1, group)), {}, group, "mlp.output");
        backward(tp::cross_entropy(y, there(tp::part_of(table, 0, group)), targets_of_step(0),
                                   vocabulary, group, "loss", tp::Tokens::own));
        return learns.grad().to(Device::cpu);
      };
      const Tensor seen = gradient_of_table(Device::emulated, true),
                   expected = tp::part_of(gradient_of_table(Device::cpu, false), 0, group);
      double largest = 0, difference = 0;
      for (std::int64_t i = 0; i < expected.elements(); ++i) {
        const float a = seen.values<float>()[i], b = expected.values<float>()[i];
        largest = std::max(largest, static_cast<double>(std::abs(b)));
        difference = std::max(difference, static_cast<double>(std::abs(a - b)));
      }
      require(largest > 0 && difference <= 1e-5 * largest, "{} of {}", difference, largest);
    });
}

TEST_CASE("a vocabulary smaller than the group is refused") {
  collectives::run_threads(3, [](ProcessGroup& group) {
    std::string text;
    try {
      tp::vocabulary_range(2, group);
    } catch (const Error& error) {
      text = error.what();
    }
    require(text == "a vocabulary of 2 cannot be divided among 3 ranks: take at most 2 ranks",
            "the text is: {}", text);
  });
}
