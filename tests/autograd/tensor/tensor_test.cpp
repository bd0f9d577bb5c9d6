#include "autograd/tensor/tensor.hpp"

#include <cmath>
#include <thread>
#include <vector>

#include "autograd/kernels/rows.hpp"
#include "autograd/tensor/layout.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

TEST_CASE("a dtype is found by its name") {
  for (const DType type : {DType::fp32, DType::fp64, DType::int32, DType::bf16})
    CHECK(dtype_named(name_of(type)) == type);
  CHECK_THROWS_WITH_AS((void)dtype_named("fp16"),
                       "there is no dtype named 'fp16'; there are fp32, fp64, int32 and bf16",
                       Error);
}

TEST_CASE("a new tensor has the given shape, dtype and values") {
  const Tensor x = Tensor::full({2, 3}, 1.5);
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.strides() == Shape{3, 1});
  CHECK(x.dtype() == DType::fp32);
  CHECK(x.elements() == 6);
  CHECK(x.size(-1) == 3);
  CHECK(x.dim() == 2);
  CHECK(x.data<float>()[5] == 1.5f);
  CHECK(Tensor::scalar(3, DType::int32).item() == 3);
  CHECK(Tensor::scalar(3).shape().empty());
  CHECK(Tensor::zeros({0, 4}).elements() == 0);
  CHECK(Tensor::from<float>({1, 2}, {2}).dtype() == DType::fp32);
  CHECK(Tensor::from<std::int32_t>({1, 2}, {2, 1}).dtype() == DType::int32);
  CHECK(reinterpret_cast<std::uintptr_t>(Tensor::zeros({3}).data<float>()) % 64 == 0);
}

TEST_CASE("views share memory and know whether they are contiguous") {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor t = x.transpose(0, 1), n = x.narrow(0, 1, 1), column = x.narrow(1, 2, 1);
  CHECK(!t.is_contiguous());
  CHECK(n.is_contiguous());
  CHECK(!column.is_contiguous());
  CHECK(to_vector(t) == std::vector<double>{1, 4, 2, 5, 3, 6});
  CHECK(to_vector(column) == std::vector<double>{3, 6});
  x.data<double>()[5] = 60;
  CHECK(to_vector(n) == std::vector<double>{4, 5, 60});
  CHECK(t.contiguous().storage() != x.storage());
  CHECK(x.contiguous().is_same(x));
  CHECK(x.reshape({3, -1}).storage() == x.storage());
  CHECK(x.clone().storage() != x.storage());
  // The stride of a dimension of size 1 does not matter.
  CHECK(Tensor::zeros({2, 1, 3}).transpose(0, 1).is_contiguous());
  CHECK(Tensor::zeros({0, 5}).transpose(0, 1).is_contiguous());
  n.fill_(0);
  CHECK(to_vector(x) == std::vector<double>{1, 2, 3, 0, 0, 0});
  column.copy_(Tensor::from<double>({8, 9}, {2, 1}));
  CHECK(to_vector(x) == std::vector<double>{1, 2, 8, 0, 0, 9});
}

TEST_CASE("Rows finds the rows of any view") {
  const Tensor base = Tensor::empty({2, 3, 4, 5});
  for (std::int64_t i = 0; i < base.elements(); ++i) base.data<float>()[i] = static_cast<float>(i);
  for (const Tensor& view : {base, base.transpose(1, 2), base.transpose(0, 1), base.narrow(1, 1, 2),
                             base.narrow(0, 1, 1).transpose(1, 2), base.reshape({1, 24, 1, 5}),
                             base.transpose(0, 2).narrow(1, 2, 1)}) {
    const Rows rows(view);
    const Tensor dense = view.clone();
    REQUIRE(rows.count() * rows.length() == view.elements());
    for (std::int64_t r = 0; r < rows.count(); ++r)
      for (std::int64_t i = 0; i < rows.length(); ++i)
        REQUIRE(view.data<float>()[rows.offset(r) + i * rows.element_stride()] ==
                dense.data<float>()[r * rows.length() + i]);
  }
}

