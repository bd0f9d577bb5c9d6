// Each op on a device against the CPU, forward and backward: sizes that are not a multiple of a
// pack, views, several dtypes.
#include <algorithm>
#include <array>

#include "autograd/kernels/device_kernels.hpp"
#include "tests/autograd/device/against_cpu.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

constexpr std::array kept_types{DType::fp32, DType::bf16};

}  // namespace

TEST_CASE("device elementwise ops equal the CPU's for all sizes of the tail and for views") {
  if (skipped()) return;
  for (const std::int64_t n : {1, 3, 4, 7, 8, 9, 31, 4096, 4099, 70001}) {
    CAPTURE(n);
    check_against_cpu("relu", [](const auto& in) { return relu(in[0]); }, {drawn({n}, "x")});
    check_against_cpu("silu", [](const auto& in) { return silu(in[0]); }, {drawn({n}, "x")});
    for (const DType type : kept_types) {
      check_against_cpu("gelu", [](const auto& in) { return gelu(in[0]); },
                        {drawn({n}, "x", type)});
      check_against_cpu("swiglu", [](const auto& in) { return swiglu(in[0], in[1]); },
                        {drawn({n}, "g", type), drawn({n}, "u", type)});
      check_against_cpu("add", [](const auto& in) { return in[0] + in[1]; },
                        {drawn({n}, "a", type), drawn({n}, "b", type)});
      check_against_cpu("mul", [](const auto& in) { return in[0] * in[1]; },
                        {drawn({n}, "a", type), drawn({n}, "b", type)});
      check_against_cpu("scale", [](const auto& in) { return in[0] * -0.5; },
                        {drawn({n}, "a", type)});
    }
  }
  for (const DType type : kept_types) {
    const Tensor a = drawn({6, 35}, "a", type), b = drawn({35, 6}, "b", type);
    check_against_cpu("transposed", [](const auto& in) { return in[0] + in[1].transpose(0, 1); },
                      {a, b});
    check_against_cpu(
        "not on 16 bytes",
        [](const auto& in) { return swiglu(in[0].narrow(0, 1, 17), in[0].narrow(0, 19, 17)); },
        {drawn({40}, "x", type)});
    check_against_cpu("scaled view", [](const auto& in) { return scale(in[0].transpose(0, 1), 3); },
                      {a});
    check_against_cpu("used twice", [](const auto& in) { return in[0] * in[0] + in[0]; }, {a});
  }
}

TEST_CASE("device add and mul broadcast as on the CPU") {
  if (skipped()) return;
  const auto both = [](const auto& in) { return in[0] * in[1] + in[1]; };
  check_against_cpu("a row", both, {drawn({5, 7}, "a"), drawn({7}, "b")});
  check_against_cpu("a column", both, {drawn({5, 7}, "a"), drawn({5, 1}, "b")});
  check_against_cpu("both ways", both, {drawn({4, 1, 3}, "a"), drawn({2, 1}, "b")});
  check_against_cpu("a scalar", both, {drawn({4, 3}, "a"), drawn({}, "b")});
  check_against_cpu("views", [](const auto& in) { return in[0].transpose(0, 2) * in[1]; },
                    {drawn({3, 2, 5}, "a"), drawn({2, 1}, "b")});
  const Shape many{2, 2, 2, 2, 2, 2, 2, 2, 2};
  const Tensor x = Tensor::zeros(many, DType::fp32, device_under_test());
  CHECK_NOTHROW(x.transpose(0, 4).contiguous());  // nine dimensions, some of which are merged
  Tensor reversed = x;
  for (const std::int64_t d : {0, 1, 2, 3}) reversed = reversed.transpose(d, 8 - d);
  CHECK_THROWS_WITH_AS(reversed.contiguous(),
                       "copy_: a view of shape [2, 2, 2, 2, 2, 2, 2, 2, 2] has more than 8 "
                       "dimensions that are not contiguous; copy it on the CPU",
                       Error);
}

TEST_CASE("device gradients through views and copies") {
  if (skipped()) return;
  for (const DType type : kept_types)
    check_against_cpu("views",
                      [](const auto& in) {
                        return in[0].transpose(0, 1).narrow(1, 1, 3).reshape({-1}).contiguous();
                      },
                      {drawn({5, 7}, "x", type)});
}

