// The calibration file: what is written is read again, entries of other machines stay, and an
// invalid file is a warning.
#include "collectives/selection/calibration.hpp"
#include "collectives/selection/calibration_file.hpp"

#include <cstdlib>
#include <fstream>

#include <unistd.h>

#include <doctest/doctest.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"
#include "collectives/transport/link.hpp"

using namespace ringside;
using namespace ringside::collectives;
namespace fs = std::filesystem;

namespace {

// A cache folder of this test, used while the object lives.
class CacheFolder {
 public:
  CacheFolder() {
    before_ = environment("XDG_CACHE_HOME");
    ::setenv("XDG_CACHE_HOME", path_.c_str(), 1);
  }
  ~CacheFolder() {
    fs::remove_all(path_);
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  }
  void write(const std::string& text) const {
    fs::create_directories(calibration_file().parent_path());
    std::ofstream(calibration_file()) << text;
  }

 private:
  fs::path path_ =
      fs::temp_directory_path() / fmt::format("ringside-calibration-test-{}", ::getpid());
  std::optional<std::string> before_;
};

// Costs that differ from all built-in ones.
MachineCosts odd_costs(double factor) {
  MachineCosts costs = built_in_costs("tcp");
  costs.common.alpha = 0.001 * factor;
  costs.common.turn = 0.0005 * factor;
  costs.per_byte[1] = {1e-7 * factor, 2e-7 * factor, 3e-7 * factor};
  for (const char* name : {"ring", "two_shot"})
    costs.corrections.push_back(
        {number_of(find_algorithm(Collective::all_reduce, name)), 3, {1, 2, 3, 4, 5, 6, factor}});
  return costs;
}

// Within a relative error of 1e-5. (By default Approx also allows an absolute error, too large for
// microseconds.)
doctest::Approx about(double value) {
  return doctest::Approx(value).scale(1e-15);
}

void check_same(const MachineCosts& a, const MachineCosts& b) {
  CHECK(a.common.alpha == about(b.common.alpha));
  CHECK(a.common.turn == about(b.common.turn));
  CHECK(a.common.overhead == about(b.common.overhead));
  CHECK(a.common.cores == b.common.cores);
  for (std::size_t i = 0; i < std::size(MachineCosts::lengths); ++i) {
    CHECK(a.per_byte[i].beta == about(b.per_byte[i].beta));
    CHECK(a.per_byte[i].copy == about(b.per_byte[i].copy));
    CHECK(a.per_byte[i].gamma == about(b.per_byte[i].gamma));
  }
  CHECK(a.corrections == b.corrections);
}

}  // namespace

TEST_CASE("without a file the costs are built in, and differ between transports") {
  const CacheFolder cache;
  for (const char* transport : {"tcp", "shm", "threads"}) {
    CHECK(costs_here(transport) == built_in_costs(transport));
    CHECK(built_in_costs(transport).common.overhead <= built_in_costs(transport).common.alpha);
    CHECK(built_in_costs(transport).common.cores >= 1);
  }
  CHECK(built_in_costs("shm").common.alpha < built_in_costs("tcp").common.alpha);
}

TEST_CASE("the file lies in XDG_CACHE_HOME or in the home folder's cache") {
  const CacheFolder cache;
  CHECK(calibration_file() ==
        fs::path(*environment("XDG_CACHE_HOME")) / "ringside" / "calibration.json");
  const auto home = environment("HOME");
  const std::string folder = *environment("XDG_CACHE_HOME");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/nowhere", 1);
  CHECK(calibration_file() == "/nowhere/.cache/ringside/calibration.json");
  ::unsetenv("HOME");
  CHECK(calibration_file() == "");
  CHECK(costs_here("tcp") == built_in_costs("tcp"));
  CHECK_THROWS_WITH_AS(keep_calibration({}),
                       "there is no folder for the calibration file: set HOME or XDG_CACHE_HOME",
                       Error);
  if (home) ::setenv("HOME", home->c_str(), 1);
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
}

TEST_CASE("costs that are written are read again, and entries of others stay") {
  const CacheFolder cache;
  keep_calibration({{"tcp", odd_costs(1)}, {"shm", odd_costs(2)}});
  check_same(costs_here("tcp"), odd_costs(1));
  check_same(costs_here("shm"), odd_costs(2));
  CHECK(costs_here("threads") == built_in_costs("threads"));

  Json file = Json::parse(read_file(calibration_file()));
  Json elsewhere = file["entries"][0];
  elsewhere["host"] = "some-other-host";
  elsewhere["alpha_us"] = 77;
  file["entries"].push_back(elsewhere);
  cache.write(file.dump());
  keep_calibration({{"tcp", odd_costs(3)}});
  check_same(costs_here("tcp"), odd_costs(3));
  check_same(costs_here("shm"), odd_costs(2));
  file = Json::parse(read_file(calibration_file()));
  REQUIRE(file["entries"].size() == 3);
  CHECK(std::count_if(file["entries"].begin(), file["entries"].end(),
                      [](const auto& entry) { return entry["host"] == "some-other-host"; }) == 1);
  CHECK(std::distance(fs::directory_iterator(calibration_file().parent_path()),
                      fs::directory_iterator()) == 1);  // no temporary file is left
}

