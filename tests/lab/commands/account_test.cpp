// `ringside account` as a user sees it.
#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/pictures/report/markup.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside::testing;
using ringside::Json;

namespace {

Outcome account(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ringside_binary, "account"});
  return run_program(arguments);
}

std::string output_of(const std::vector<std::string>& arguments) {
  const Outcome outcome = account(arguments);
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  for (const std::string& line : sorted_lines(outcome.out)) {
    CAPTURE(line);
    CHECK(line.size() <= 80);
  }
  return outcome.out;
}

std::string error_of(const std::vector<std::string>& arguments, int exit_code = 1) {
  const Outcome outcome = account(arguments);
  CHECK(outcome.exit_code == exit_code);
  CHECK(outcome.out == "");
  return outcome.err;
}

}  // namespace

TEST_CASE("--explain answers the questions of the course") {
  CHECK(contains(output_of({"--model", "xxl", "--memory", "80GB"}), "at least 44 devices of 80"));
  const std::string devices = output_of({"--model", "xxl", "--memory", "95GB", "--explain"});
  CHECK(contains(devices, "devices that hold the state, and nothing else\n"));
  CHECK(contains(devices, " = 38 devices\n"));
  CHECK(contains(devices, " = 61 devices\n"));
  const auto bounds = [](const char* mesh) {
    return output_of({"--model", "xxl", "--mesh", mesh, "--machine", "tpu-v5p", "--torus",
                      "fsdp=2,tp=1", "--explain"});
  };
  const std::string given = bounds("fsdp=16,tp=4");
  for (const char* tokens : {"319.4 tokens", "395.3 tokens", "61.32 tokens"})
    CHECK(contains(given, fmt::format(" = {}\n", tokens)));
  // Where tensor parallel alone takes longer than computing, no batch is large enough.
  CHECK(contains(bounds("fsdp=2,tp=32"), " = inf"));
  CHECK(!contains(bounds("fsdp=64"), "Least batch"));
}

TEST_CASE("a plan is printed as tables, explained, and written as JSON, with the same figures") {
  const std::vector<std::string> plan = {
      "--model", "korthikanti-22b", "--mesh", "tp=8",          "--machine",
      "a100",    "--recompute",     "full",   "--micro-batch", "4"};
  const std::string table = output_of(plan);
  CHECK(contains(table, "model    korthikanti-22b: 22,074,273,792 parameters"));
  CHECK(contains(table, "What binds: matrix products"));
  std::vector<std::string> more = plan;
  more.emplace_back("--explain");
  const std::string explained = output_of(more);
  CHECK(explained.starts_with(table));
  CHECK(contains(explained,
                 "    A_block = 2 s b h\n            = 2 x 2,048 x 4 x 6,144\n"
                 "            = 100,663,296 B = 0.1007 GB\n"
                 "    [Korthikanti et al. 2022, table 2]\n"));
  more = plan;
  more.insert(more.end(), {"--json", "-"});
  const Outcome outcome = account(more);
  CHECK(outcome.err == table);
  const auto json = Json::parse(outcome.out);
  CHECK(json.at("devices") == 8);
  CHECK(json.at("stages").at(0).at("memory_bytes").at("activations") == 4831838208.0);
  bool found = false;
  for (const auto& formula : json.at("formulas"))
    found = found || (formula.at("symbol") == "A" && formula.at("value") == 4831838208.0);
  CHECK(found);
}

TEST_CASE("every model and machine of the list can be accounted for") {
  const std::string list = output_of({"--list"});
  for (const char* model :
       {"tiny", "xl", "xxl", "llama3-405b", "deepseek-v3", "zero-7.5b", "megatron-1008b"}) {
    CHECK(contains(list, fmt::format("  {}", model)));
    output_of({"--model", model});
  }
  for (const char* machine : {"a100", "h100", "laptop", "llama3", "tpu-v5p"}) {
    CHECK(contains(list, fmt::format("\n  {:10}", machine)));
    output_of({"--model", "lab", "--mesh", "dp=2", "--machine", machine});
  }
}