TEST_CASE("an undefined tensor, a wrong dtype and a wrong size throw errors that name them") {
  const auto says = [](const char* expected, auto call) {
    CHECK_THROWS_WITH_AS(call(), expected, Error);
  };
  const Tensor x = Tensor::zeros({2, 3});
  says("expected a defined tensor, got an undefined one (a missing gradient or bias?)",
       [] { Tensor().shape(); });
  says("expected a tensor of fp64, got fp32 [2, 3]", [&] { x.data<double>(); });
  says("size: dimension 2 of a tensor of shape [2, 3]", [&] { x.size(2); });
  says("item: expected a tensor of one element, got shape [2, 3]", [&] { x.item(); });
  says("values: expected a contiguous tensor, got shape [3, 2] with strides [1, 3]",
       [&] { x.transpose(0, 1).values<float>(); });
  says("Tensor::from: shape [2] has 2 elements, got 3 values", [] {
    Tensor::from<float>({1, 2, 3}, {2});
  });
  says("a tensor's sizes cannot be negative, got [2, -1]", [] { Tensor::zeros({2, -1}); });
  says("Tensor::view_of: fp32 [5] at offset 2 does not fit into a storage of 24 bytes",
       [&] { Tensor::view_of(x.storage(), 2, {5}); });
  says("set_grad: expected fp32 [2, 3] as the tensor itself, got fp32 [3, 2]", [&] {
    x.set_grad(Tensor::zeros({3, 2}));
  });
  says("set_grad: expected a contiguous gradient, got strides [1, 2]", [&] {
    x.set_grad(Tensor::zeros({3, 2}).transpose(0, 1));
  });
  says("copy_: expected fp32 [2, 3], got fp32 [6]", [&] { x.copy_(Tensor::zeros({6})); });
  says("set_requires_grad: expected a tensor of fp32, fp64 or bf16, got int32",
       [] { Tensor::zeros({1}, DType::int32).set_requires_grad(true); });
  Tensor w = Tensor::zeros({2}).set_requires_grad(true), y = w + w;
  says("set_requires_grad: expected a leaf, got the result of add; detach() it first",
       [&] { y.set_requires_grad(false); });
  says(
      "register_hook: expected the result of an op, got a leaf; use "
      "register_post_accumulate_grad_hook for a leaf",
      [&] { w.register_hook([](const Tensor&) {}); });
}

TEST_CASE("set_data points a parameter at a flat buffer and keeps its identity") {
  const Tensor flat = Tensor::from<double>({1, 2, 3, 4}, {4});
  const Tensor p = Tensor::zeros({2}, DType::fp64).set_requires_grad(true), copy = p;
  int fired = 0;
  p.register_post_accumulate_grad_hook([&](const Tensor&) { ++fired; });
  p.set_data(flat.narrow(0, 2, 2));
  CHECK(to_vector(copy) == std::vector<double>{3, 4});
  backward(sum(mul(copy, copy)));
  CHECK(to_vector(p.grad()) == std::vector<double>{6, 8});
  CHECK(fired == 1);
  CHECK_THROWS_AS(p.set_data(flat), Error);
}

TEST_CASE("a dropped storage frees its memory, and reading it throws") {
  const std::int64_t before = memory_use().current;
  const Tensor x = Tensor::full({1000}, 1);
  CHECK(memory_use().current - before == 4000);
  x.storage()->drop();
  x.storage()->drop();
  CHECK(memory_use().current == before);
  CHECK_THROWS_WITH_AS(
      x.data<float>(),
      "the memory of this tensor of shape [1000] is dropped (Storage::drop) and not restored yet",
      Error);
  x.storage()->restore();
  x.fill_(2);
  CHECK(x.data<float>()[999] == 2);
  CHECK(memory_use().current - before == 4000);
}

TEST_CASE("memory use and its peak are counted per thread") {
  reset_peak_memory();
  const std::int64_t before = memory_use().current;
  { const Tensor large = Tensor::zeros({1 << 20}); }
  CHECK(memory_use().current == before);
  CHECK(memory_use().peak - before == 4 << 20);
  reset_peak_memory();
  CHECK(memory_use().peak == before);
  Tensor from_elsewhere;
  std::thread([&] {
    from_elsewhere = Tensor::zeros({1 << 20});
    CHECK(memory_use().current == 4 << 20);
  }).join();
  CHECK(memory_use().current == before);
  from_elsewhere = {};  // freed on this thread, counted for the other
  CHECK(memory_use().current == before);
}

TEST_CASE("a freed buffer is cached for the next tensor of its size") {
  release_cached_memory();
  const float* address = nullptr;
  {
    const Tensor x = Tensor::empty({100000});
    address = x.data<float>();
  }
  const Tensor y = Tensor::empty({100000});
  CHECK(y.data<float>() == address);
  release_cached_memory();
}

TEST_CASE("a freed buffer returns to the thread that allocated it, while that thread lives") {
  release_cached_memory();
  Tensor x = Tensor::empty({100000});
  const float* const address = x.data<float>();
  const auto fetched = system_allocations();
  std::thread([&] { x = {}; }).join();  // freed on another thread
  x = Tensor::empty({100000});
  CHECK(x.data<float>() == address);
  CHECK(system_allocations() == fetched);
  std::thread([&] { x = Tensor::full({100000}, 3); }).join();  // outlives its thread
  CHECK(x.values<float>().back() == 3);
  x = {};
  release_cached_memory();
}