TEST_CASE("device copies equal the CPU's: dense, in packs and element by element, and converted") {
  if (skipped()) return;
  const Device device = device_under_test();
  const DeviceKernels& kernels = device_kernels(device);
  for (const DType from : kept_types)
    for (const DType to : kept_types) {
      const Tensor here = drawn({3, 4, 5, 16}, "x", from), x = here.to(device);
      const auto equal = [&](const Tensor& seen, const Tensor& expected) {
        const Tensor y = Tensor::zeros(seen.shape(), to, device);
        kernels.copy(seen, y);
        std::vector<float> rounded = numbers_of(expected);
        if (to == DType::bf16)
          for (float& each : rounded) each = static_cast<float>(Bf16(each));
        return numbers_of(y) == rounded;
      };
      CHECK(equal(x, here));
      CHECK(equal(x.narrow(0, 1, 2), here.narrow(0, 1, 2)));  // dense, not from the start
      CHECK(equal(x.transpose(1, 2), here.transpose(1, 2)));  // rows of whole packs
      CHECK(equal(x.narrow(3, 8, 8), here.narrow(3, 8, 8)));  // rows of one pack
      CHECK(equal(x.narrow(3, 3, 8), here.narrow(3, 3, 8)));  // not on 16 bytes
      CHECK(equal(x.narrow(3, 0, 7), here.narrow(3, 0, 7)));  // not whole packs
      CHECK(equal(x.transpose(0, 3), here.transpose(0, 3)));
      // Into a view, between elements that stay 0.
      const Tensor y = Tensor::zeros({4, 3, 5, 32}, to, device);
      kernels.copy(x, y.transpose(0, 1).narrow(3, 8, 16));
      const Tensor back = Tensor::zeros({4, 3, 5, 16}, to, device);
      kernels.copy(y.narrow(3, 8, 16), back);
      CHECK(equal(back.transpose(0, 1), to == DType::bf16 ? back.transpose(0, 1) : here));
      CHECK(equal(y.narrow(3, 0, 8), Tensor::zeros({4, 3, 5, 8}, to)));
      CHECK(equal(y.narrow(3, 24, 8), Tensor::zeros({4, 3, 5, 8}, to)));
    }
  const Tensor ids = Tensor::from({3, 1, 4, 1, 5, 9}, {2, 3}).to(device).transpose(0, 1);
  const auto home = ids.contiguous().to(Device::cpu);
  CHECK(std::ranges::equal(home.values<std::int32_t>(), std::array{3, 1, 1, 5, 4, 9}));
  const Tensor none = Tensor::zeros({0, 4}, DType::fp32, device);
  CHECK_NOTHROW(none.copy_(Tensor::zeros({0, 4}, DType::fp32, device)));
}

TEST_CASE("device products equal the CPU's") {
  if (skipped()) return;
  const auto product = [](const auto& in) { return matmul(in[0], in[1]); };
  check_against_cpu("matrices", product, {drawn({5, 7}, "a"), drawn({7, 3}, "b")});
  check_against_cpu("of nothing", product, {drawn({5, 0}, "a"), drawn({0, 3}, "b")});
  check_against_cpu("no rows", product, {drawn({0, 7}, "a"), drawn({7, 3}, "b")});
  check_against_cpu("batches", product, {drawn({2, 3, 5, 7}, "a"), drawn({2, 3, 7, 4}, "b")});
  check_against_cpu("a shared right side", product, {drawn({3, 5, 7}, "a"), drawn({7, 4}, "b")});
  for (const DType type : kept_types) {
    check_against_cpu("linear", [](const auto& in) { return linear(in[0], in[1]); },
                      {drawn({2, 5, 33}, "x", type), drawn({17, 33}, "w", type)});
    check_against_cpu("with bias", [](const auto& in) { return linear(in[0], in[1], in[2]); },
                      {drawn({6, 9}, "x", type), drawn({4, 9}, "w", type), drawn({4}, "b", type)});
  }
}