// 32 blocks of 8 key heads of 128, 32768 tokens in bf16: S = 32768 * 2 * 1024 * 2 bytes of keys and
// values. A rank sends 3/4 S in forward; 3/4 S, and 4/4 S in fp32, in backward.
TEST_CASE("context parallel, and copies of shards, are accounted for") {
  const auto sent = [](std::vector<std::string> options, const std::string& axis) {
    options.insert(options.begin(), {"--model", "llama3-8b", "--sequence", "32768", "--json", "-"});
    const auto json = Json::parse(account(options).out);
    double bytes = 0;
    for (const auto& each : json.at("traffic"))
      if (each.at("axis") == axis) bytes += each.at("sent_bytes").get<double>();
    return bytes;
  };
  const double s = 32768.0 * 2 * 1024 * 2;
  CHECK(sent({"--mesh", "fsdp=4,cp=4"}, "cp") == doctest::Approx(32 * s * (0.75 + 0.75 + 2)));
  CHECK(sent({"--mesh", "fsdp=4,cp=4", "--context", "all_gather"}, "cp") ==
        doctest::Approx(32 * s * 1.5));
  CHECK(sent({"--mesh", "fsdp=4,cp=4", "--context", "ulysses"}, "cp") ==
        doctest::Approx(32 * 2 * 0.75 * (2 * 4096 + 2 * 1024) * 2 * 32768 / 4));
  // 8,030,261,248 parameters in 4 x 4 shards, two copies of each.
  CHECK(sent({"--mesh", "dp=2,fsdp=4,cp=4"}, "dp") == doctest::Approx(8030261248.0 / 16 * 2));
}

TEST_CASE("--fit lists meshes, or says how much memory would do") {
  const std::string fits =
      output_of({"--model", "llama3-8b", "--fit", "--devices", "16", "--memory", "80GB"});
  CHECK(contains(fits, "of their meshes fit into 80 GB per device"));
  CHECK(contains(fits, "fsdp=16"));
  const std::string none =
      output_of({"--model", "llama3-8b", "--fit", "--devices", "4", "--memory", "1GiB"});
  CHECK(contains(none, "0 of their meshes fit into 1.074 GB per device"));
  CHECK(contains(none, "the least that any plan needs is"));
}

TEST_CASE("--overlap is the share of communication that computing hides") {
  const TemporaryDirectory directory;
  const std::string path = (directory.path() / "plan.json").string();
  const auto step = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"--model", "llama3-8b", "--mesh", "dp=64", "--json", path});
    output_of(options);
    return Json::parse(read_file(path));
  };
  const auto hidden = [](const Json& json) {
    return json["traffic"][0]["hidden_seconds"].get<double>();
  };
  const auto all = step({}), half = step({"--overlap", "0.5"}), none = step({"--overlap", "0"});
  CHECK(hidden(none) == 0);
  CHECK(hidden(half) > 0);
  CHECK(none["step_seconds"].get<double>() ==
        doctest::Approx(all["step_seconds"].get<double>() + hidden(all)));
  CHECK(contains(error_of({"--model", "llama3-8b", "--overlap", "2"}, 2),
                 "a number from 0 to 1 is expected, not 2"));
}

TEST_CASE("--tokens says how many days and device hours a plan trains") {
  const TemporaryDirectory directory;
  const std::string path = (directory.path() / "plan.json").string();
  const std::vector<std::string> plan{"--model", "llama3-8b", "--mesh",
                                      "fsdp=64", "--tokens",  "15T"};
  std::vector<std::string> with_json = plan;
  with_json.insert(with_json.end(), {"--json", path});
  const std::string text = output_of(with_json);
  const auto json = Json::parse(read_file(path));
  const double steps = std::ceil(15e12 / (64 * 8192));
  CHECK(json["training_tokens"] == 15e12);
  CHECK(json["training_steps"] == steps);
  const double days = steps * json["step_seconds"].get<double>() / 86400;
  CHECK(json["training_days"].get<double>() == doctest::Approx(days));
  CHECK(json["device_hours"].get<double>() == doctest::Approx(24 * 64 * days));
  CHECK(contains(text, "15,000,000,000,000 tokens take 28,610,230 steps: "));
  CHECK(contains(text, " device hours\n"));
  // In the list of meshes the days take the place of MFU.
  const std::string list =
      output_of({"--model", "llama3-8b", "--fit", "--devices", "8", "--tokens", "15T"});
  CHECK(contains(list, " days\n"));
  CHECK(!contains(list, "MFU"));
  CHECK(!contains(output_of({"--model", "llama3-8b"}), "device hours"));
  for (const char* wrong : {"many", "15Q", "0", "-3B", "inf", "1e", ""}) {
    CAPTURE(wrong);
    CHECK(contains(error_of({"--model", "llama3-8b", "--tokens", wrong}, 2),
                   "is no number of tokens: write it as 15T, 300B or 1e9"));
  }
}

