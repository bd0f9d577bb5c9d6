// The calibration of matrix products: what is measured is kept, and a program that begins to
// compute goes by it.
#include "training/product_calibration.hpp"
#include "base/read_file.hpp"

#include <cstdlib>

#include <doctest/doctest.h>

#include "autograd/kernels/products/onednn.hpp"
#include "autograd/kernels/threads/blas_threads.hpp"
#include "base/environment.hpp"
#include "base/json.hpp"
#include "collectives/selection/calibration_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "training/matrix_libraries.hpp"

using namespace ringside;
using namespace ringside::training;
using namespace ringside::testing;
using autograd::library_for;
using autograd::MatrixLibrary;
using autograd::product_kinds;
using autograd::ProductKind;

namespace {

// A cache folder of this test, used while the object lives. At the end all products go to the BLAS.
class CacheFolder {
 public:
  CacheFolder() { ::setenv("XDG_CACHE_HOME", directory_.path().c_str(), 1); }
  ~CacheFolder() {
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
    for (const ProductKind& kind : product_kinds) autograd::multiply_by(kind, MatrixLibrary::blas);
  }
  void write(const Json& content) const {
    directory_.write("ringside/calibration.json", content.dump());
  }
  Json read() const { return Json::parse(read_file(collectives::calibration_file())); }

 private:
  std::optional<std::string> before_ = environment("XDG_CACHE_HOME");
  TemporaryDirectory directory_;
};

std::size_t kinds_by_onednn() {
  std::size_t count = 0;
  for (const ProductKind& kind : product_kinds) count += library_for(kind) == MatrixLibrary::onednn;
  return count;
}

// oneDNN is faster for the first two kinds, and as fast for the third.
std::vector<ProductSpeed> two_faster() {
  std::vector<ProductSpeed> speeds;
  for (const ProductKind& kind : product_kinds) speeds.push_back({kind, 0.9});
  speeds[0].onednn_speed = 1.1, speeds[1].onednn_speed = 2, speeds[2].onednn_speed = 1;
  return speeds;
}

// How many kinds go to oneDNN where it is faster for that many.
std::size_t if_there(std::size_t faster) {
  return autograd::onednn().missing.empty() ? faster : 0;
}

// How many go there without an entry for this machine.
std::size_t by_default() {
  const bool unknown = training::blas_does_not_know_processor(autograd::blas_in_use().kernel,
                                                              training::vector_bits_here());
  return unknown ? if_there(product_kinds.size()) : 0;
}

}  // namespace

TEST_CASE("products go to the library that the calibration found to be faster") {
  const CacheFolder cache;
  begin_computing(1);
  CHECK(kinds_by_onednn() == by_default());  // no file
  keep_products(two_faster());
  CHECK(kinds_by_onednn() == by_default());  // only a program that begins reads it
  begin_computing(1);
  CHECK(kinds_by_onednn() == if_there(2));
  if (if_there(1) == 1) CHECK(library_for(product_kinds[1]) == MatrixLibrary::onednn);
  CHECK(library_for(product_kinds[2]) == MatrixLibrary::blas);
}

TEST_CASE("a new calibration takes the place of the old one, and other entries stay") {
  const CacheFolder cache;
  const Json of_a_transport = {{"transport", "tcp"}, {"alpha_us", 3}};
  cache.write({{"entries", {of_a_transport}}});
  keep_products(two_faster());
  keep_products({{product_kinds[4], 1.5}});
  const Json entries = cache.read().at("entries");
  REQUIRE(entries.size() == 2);
  CHECK(entries[0] == of_a_transport);
  CHECK(entries[1].at("onednn_speed") == Json{{"short NN", 1.5}});
  begin_computing(1);
  CHECK(kinds_by_onednn() == if_there(1));
}

TEST_CASE("an entry for another BLAS or host does not count, and unknown keys do no harm") {
  const CacheFolder cache;
  keep_products(two_faster());
  const Json good = cache.read();
  for (const char* key : {"blas", "host", "cores", "products"}) {
    CAPTURE(key);
    Json other = good;
    other["entries"][0][key] = "another";
    cache.write(other);
    begin_computing(1);
    CHECK(kinds_by_onednn() == by_default());
  }
  Json more = good;
  more["version"] = 7;
  more["entries"][0]["measured"] = "on a Sunday";
  more["entries"][0]["onednn_speed"]["medium NT"] = 3;
  cache.write(more);
  begin_computing(1);
  CHECK(kinds_by_onednn() == if_there(2));
}

TEST_CASE("with an invalid file libraries multiply as without one, and one sentence says so") {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "ringside" / "calibration.json";
  const auto step_with = [&](const std::string& text) {
    directory.write("ringside/calibration.json", text);
    return run_program({ringside_binary, "bench", "train", "--model", "tiny", "--batch", "1",
                        "--sequence", "16", "--steps", "1", "--threads", "1,2"},
                       {{"XDG_CACHE_HOME", directory.path()}});
  };
  const auto broken = step_with("no JSON");
  CHECK(broken.exit_code == 0);
  CHECK(contains(broken.err,
                 "ringside: " + path.string() +
                     " is invalid (it is not the JSON of a calibration), so algorithms and "
                     "libraries are selected as without a calibration; ringside bench --calibrate "
                     "writes a new file\n"));
  CHECK(broken.err.find("is invalid") == broken.err.rfind("is invalid"));
  CHECK(contains(step_with(R"({"entries": 3})").err, "(\"entries\" is not a list)"));
}

TEST_CASE("each kind is measured, and the report names the library of each") {
  const auto speeds = measure_products();
  if (!autograd::onednn().missing.empty()) {
    CHECK(speeds.empty());
    CHECK(contains(products_report(speeds),
                   "multiplies all fp32 matrices: " + autograd::onednn().missing));
    return;
  }
  REQUIRE(speeds.size() == product_kinds.size());
  for (const auto& [kind, speed] : speeds) CHECK((speed > 0.1 && speed < 10));
  const std::string report = products_report(two_faster());
  CHECK(contains(report, "\n  long NT    1.10  oneDNN multiplies\n"));
  CHECK(contains(report, "\n  long TN    1.00  the BLAS multiplies\n"));
  CHECK(report.find('\n') <= 80);
}
