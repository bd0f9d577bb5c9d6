#include "bench/operands.hpp"

#include <cmath>
#include <set>
#include <span>

#include <doctest/doctest.h>

#include "autograd/kernels/copy.hpp"

using namespace ringside::autograd;
using ringside::cli::RandomOperands;

TEST_CASE("operands of measured products are random numbers, not constants") {
  for (const Device device : {Device::cpu, Device::emulated})
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      CAPTURE(name_of(device));
      CAPTURE(name_of(dtype));
      RandomOperands operands(dtype, device);
      const std::int64_t rows = 1100, columns = 1000;  // longer than the sequence
      const auto numbers_of = [](const Tensor& x) { return to_compute_dtype(x.to(Device::cpu)); };
      const Tensor a = operands.make({rows, columns}), b = operands.make({rows, columns});
      CHECK(a.device() == device);
      CHECK(a.dtype() == dtype);
      const Tensor of_a = numbers_of(a), of_b = numbers_of(b);
      const std::span<const float> x = of_a.values<float>(), y = of_b.values<float>();
      double sum = 0, squares = 0, products = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum += static_cast<double>(x[i]);
        squares += std::pow(static_cast<double>(x[i]), 2);
        products += static_cast<double>(x[i]) * static_cast<double>(y[i]);
      }
      const double n = static_cast<double>(x.size());
      CHECK(std::abs(sum / n) < 0.01);
      CHECK(squares / n == doctest::Approx(1).epsilon(0.02));
      CHECK(std::abs(products / n) < 0.01);  // a and b are not alike
      CHECK(std::set<float>(x.begin(), x.begin() + columns).size() > 300);
      CHECK(!std::equal(x.begin(), x.begin() + columns, x.begin() + columns));  // nor are rows
    }
}
