// How many launches an operation takes, and which kernel it chooses: on a GPU each costs
// microseconds.
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/kernels/shared/kernels_on.hpp"
#include "tests/autograd/kernels/emulated/emulations.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::autograd::cuda;
using namespace ringside::tests;

namespace {

struct Launch {
  std::string op;
  std::int64_t blocks;
  std::size_t shared_bytes;
};
std::vector<Launch> launches;
std::size_t shared_limit = 227 << 10;

// Runs the kernels as the emulated device does, and notes each launch.
struct NotingLauncher {
  static constexpr Device device = Device::emulated;
  std::int64_t max_blocks(int) const { return 16; }
  std::size_t max_shared_bytes() const { return shared_limit; }
  template <class Kernel>
  void run(const char* op, const Kernel& kernel, std::int64_t blocks) const {
    launches.push_back({op, blocks, shared_bytes_of(kernel)});
    launch_emulated(kernel, blocks);
  }
  void gemm(const MatrixProduct&, const Tensor&, const Tensor&, const Tensor&) const {}
};

const KernelsOn<NotingLauncher> kernels;

template <class Call>
std::vector<Launch> launches_of(const Call& call) {
  launches.clear();
  call();
  return launches;
}

Tensor on_device(Shape shape, DType dtype = DType::fp32) {
  return Tensor::full(std::move(shape), 0.5, dtype, Device::emulated);
}

}  // namespace

TEST_CASE("launches: AdamW updates 48 parameters in one, for each combination of types") {
  const AdamWStep step{.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .scale = 1};
  std::vector<AdamWUpdate> updates;
  const auto add = [&](DType parameter, DType gradient, int count) {
    for (int i = 0; i < count; ++i)
      updates.push_back(
          {.p = on_device({5}),
           .g = on_device({5}, gradient),
           .m = on_device({5}),
           .v = on_device({5}),
           .parameter = parameter == DType::bf16 ? on_device({5}, parameter) : Tensor(),
           .keep = 1,
           .step_size = 0.1f,
           .scale_v = 1});
  };
  const auto count = [&] { return launches_of([&] { kernels.adamw(step, updates); }).size(); };
  add(DType::fp32, DType::fp32, 48);
  CHECK(count() == 1);
  add(DType::fp32, DType::fp32, 53);
  CHECK(count() == 3);
  add(DType::bf16, DType::bf16, 40);
  CHECK(count() == 4);
  add(DType::bf16, DType::fp32, 1);
  CHECK(count() == 5);
  updates = {updates.front()};
  updates[0].g = on_device({5}, DType::bf16);
  CHECK_THROWS_WITH_AS(kernels.adamw(step, updates),
                       "AdamW: the gradient of an fp32 parameter must be fp32, got bf16", Error);
  CHECK(launches_of([&] { kernels.adamw(step, {}); }).empty());
}

TEST_CASE("launches: a dense copy is none, and a copy of dense rows moves packs") {
  const auto blocks_of = [](const Tensor& x, const Tensor& y) -> std::int64_t {
    const auto seen = launches_of([&] { kernels.copy(x, y); });
    return seen.empty() ? 0 : seen[0].blocks;
  };
  const Tensor x = on_device({4, 6, 64}), y = on_device({4, 6, 64});
  CHECK(blocks_of(x, y) == 0);
  CHECK(blocks_of(x.narrow(0, 1, 2), y.narrow(0, 0, 2)) == 0);
  CHECK(blocks_of(x.transpose(0, 1), on_device({6, 4, 64})) == 2);   // 384 packs, 256 a block
  CHECK(blocks_of(x.transpose(0, 2), on_device({64, 6, 4})) == 6);   // 1536 elements
  CHECK(blocks_of(x.narrow(2, 1, 60), on_device({4, 6, 60})) == 6);  // not on 16 bytes
  CHECK(blocks_of(x, on_device({4, 6, 64}, DType::bf16)) == 1);      // 4096 elements a block
}

TEST_CASE("launches: cross_entropy copies a row to shared memory only if it fits") {
  const Tensor z = on_device({2, 100}), dz = on_device({2, 100}, DType::bf16),
               losses = on_device({2}), log_sums = on_device({2}),
               targets = Tensor::from({1, 2}, {2}, Device::emulated);
  const auto shared = [&](std::size_t limit) {
    shared_limit = limit;
    return launches_of(
               [&] { kernels.cross_entropy_with_gradient(z, targets, -100, 1, losses, dz); })[0]
        .shared_bytes;
  };
  CHECK(shared(432) == 432);  // 100 logits and two packs
  CHECK(shared(431) == 0);
  shared_limit = 227 << 10;
  // Without a gradient the row is read once anyway.
  CHECK(launches_of([&] { kernels.cross_entropy(z, targets, -100, losses, log_sums); })[0]
            .shared_bytes == 0);
}
