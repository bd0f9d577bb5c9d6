#include "training/product_calibration.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "autograd/kernels/products/onednn.hpp"
#include "autograd/kernels/threads/blas_threads.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "base/clock.hpp"
#include "base/environment.hpp"
#include "collectives/selection/calibration_file.hpp"
#include "training/matrix_libraries.hpp"

namespace ringside::training {
namespace {

using autograd::MatrixLibrary;
using autograd::product_kinds;
using autograd::ProductKind;
using autograd::Transpose;
using collectives::CalibrationEntry;

constexpr int rounds = 15;
constexpr double flops_of_a_sample = 5e8;  // a few milliseconds

std::string blas_here() {
  const autograd::BlasInUse blas = autograd::blas_in_use();
  return blas.name + (blas.kernel.empty() ? "" : " " + blas.kernel);
}

CalibrationEntry key_here() {
  return collectives::calibration_key({{"products", "fp32"}, {"blas", blas_here()}});
}

struct Shape {
  std::int64_t m, n, k;
};

// A product of the model lab: of a linear layer with 1024 tokens, or of attention.
Shape typical(const ProductKind& kind) {
  if (kind.a == Transpose::yes) return kind.is_short ? Shape{128, 32, 64} : Shape{512, 512, 1024};
  if (kind.b == Transpose::yes) return kind.is_short ? Shape{64, 128, 32} : Shape{1024, 512, 512};
  return kind.is_short ? Shape{64, 32, 128} : Shape{1024, 512, 512};
}

double measure(const ProductKind& kind) {
  const auto [m, n, k] = typical(kind);
  const auto elements = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::size_t>(a * b);
  };
  const std::vector<float> a(elements(m, k), 0.5f), b(elements(k, n), 0.25f);
  std::vector<float> c(elements(m, n));
  const std::int64_t lda = kind.a == Transpose::yes ? m : k, ldb = kind.b == Transpose::yes ? k : n;
  const int calls =
      std::max(1, static_cast<int>(flops_of_a_sample / (2.0 * static_cast<double>(m * n * k))));
  const auto seconds = [&](MatrixLibrary library) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i)
      autograd::fp32_product(library, kind.a, kind.b, m, n, k, 1, a.data(), lda, b.data(), ldb, 0,
                             c.data(), n);
    return seconds_since(start);
  };
  std::vector<double> ratios;
  seconds(MatrixLibrary::blas), seconds(MatrixLibrary::onednn);  // warm up
  for (int i = 0; i < rounds; ++i) {
    const double blas = seconds(MatrixLibrary::blas);
    ratios.push_back(blas / seconds(MatrixLibrary::onednn));
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[rounds / 2];  // the median
}

// The speeds of the file by name_of(kind); empty if it has none for this machine.
std::map<std::string, double> kept_speeds() {
  try {
    if (const auto entry = collectives::find_calibration(key_here()))
      return entry->at("onednn_speed").get<std::map<std::string, double>>();
  } catch (const std::exception& error) {
    if (environment("RANK").value_or("0") == "0")
      collectives::warn_of_invalid_calibration(collectives::fault_of_calibration(error));
  }
  return {};
}

}  // namespace

std::vector<ProductSpeed> measure_products() {
  std::vector<ProductSpeed> speeds;
  if (autograd::onednn().missing.empty())
    for (const ProductKind& kind : product_kinds) speeds.push_back({kind, measure(kind)});
  return speeds;
}

void keep_products(const std::vector<ProductSpeed>& speeds) {
  CalibrationEntry entry = key_here();
  entry["onednn_speed"] = CalibrationEntry::object();
  for (const auto& [kind, speed] : speeds) entry["onednn_speed"][name_of(kind)] = speed;
  collectives::keep_in_calibration({{key_here(), entry}});
}

std::string products_report(const std::vector<ProductSpeed>& speeds) {
  const std::string blas = blas_here().empty() ? "the BLAS" : blas_here();
  if (speeds.empty())
    return fmt::format("{} multiplies all fp32 matrices: {}.\n", blas, autograd::onednn().missing);
  std::string text = fmt::format("oneDNN's speed ({} = 1) by kind of fp32 product:\n", blas);
  for (const auto& [kind, speed] : speeds)
    text += fmt::format("  {:<9}{:>6.2f}  {}\n", name_of(kind), speed,
                        speed > 1 ? "oneDNN multiplies" : "the BLAS multiplies");
  return text;
}

void begin_computing(int threads) {
  autograd::set_threads(threads);
  const auto speeds = kept_speeds();
  const bool otherwise_onednn =
      speeds.empty() &&
      blas_does_not_know_processor(autograd::blas_in_use().kernel, vector_bits_here());
  for (const ProductKind& kind : product_kinds) {
    const auto found = speeds.find(name_of(kind));
    const bool faster = found != speeds.end() ? found->second > 1 : otherwise_onednn;
    autograd::multiply_by(kind, faster ? MatrixLibrary::onednn : MatrixLibrary::blas);
  }
}

}  // namespace ringside::training