TEST_CASE("device norms equal the CPU's") {
  if (skipped()) return;
  for (const DType type : kept_types)
    for (const std::int64_t n : {1, 7, 8, 64, 515, 1032, 8200}) {
      CAPTURE(n);
      const Tensor x = drawn({3, 11, n}, "x", type), w = drawn({n}, "w", type),
                   other = drawn({3, 11, n}, "other", type);
      check_against_cpu("rms_norm", [](const auto& in) { return rms_norm(in[0], in[1]); }, {x, w});
      check_against_cpu("add_rms_norm",
                        [](const auto& in) {
                          const auto [sum, normed] = add_rms_norm(in[0], in[1], in[2]);
                          return sum + normed;
                        },
                        {x, other, w});
    }
}

TEST_CASE("device rope equals the CPU's on views and in odd sizes") {
  if (skipped()) return;
  for (const DType type : kept_types)
    for (const std::int64_t head_size : {2, 6, 16, 34}) {
      CAPTURE(head_size);
      const auto turned = [&](std::int64_t first) {
        return [=](const std::vector<Tensor>& in) {
          const RopeTable table = rope_table(12, head_size);
          return rope(in[0].transpose(1, 2),
                      {table.cos.to(in[0].device()), table.sin.to(in[0].device())}, first);
        };
      };
      check_against_cpu("from the start", turned(0), {drawn({2, 5, 3, head_size}, "x", type)});
      check_against_cpu("further on", turned(7), {drawn({2, 5, 3, head_size}, "x", type)});
    }
  CHECK_THROWS_WITH_AS(rope(drawn({2, 4}, "x").to(device_under_test()), rope_table(4, 4)),
                       (std::string("rope: expected tables on ") + name_of(device_under_test()) +
                        " as x, got them on cpu and cpu")
                           .c_str(),
                       Error);
}

TEST_CASE("device embedding equals the CPU's for equal ids, with the same bits every time") {
  if (skipped()) return;
  const Tensor ids = Tensor::from({3, 1, 3, 0, 1, 3, 8, 8, 8, 8}, {2, 5});
  for (const DType type : kept_types)
    for (const std::int64_t n : {1, 5, 8, 300}) {
      CAPTURE(n);
      const auto lookup = [&](const auto& in) { return embedding(ids, in[0]); };
      check_against_cpu("embedding", lookup, {drawn({9, n}, "w", type)});
      const auto gradient = [&] {
        return numbers_of(
            run_on(device_under_test(), lookup, {drawn({9, n}, "w", type)}).gradients[0]);
      };
      CHECK(gradient() == gradient());
    }
  // Runs of one stretch of 32 tokens, of several, and across their ends.
  std::vector<std::int32_t> frequent(32, 4);
  frequent.insert(frequent.end(), 100, 2);
  frequent.insert(frequent.end(), {0, 5, 5, 1});
  frequent.insert(frequent.end(), 70, 6);
  const Tensor many = Tensor::from(frequent, {static_cast<std::int64_t>(frequent.size())});
  for (const std::int64_t n : {3, 8})
    check_against_cpu("frequent ids", [&](const auto& in) { return embedding(many, in[0]); },
                      {drawn({9, n}, "w")});
  const Tensor w = Tensor::zeros({3, 4}, DType::fp32, device_under_test());
  CHECK_THROWS_WITH_AS(embedding(ids, w), "embedding: id 3 is not in 0..2", Error);
  CHECK_THROWS_WITH_AS(embedding(ids.to(device_under_test()), w), "embedding: id 3 is not in 0..2",
                       Error);
  CHECK(numbers_of(embedding(Tensor::from({1}, {1}, device_under_test()), w)) ==
        std::vector<float>(4, 0.0f));
}

TEST_CASE("device sums equal the CPU's") {
  if (skipped()) return;
  for (const std::int64_t n : {1, 5, 4097, 100003}) {
    CAPTURE(n);
    check_against_cpu("sum", [](const auto& in) { return sum(in[0]); }, {drawn({n}, "x")});
    check_against_cpu("mean", [](const auto& in) { return mean(in[0]); }, {drawn({n}, "x")});
    check_against_cpu("mse_loss", [](const auto& in) { return mse_loss(in[0], in[1]); },
                      {drawn({n}, "x"), drawn({n}, "t")});
  }
  CHECK_THROWS_WITH_AS(sum(drawn({3}, "x", DType::bf16).to(device_under_test())),
                       "sum: expected a tensor of fp32 or fp64, got bf16", Error);
  // Added one after the other in fp32, a sum of so many elements would be wrong in its third digit.
  CHECK(sum(Tensor::full({1 << 22}, 0.1, DType::fp32, device_under_test())).item() ==
        doctest::Approx(0.1 * (1 << 22)).epsilon(1e-5));
}

