// The lecture's five programs: what they print, as processes and as threads, and that they stay
// short; and the code that the pages show of them.
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

const std::string source_dir = RINGSIDE_SOURCE_DIR;
const std::vector<std::string> names{"collective_operations", "bandwidth", "data_parallelism",
                                     "tensor_parallelism", "pipeline_parallelism"};

std::string program(const std::string& name) {
  return RINGSIDE_EXAMPLES "/" + name;
}

// The output on n ranks, which are processes. It is the same from threads, but for times and last
// digits: another transport may select another algorithm, which adds in another order.
std::string output_of(const std::string& name, int n) {
  const std::string ranks = std::to_string(n);
  // Else threads and processes may take algorithms that add in different orders.
  const Variables ring{
      {"RINGSIDE_ALGORITHM", "all_reduce=ring,reduce_scatter=ring,all_gather=ring"}};
  const Outcome processes = run_program(
      {ringside_binary, "launch", "--bare", "-n", ranks, "--", program(name)}, ring, Seconds(100));
  const Outcome threads = run_program({program(name), "--threads", ranks}, ring, Seconds(100));
  for (const Outcome& outcome : {processes, threads}) {
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err == "");
    CHECK(outcome.survivors == "");
  }
  const std::regex varies(
      "over [a-z]+|[0-9.]+ (ms|GB/s)|(parameters|process) [-.0-9e]+| +(?=[0-9.])");
  CHECK(std::regex_replace(threads.out, varies, "") ==
        std::regex_replace(processes.out, varies, ""));
  return processes.out;
}

// The numbers that a pattern finds, one for each match.
std::vector<std::string> found(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> all;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    all.push_back((*match)[1]);
  return all;
}

}  // namespace

TEST_CASE("collective_operations prints each rank before and after, in the order of ranks") {
  CHECK(output_of("collective_operations", 3) ==
        "rank 0  before all_reduce      [0, 1, 2]\n"
        "rank 1  before all_reduce      [1, 2, 3]\n"
        "rank 2  before all_reduce      [2, 3, 4]\n"
        "rank 0  after  all_reduce      [3, 6, 9]\n"
        "rank 1  after  all_reduce      [3, 6, 9]\n"
        "rank 2  after  all_reduce      [3, 6, 9]\n"
        "rank 0  before reduce_scatter  [0, 1, 2]\n"
        "rank 1  before reduce_scatter  [1, 2, 3]\n"
        "rank 2  before reduce_scatter  [2, 3, 4]\n"
        "rank 0  after  reduce_scatter  [3]\n"
        "rank 1  after  reduce_scatter  [6]\n"
        "rank 2  after  reduce_scatter  [9]\n"
        "rank 0  before all_gather      [3]\n"
        "rank 1  before all_gather      [6]\n"
        "rank 2  before all_gather      [9]\n"
        "rank 0  after  all_gather      [3, 6, 9]\n"
        "rank 1  after  all_gather      [3, 6, 9]\n"
        "rank 2  after  all_gather      [3, 6, 9]\n"
        "rank 0  all_reduce and reduce_scatter + all_gather of 12288 numbers: the same bits\n"
        "rank 1  all_reduce and reduce_scatter + all_gather of 12288 numbers: the same bits\n"
        "rank 2  all_reduce and reduce_scatter + all_gather of 12288 numbers: the same bits\n");
}

TEST_CASE("bandwidth counts the bytes that the formula of the lecture has") {
  const std::string out = output_of("bandwidth", 4);
  CAPTURE(out);
  CHECK(contains(out, "4 ranks over "));
  // 4 MB: 2 * 3 / 4 of them in an all-reduce, 3 / 4 in a reduce-scatter.
  CHECK(found(out, "all_reduce .* sent ([0-9.]+) MB") == std::vector<std::string>(4, "6.0"));
  CHECK(found(out, "reduce_scatter .* sent ([0-9.]+) MB") == std::vector<std::string>(4, "3.0"));
  CHECK(found(out, "lecture +([0-9.]+) GB/s") == found(out, "busbw +([0-9.]+) GB/s"));
}