TEST_CASE("a page is well-formed, self-contained, and has every figure") {
  const TemporaryDirectory directory;
  const std::string path = (directory.path() / "plan.html").string();
  output_of({"--model", "llama3-8b", "--mesh", "pp=4,dp=2,tp=2", "--micro-batches", "8",
             "--sequence-parallel", "--html", path});
  const std::string page = read_file(path);
  CHECK(ringside::tests::what_is_malformed(page) == "");
  CHECK(!contains(page, "http://"));
  for (const char* title :
       {"Memory of a rank", "Communication of a rank of the busiest stage, in one step",
        "Time of a step, on the busiest stage"})
    CHECK(contains(page, fmt::format("<h2>{}</h2>", title)));
  for (const char* stage : {"first stage", "middle stage", "last stage"})
    CHECK(contains(page, fmt::format("lane-name\">{}</span>", stage)));
  // A state alone has a page too.
  output_of({"--model", "deepseek-v3", "--mesh", "fsdp=1024", "--html", path});
  CHECK(ringside::tests::what_is_malformed(read_file(path)) == "");
}

TEST_CASE("each part of a figure has a colour of its own") {
  const TemporaryDirectory directory;
  const std::string path = (directory.path() / "plan.html").string();
  output_of({"--model", "llama3-70b", "--mesh", "pp=4,dp=2,tp=8", "--micro-batches", "16", "--html",
             path});
  const std::string page = read_file(path);
  const std::regex entry(
      R"x(<g class="(c\d)"><rect width="20" height="12" /></g></svg>([^<]*)</li>)x");
  for (const char* title : {"<h2>Memory of a rank", "<h2>Time of a step, on the busiest stage"}) {
    CAPTURE(title);
    std::size_t begin = page.find(title);
    REQUIRE(begin != std::string::npos);
    begin = page.find("<ul class=\"legend\">", begin);
    const std::string legend = page.substr(begin, page.find("</ul>", begin) - begin);
    std::set<std::string> colours;
    std::size_t entries = 0;
    for (std::sregex_iterator i(legend.begin(), legend.end(), entry), end; i != end; ++i)
      colours.insert((*i)[1]), ++entries;
    CHECK(entries >= 6);
    CHECK(colours.size() == entries);
  }
}

TEST_CASE("what is an estimate is called one") {
  const std::string explained = output_of({"--model", "lab", "--machine", "h100", "--explain"});
  CHECK(contains(explained, "Where the figures of h100 come from\n  NVIDIA H100 datasheet"));
  CHECK(contains(explained, "Estimates: 65 % of the"));
  for (const char* machine : {"a100", "h100", "h100-nvls", "llama3", "p5", "tpu-v5p"})
    CHECK(contains(output_of({"--model", "lab", "--machine", machine, "--explain"}), "Estimates:"));
}

TEST_CASE("wrong arguments get one sentence") {
  CHECK(error_of({}, 2) ==
        "ringside: --model is required: a name, or the path of a config.json\n"
        "Try: ringside account --help\n");
  CHECK(error_of({"--model", "xxl", "--memory", "80 cards"}, 2) ==
        "ringside: --memory: '80 cards' is not a number of bytes: write 4B, 64KB (64000 bytes), "
        "64KiB (65536 bytes), 10MB or 1GB\nTry: ringside account --help\n");
  CHECK(error_of({"--model", "lab", "--mesh", "dp=3", "--batch", "8"}) ==
        "ringside: a batch of 8 sequences does not divide into micro-batches of 1 on 3 "
        "data-parallel ranks\n");
  CHECK(error_of({"--model", "lab", "--mesh", "tp=3"}) ==
        "ringside: the 16 heads of lab do not divide by tp=3\n");
}
