// Tensors on a device: making, copying and reading them, and the errors where the host may not
// read.
#include <thread>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/profile.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "tests/autograd/device/against_cpu.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

TEST_CASE("device tensors are made, filled, copied, and copied back to the host") {
  if (skipped()) return;
  const Device device = device_under_test();
  const Tensor x = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {2, 3}, device);
  CHECK(x.device() == device);
  CHECK(x.to(device).is_same(x));
  CHECK(numbers_of(x) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(numbers_of(x.transpose(0, 1)) == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(numbers_of(x.narrow(1, 1, 2)) == std::vector<float>{2, 3, 5, 6});
  CHECK(x.narrow(0, 1, 1).narrow(1, 2, 1).item() == 6);
  CHECK(numbers_of(Tensor::full({3}, 2.5, DType::bf16, device)) ==
        std::vector<float>{2.5, 2.5, 2.5});
  CHECK(Tensor::scalar(-7, DType::int32, device).item() == -7);
  const Tensor zeros = Tensor::zeros({3, 2}, DType::fp32, device);
  zeros.copy_(x.transpose(0, 1));  // within the device
  CHECK(numbers_of(zeros) == std::vector<float>{1, 4, 2, 5, 3, 6});
  zeros.transpose(0, 1).copy_(Tensor::full({2, 3}, 9));  // from the host to a view
  CHECK(numbers_of(zeros) == std::vector<float>(6, 9.0f));
  const Tensor home = Tensor::zeros({2, 3});
  home.narrow(1, 0, 2).copy_(x.narrow(1, 1, 2));  // from a view to a view on the host
  CHECK(numbers_of(home) == std::vector<float>{2, 3, 0, 5, 6, 0});
  CHECK(Tensor::from({1, 2, 3}, {3}, device).to(Device::cpu).values<std::int32_t>()[2] == 3);
  CHECK(numbers_of(to_storage_dtype(to_compute_dtype(Tensor::full({5}, 1.5, DType::bf16, device)),
                                    DType::bf16)) == std::vector<float>(5, 1.5f));
}

TEST_CASE("device gradients through copies between devices") {
  if (skipped()) return;
  Tensor x = drawn({4}, "x");
  x.set_requires_grad(true);
  backward(sum(x.to(device_under_test()) * 3.0).to(Device::cpu));
  CHECK(numbers_of(x.grad()) == std::vector<float>(4, 3.0f));
}

TEST_CASE("the host cannot read a tensor on a device") {
  if (skipped()) return;
  const Device device = device_under_test();
  const Tensor x = Tensor::zeros({2, 3}, DType::fp32, device);
  const std::string name = name_of(device);
  const std::string expected = "this tensor of shape [2, 3] is on " + name +
                               ", where the host cannot read it: copy it with .to(Device::cpu)";
  CHECK_THROWS_WITH_AS(x.data<float>(), expected.c_str(), Error);
  CHECK_THROWS_WITH_AS(x.values<float>(), expected.c_str(), Error);
  CHECK(x.address() != nullptr);
  CHECK_THROWS_WITH_AS(
      Tensor::zeros({2}, DType::fp64, device),
      ("expected fp32, bf16 or int32 on " + name + ", got fp64, which only the CPU has").c_str(),
      Error);
  CHECK_THROWS_WITH_AS(
      drawn({2}, "x", DType::fp64).to(device),
      ("expected fp32, bf16 or int32 on " + name + ", got fp64, which only the CPU has").c_str(),
      Error);
}

TEST_CASE("an op with tensors on host and device names both") {
  if (skipped()) return;
  const Device device = device_under_test();
  const std::string name = name_of(device);
  const Tensor there = Tensor::zeros({2, 3}, DType::fp32, device), here = Tensor::zeros({2, 3});
  const auto message = [&](const char* op, const std::string& first, const std::string& second) {
    return std::string(op) + ": expected tensors on one device, got [2, 3] on " + first +
           " and [2, 3] on " + second + "; move one with .to()";
  };
  CHECK_THROWS_WITH_AS(add(there, here), message("add", name, "cpu").c_str(), Error);
  CHECK_THROWS_WITH_AS(linear(here, there), message("linear", "cpu", name).c_str(), Error);
  Tensor leaf = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(
      leaf.set_grad(there),
      ("set_grad: expected a gradient on cpu as the tensor itself, got one on " + name).c_str(),
      Error);
  CHECK_THROWS_WITH_AS(
      backward(sum(leaf.set_requires_grad(true)), Tensor::scalar(1, DType::fp32, device)),
      ("backward: expected a seed on cpu as the loss, got one on " + name).c_str(), Error);
}

TEST_CASE("device storage is dropped, restored and counted like the host's") {
  if (skipped()) return;
  const Device device = device_under_test();
  const auto before = memory_use(MemoryKind::communication).current;
  const MemoryScope scope(MemoryKind::communication);
  const Tensor x = Tensor::zeros({1000}, DType::fp32, device);
  CHECK(memory_use(MemoryKind::communication).current == before + 4000);
  x.storage()->drop();
  CHECK(memory_use(MemoryKind::communication).current == before);
  CHECK_THROWS_WITH_AS(
      x.address(),
      "the memory of this tensor of shape [1000] is dropped (Storage::drop) and not restored yet",
      Error);
  CHECK_THROWS_AS(x.fill_(1), Error);
  x.storage()->restore();
  x.fill_(1);
  CHECK(numbers_of(x) == std::vector<float>(1000, 1.0f));
}

TEST_CASE("device buffers are cached for the next of their size and return to their thread") {
  if (skipped()) return;
  const Device device = device_under_test();
  release_cached_memory();
  std::byte* first = nullptr;
  {
    const Tensor x = Tensor::empty({12345}, DType::fp32, device);
    first = x.address();
  }
  const auto fetched = system_allocations();
  Tensor again = Tensor::empty({12345}, DType::fp32, device);
  CHECK(again.address() == first);
  CHECK(system_allocations() == fetched);
  std::thread([&] { again = Tensor(); }).join();  // freed on another thread
  CHECK(Tensor::empty({12345}, DType::fp32, device).address() == first);
  release_cached_memory();
  again = Tensor::empty({12345}, DType::fp32, device);
  CHECK(system_allocations() == fetched + 1);
  Tensor outlives;
  std::thread([&] {
    outlives = Tensor::full({100}, 3, DType::fp32, device);
    device_memory(device).synchronise();  // the stream of this thread writes it
  }).join();                              // its thread and the cache of that thread are gone
  CHECK(numbers_of(outlives) == std::vector<float>(100, 3.0f));
}

TEST_CASE("device fences wait on other threads") {
  if (skipped()) return;
  const Device device = device_under_test();
  const Tensor x = Tensor::full({1 << 16}, 2, DType::fp32, device);
  const auto wait = device_memory(device).fence();
  std::thread(wait).join();
  device_memory(device).synchronise();
  CHECK(x.narrow(0, 5, 1).item() == 2);
}

TEST_CASE("device profiles measure the stream, and charge each op once") {
  if (skipped()) return;
  const Device device = device_under_test();
  const Tensor x = Tensor::full({1 << 16}, 2, DType::fp32, device).set_requires_grad(true);
  device_memory(device).synchronise();
  const auto start = Clock::now();
  Profile profile(device);
  backward(sum(x + x));
  const auto ops = profile.ops();
  const double wall = seconds_since(start);
  double sum = 0;
  for (const OpTime& op : ops) sum += op.forward + op.backward;
  CHECK(sum > 0);
  CHECK(sum <= wall);
  REQUIRE(ops.front().name == "add");
  CHECK(ops.front().calls == 1);
  CHECK(ops.front().forward > 0);
  CHECK(ops.front().backward > 0);
  CHECK(profile.ops().front().forward == ops.front().forward);
}

TEST_CASE("device_named reads names, and cuda_buffer_size rounds up") {
  CHECK(device_named("emulated") == Device::emulated);
  CHECK_THROWS_WITH_AS(device_named("gpu"),
                       "there is no device 'gpu': choose cpu, cuda or emulated", Error);
  CHECK_THROWS_WITH_AS(device_memory(Device::cpu),
                       "the CPU has no DeviceMemory: its tensors are read and written in place",
                       Error);
  constexpr std::size_t mib = 1 << 20;
  CHECK(cuda_buffer_size(0) == 512);
  CHECK(cuda_buffer_size(512) == 512);
  CHECK(cuda_buffer_size(513) == 1024);
  CHECK(cuda_buffer_size(mib) == mib);
  CHECK(cuda_buffer_size(mib + 1) == 2 * mib);
  CHECK(cuda_buffer_size(5 * mib) == 6 * mib);
}
