// All rooms together: small models that must learn.
#include <cmath>
#include <vector>

#include "autograd/optim/adamw.hpp"
#include "autograd/optim/clip.hpp"
#include "autograd/optim/optimizer.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/random.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

struct Net : Module {
  Linear up{1, 32, true, {1, "up"}}, down{32, 1, true, {1, "down"}};
  Net() {
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) const { return down.forward(relu(up.forward(x))); }
};

// One block of a Llama, made from single layers, so that all ops of a transformer train together.
struct TinyTransformer : Module {
  static constexpr std::int64_t vocabulary = 11, width = 16, heads = 4, kv_heads = 2, head_size = 4,
                                hidden = 32;
  Embedding embed{vocabulary, width, {2, "embed"}};
  RMSNorm norm1{width}, norm2{width}, norm3{width};
  Linear q{width, width, false, {2, "q"}}, k{width, kv_heads*head_size, false, {2, "k"}},
      v{width, kv_heads*head_size, false, {2, "v"}};
  Linear o{width, width, false, {2, "o"}}, gate{width, hidden, false, {2, "gate"}},
      up{width, hidden, false, {2, "up"}};
  Linear down{hidden, width, false, {2, "down"}};
  RopeTable table = rope_table(16, head_size);

  TinyTransformer() {
    register_module("embed", embed), register_module("norm1", norm1), register_module("q", q),
        register_module("k", k);
    register_module("v", v), register_module("o", o), register_module("norm2", norm2),
        register_module("gate", gate);
    register_module("up", up), register_module("down", down), register_module("norm3", norm3);
  }

  Tensor logits(const Tensor& ids) const {
    const std::int64_t B = ids.size(0), T = ids.size(1);
    const Tensor x = embed.forward(ids), h = norm1.forward(x);
    const auto split = [&](const Tensor& y, std::int64_t n) {
      return y.reshape({B, T, n, head_size}).transpose(1, 2);
    };
    const Tensor a =
        causal_attention(rope(split(q.forward(h), heads), table),
                         rope(split(k.forward(h), kv_heads), table), split(v.forward(h), kv_heads));
    const SumAndNorm second =
        add_rms_norm(o.forward(a.transpose(1, 2).reshape({B, T, width})), x, norm2.weight);
    const Tensor y =
        second.sum + down.forward(swiglu(gate.forward(second.normed), up.forward(second.normed)));
    return linear(norm3.forward(y), embed.weight);  // the head is tied to the embedding
  }
};

}  // namespace

TEST_CASE("a small model learns the sine with either optimizer") {
  const Tensor x = Tensor::empty({64, 1}), t = Tensor::empty({64, 1});
  for (int i = 0; i < 64; ++i)
    x.data<float>()[i] = static_cast<float>(i) / 10 - 3.2f,
    t.data<float>()[i] = std::sin(x.data<float>()[i]);
  const auto train = [&](const Net& net, Optimizer& optimizer) {
    double loss_value = 0;
    for (int step = 0; step < 400; ++step) {
      const Tensor loss = mse_loss(net.forward(x), t);
      optimizer.zero_grad(step % 2 == 0);
      backward(loss);
      clip_grad_norm(net.parameters(), 1.0);
      optimizer.step();
      loss_value = loss.item();
    }
    return loss_value;
  };
  const Net net1, net2;
  SGD sgd({{net1.named_parameters(), 0.05, 0}}, {.momentum = 0.9});
  AdamW adamw({{net2.named_parameters(), 0.01, 0.01}});
  const double before = mse_loss(net1.forward(x), t).item();
  CHECK(train(net1, sgd) < 0.1 * before);
  CHECK(train(net2, adamw) < 0.1 * before);
}

TEST_CASE("a tiny transformer with a tied head learns to copy the token before the last") {
  const TinyTransformer model;
  const std::int64_t B = 8, T = 12;
  const Tensor ids = Tensor::empty({B, T}, DType::int32),
               targets = Tensor::empty({B, T}, DType::int32);
  AdamW optimizer({{model.named_parameters(), 0.01, 0.0}});
  double first = 0, last = 0;
  for (int step = 0; step < 150; ++step) {
    for (std::int64_t i = 0; i < B * T; ++i)
      ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(
          random_below(11, 5, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(i)));
    for (std::int64_t i = 0; i < B * T; ++i)
      targets.data<std::int32_t>()[i] = i % T == 0 ? -100 : ids.data<std::int32_t>()[i - 1];
    const Tensor loss = cross_entropy(model.logits(ids), targets);
    optimizer.zero_grad();
    backward(loss);
    optimizer.step();
    (step == 0 ? first : last) = loss.item();
  }
  CHECK(first > 1.5);
  CHECK(last < 0.5);
}

TEST_CASE("a training step frees all its memory") {
  const Net net;
  const Tensor x = random_tensor({16, 1}, "x", DType::fp32),
               t = random_tensor({16, 1}, "t", DType::fp32);
  SGD optimizer({{net.named_parameters(), 0.01, 0}});
  std::int64_t after_first = 0;
  for (int step = 0; step < 3; ++step) {
    {
      const Tensor loss = mse_loss(net.forward(x), t);
      backward(loss);
    }
    optimizer.step();
    optimizer.zero_grad();
    if (step == 0) after_first = memory_use().current;
    CHECK(memory_use().current == after_first);
  }
}