TEST_CASE("an entry for another host or another number of cores is not for this machine") {
  const CacheFolder cache;
  keep_calibration({{"tcp", odd_costs(1)}});
  for (const char* key : {"host", "cores", "transport"}) {
    Json file = Json::parse(read_file(calibration_file()));
    const auto before = file;
    file["entries"][0][key] = std::string(key) == "cores" ? Json(4711) : Json("other");
    cache.write(file.dump());
    CHECK(costs_here("tcp") == built_in_costs("tcp"));
    cache.write(before.dump());
    check_same(costs_here("tcp"), odd_costs(1));
  }
}

TEST_CASE("behind a link there are no corrections") {
  const CacheFolder cache;
  keep_calibration({{"tcp", odd_costs(1)}});
  CHECK(costs_here("tcp").corrections.size() == 2);
  CHECK(behind_link(costs_here("tcp"), parse_link("1Gbps,50us")).corrections.empty());
}

TEST_CASE("a file of a version without corrections holds") {
  const CacheFolder cache;
  keep_calibration({{"tcp", odd_costs(1)}});
  Json file = Json::parse(read_file(calibration_file()));
  file["entries"][0].erase("corrections");
  file["entries"][0].erase("corrected_bytes");
  cache.write(file.dump());
  MachineCosts expected = odd_costs(1);
  expected.corrections.clear();
  check_same(costs_here("tcp"), expected);
}

TEST_CASE("ranks with the same costs have the same checksum, and others another") {
  const CacheFolder cache;
  CHECK(checksum_of(calibration_here().costs) == 0);
  keep_calibration({{"tcp", odd_costs(1)}});
  const auto one = checksum_of(calibration_here().costs);
  CHECK(one != 0);
  CHECK(checksum_of(calibration_here().costs) == one);
  keep_calibration({{"shm", odd_costs(1)}});
  CHECK(checksum_of(calibration_here().costs) != one);
  MachineCosts costs = odd_costs(1);
  costs.per_byte[2].gamma *= 1.001;
  CHECK(checksum_of({{"tcp", costs}}) != checksum_of({{"tcp", odd_costs(1)}}));
  cache.write("{");
  const Calibration invalid = calibration_here();
  CHECK(invalid.costs.empty());
  CHECK(invalid.fault == "it is not the JSON of a calibration");
}

TEST_CASE("an invalid file counts as missing and is replaced") {
  const CacheFolder cache;
  keep_calibration({{"tcp", odd_costs(1)}});
  const Json good = Json::parse(read_file(calibration_file()));
  std::vector<std::string> broken{
      "", "{", "[]", "null", "{\"entries\": 5}", "{\"entries\": [7]}", "\xff\xfe\x00garbage"};
  for (const char* key : {"alpha_us", "beta_ns_per_byte", "buffer_bytes"})
    for (const Json& value : {Json(-1), Json("x"), Json(), Json::array({1, 2}), Json(1e300)}) {
      Json file = good;
      file["entries"][0][key] = value;
      broken.push_back(file.dump());
      file["entries"][0].erase(key);
      broken.push_back(file.dump());
    }
  for (const char* key : {"collective", "algorithm", "ranks", "measured_over_walked"})
    for (const Json& value : {Json("x"), Json(), Json::array({0, 0, 0, 0, 0, 0, 0})}) {
      Json file = good;
      file["entries"][0]["corrections"][1][key] = value;
      broken.push_back(file.dump());
    }
  Json of_others = good;
  of_others["entries"][0]["corrected_bytes"][2] = 4711;
  broken.push_back(of_others.dump());
  for (const std::string& text : broken) {
    CAPTURE(text);
    cache.write(text);
    CHECK(costs_here("tcp") == built_in_costs("tcp"));
    CHECK_NOTHROW(keep_calibration({{"shm", odd_costs(2)}}));
    check_same(costs_here("shm"), odd_costs(2));
  }
}

TEST_CASE("a folder that cannot be written to is an error that names it") {
  const CacheFolder cache;
  const std::string folder = *environment("XDG_CACHE_HOME");
  fs::create_directories(folder);
  std::ofstream(fs::path(folder) / "ringside") << "a file where a folder should be";
  CHECK_THROWS_WITH_AS(keep_calibration({{"tcp", odd_costs(1)}}),
                       fmt::format("cannot write the calibration to {}: make the folder writable, "
                                   "or set XDG_CACHE_HOME to another one",
                                   (fs::path(folder) / "ringside" / "calibration.json").string())
                           .c_str(),
                       Error);
  CHECK(costs_here("tcp") == built_in_costs("tcp"));
}