TEST_CASE("in data_parallelism losses differ, parameters do not, and are those of one process") {
  const std::string out = output_of("data_parallelism", 3);
  CAPTURE(out);
  for (int step = 0; step < 3; ++step) {
    const auto losses = found(out, fmt::format("step {}  rank .* loss ([0-9.]+)", step)),
               sums = found(out, fmt::format("step {}  rank .*parameters (-?[0-9.]+)", step)),
               whole = found(out, fmt::format("step {}  one process.* loss ([0-9.]+)", step));
    REQUIRE(losses.size() == 3);
    CHECK(std::set(losses.begin(), losses.end()).size() == 3);
    CHECK(std::set(sums.begin(), sums.end()).size() == 1);
    double mean = 0;
    for (const std::string& loss : losses) mean += std::stod(loss) / 3;
    REQUIRE(whole.size() == 1);
    CHECK(std::abs(mean - std::stod(whole[0])) < 2e-6);
  }
  const auto differences = found(out, "largest difference from one process ([-+.e0-9]+)");
  CHECK(differences.size() == 4);
  for (const std::string& difference : differences) CHECK(std::stod(difference) < 1e-6);
}

TEST_CASE("tensor_parallelism agrees with one process, and sends the bytes of its formulas") {
  for (const int n : {2, 3, 4}) {
    CAPTURE(n);
    const std::string out = output_of("tensor_parallelism", n);
    CAPTURE(out);
    const auto differences = found(out, "differs from one process by ([-+.e0-9]+)");
    CHECK(differences.size() == 2 * n);
    for (const std::string& difference : differences) CHECK(std::stod(difference) < 1e-6);
    // 4 bytes a number, batch 32, d = 16 n, 4 d between: an all-gather and a reduce-scatter of each
    // activation; two all-reduces of the outer ones.
    const int d = 16 * n;
    const auto bytes = [&](int features) { return 4 * 32 * features / n * (n - 1); };
    const std::vector<std::string> gathered(n, std::to_string(2 * bytes(4 * d) + 2 * bytes(d))),
        pair(n, std::to_string(2 * 2 * bytes(d)));
    CHECK(found(out, "all-gather +sent +([0-9]+) bytes") == gathered);
    CHECK(found(out, "pair +sent +([0-9]+) bytes") == pair);
  }
}

TEST_CASE("pipeline_parallelism has the gradients of one process bit for bit, with overlap too") {
  for (const int n : {1, 3}) {
    CAPTURE(n);
    const std::string ranks = std::to_string(n);
    const Outcome outcome = run_program({program("pipeline_parallelism"), "--threads", ranks});
    CHECK(outcome.exit_code == 0);
    CHECK(found(outcome.out, "gradient equal to one process: ([a-z]+)") ==
          std::vector<std::string>(2 * n, "true"));
  }
  const std::string out = output_of("pipeline_parallelism", 4);
  CHECK(found(out, "(rank [0-9])  one call after the other").size() == 4);
  CHECK(found(out, "(rank [0-9])  overlapped").size() == 4);
  CHECK_FALSE(contains(out, "false"));
}

TEST_CASE("each program has at most 100 lines of code") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir + "/examples")) {
    if (entry.path().extension() != ".cpp") continue;
    ++files;
    CAPTURE(entry.path());
    std::istringstream lines(read_file(entry.path().string()));
    int code = 0;
    for (std::string line; std::getline(lines, line);)
      code += !std::regex_match(line, std::regex(" *(//.*|#include.*)?"));
    CHECK(code <= 100);
    CHECK(code >= 40);
  }
  CHECK(files == 5);
}

TEST_CASE("the code that the pages show stands in the programs, and the demo names them") {
  std::string all;
  for (const std::string& name : names) {
    all += read_file(source_dir + "/examples/" + name + ".cpp");
    const std::string page = read_file(source_dir + "/docs/examples.md");
    CHECK(contains(page, name));
    CHECK(contains(read_file(source_dir + "/demo"), name));
    CHECK(std::filesystem::exists(source_dir + "/examples/python/" + name + ".py"));
  }
  for (const std::string page : {"README.md", "docs/examples.md", "docs/index.md"}) {
    CAPTURE(page);
    const auto blocks = found(read_file(source_dir + "/" + page), "```cpp\n([^`]*)```");
    CHECK(blocks.size() >= 1);
    for (const std::string& block : blocks) {
      CAPTURE(block);
      CHECK(contains(all, block));
    }
  }
}