TEST_CASE("device attention equals the CPU's on views, with grouped heads and with a KV cache") {
  if (skipped()) return;
  // B, H, H_kv, Tq, Tk, D; tensors are views of [B, T, H, D], as in a model
  struct Case {
    std::int64_t batch, heads, kv_heads, queries, keys, head_size;
  };
  for (const DType type : kept_types)
    for (const Case& c : {Case{2, 4, 2, 7, 7, 8}, Case{1, 2, 2, 66, 66, 16}, Case{1, 3, 1, 2, 9, 5},
                          Case{2, 2, 1, 1, 70, 64}, Case{1, 2, 1, 200, 300, 128},
                          Case{1, 4, 2, 150, 150, 64}, Case{1, 1, 1, 130, 260, 33}}) {
      CAPTURE(c.queries);
      CAPTURE(c.head_size);
      check_against_cpu("attention",
                        [](const auto& in) {
                          return causal_attention(in[0].transpose(1, 2), in[1].transpose(1, 2),
                                                  in[2].transpose(1, 2));
                        },
                        {drawn({c.batch, c.queries, c.heads, c.head_size}, "q", type),
                         drawn({c.batch, c.keys, c.kv_heads, c.head_size}, "k", type),
                         drawn({c.batch, c.keys, c.kv_heads, c.head_size}, "v", type)});
    }
  const Tensor wide_heads = Tensor::zeros({1, 1, 2, 160}, DType::fp32, device_under_test());
  CHECK_THROWS_WITH_AS(causal_attention(wide_heads, wide_heads, wide_heads),
                       (std::string("causal_attention: heads on ") + name_of(device_under_test()) +
                        " are at most 128 wide, got [1, 1, 2, 160]")
                           .c_str(),
                       Error);
}

TEST_CASE("device losses equal the CPU's with ignored rows and with logits in blocks") {
  if (skipped()) return;
  const Tensor targets = Tensor::from({2, -100, 0, 6, 1, 1, -100, 3, 4, 5}, {2, 5});
  for (const DType type : kept_types) {
    check_against_cpu("cross_entropy",
                      [&](const auto& in) { return cross_entropy(in[0], targets); },
                      {drawn({2, 5, 7}, "z", type)});
    check_against_cpu("cross_entropy in packs",
                      [&](const auto& in) { return cross_entropy(in[0], targets); },
                      {drawn({2, 5, 24}, "z", type)});
    check_against_cpu(
        "none counts",
        [](const auto& in) { return cross_entropy(in[0], Tensor::full({3}, -100, DType::int32)); },
        {drawn({3, 9}, "z", type)});
    for (const std::int64_t rows : {0, 1, 3, 10})
      check_against_cpu(
          "linear_cross_entropy",
          [&](const auto& in) { return linear_cross_entropy(in[0], in[1], targets, -100, rows); },
          {drawn({2, 5, 6}, "x", type), drawn({7, 6}, "w", type)});
    check_against_cpu(
        "scaled",
        [&](const auto& in) { return linear_cross_entropy(in[0], in[1], targets) * 0.25; },
        {drawn({2, 5, 6}, "x", type), drawn({7, 6}, "w", type)});
  }
  const NoGrad no_history;
  const Tensor x = drawn({2, 5, 6}, "x"), w = drawn({7, 6}, "w");
  const Device device = device_under_test();
  CHECK(linear_cross_entropy(x.to(device), w.to(device), targets).item() ==
        doctest::Approx(linear_cross_entropy(x, w, targets).item()).epsilon(1e-5));
  CHECK_THROWS_WITH_AS(cross_entropy(Tensor::zeros({2, 5, 6}, DType::fp32, device), targets),
                       "cross_entropy: target 6 is not in 0..5", Error);
}
