// `ringside watch -- PROGRAM ARGS`: what a torch program does over Ringside, rank by rank. Each
// rank leaves a report (python/ringside/witness.py); here they are joined, shown and judged.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "base/text/words.hpp"
#include "cli/launcher/rank_process.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"

namespace ringside::cli {
namespace {

struct WatchArguments {
  std::string folder;
  std::vector<std::string> expect;
  std::string json;
  std::vector<std::string> command;
};

constexpr double nearly_all = 0.95, unbalanced = 0.9;

// From the start of a process group to its end.
struct Run {
  std::vector<Json> ranks;  // in the order of ranks

  double sum(const char* key) const {
    double total = 0;
    for (const Json& rank : ranks) total += rank.at(key).get<double>();
    return total;
  }
  std::size_t models() const {
    std::size_t fewest = ranks.front().at("models").size();
    for (const Json& rank : ranks) fewest = std::min(fewest, rank.at("models").size());
    return fewest;
  }
  bool makes_call(const std::string& collective) const {
    const Json& calls = ranks.front().at("calls");
    return std::any_of(calls.begin(), calls.end(),
                       [&](const Json& call) { return call.at("collective") == collective; });
  }
};

double number_in(const Json& model, const char* key) {
  return model.at(key).get<double>();
}

double whole(const Json& model) {  // elements of the model's parameters, together
  return std::max({number_in(model, "computing"), number_in(model, "gathered"), 1.0});
}
double kept(const Json& model) {  // of them, what lies on this rank between two steps
  return std::max(number_in(model, "resting"), number_in(model, "kept")) / whole(model);
}
double with_state(const Json& model) {
  return number_in(model, "with_state") / std::max(1.0, number_in(model, "trained"));
}

// Whether every rank has nearly all of a model, by this share.
bool on_every_rank(const Run& run, std::size_t model, double (*share)(const Json&)) {
  return std::all_of(run.ranks.begin(), run.ranks.end(), [&](const Json& rank) {
    return share(rank.at("models")[model]) >= nearly_all;
  });
}

std::string shares_of(const Run& run, std::size_t model, double (*share)(const Json&)) {
  if (on_every_rank(run, model, share)) return "all on each rank";
  std::string text;
  for (const Json& rank : run.ranks)
    text += fmt::format("{}{:.0f} % on rank {}", text.empty() ? "" : ", ",
                        100 * share(rank.at("models")[model]), rank.at("rank").get<int>());
  return text;
}

// ---- What is expected of a run: nothing if it holds, or a sentence

std::optional<std::string> misses_overlap(const Run& run) {
  const double calls = run.sum("reductions"), waits = run.sum("waits_in_backward");
  if (calls == 0)
    return "no-calls: no call between backward and the optimizer's step reduces gradients";
  if (run.sum("early_reductions") == 0)
    return fmt::format(
        "sync-at-end: all {:.0f} calls that reduce gradients set out after the last "
        "gradient of their backward was ready, so nothing overlaps with it",
        calls);
  if (waits > 0)
    return fmt::format(
        "waits-in-hook: backward stood still {:.0f} times, {:.1f} ms in all, while it "
        "waited for a call",
        waits, 1e3 * run.sum("waited_in_backward_seconds"));
  return std::nullopt;
}

std::optional<std::string> misses_balance(const Run& run, std::size_t model) {
  for (const Json& rank : run.ranks) {
    const double share = with_state(rank.at("models")[model]);
    if (share >= unbalanced)
      return fmt::format(
          "by-count: rank {} keeps the optimizer's state of {:.0f} % of the parameters: "
          "give each parameter to the rank that has fewest elements so far",
          rank.at("rank").get<int>(), 100 * share);
  }
  return std::nullopt;
}

std::optional<std::string> misses_sharded_optimizer(const Run& run) {
  double bytes = 0, elements = 0;
  for (std::size_t m = 0; m < run.models(); ++m) {
    const Json& model = run.ranks.front().at("models")[m];
    const bool any = std::any_of(run.ranks.begin(), run.ranks.end(), [&](const Json& rank) {
      return with_state(rank.at("models")[m]) > 0;
    });
    if (!any) continue;
    if (!on_every_rank(run, m, with_state)) return misses_balance(run, m);
    bytes += number_in(model, "state_bytes");
    elements += number_in(model, "with_state");
  }
  if (elements == 0) return "no-state: no optimizer has made a step, or none keeps any state";
  const bool shares = run.makes_call("broadcast") || run.makes_call("all_gather");
  return fmt::format(
      "{}: each of {} ranks keeps the optimizer's state of all parameters, {:.0f} "
      "bytes for each; sharded, it keeps about {:.0f}",
      shares ? "state-for-all" : "plain-adamw", run.ranks.size(), bytes / elements,
      bytes / elements / static_cast<double>(run.ranks.size()));
}

std::optional<std::string> misses_fsdp(const Run& run) {
  bool any_gathers = false;
  for (std::size_t m = 0; m < run.models(); ++m) {
    if (!on_every_rank(run, m, kept)) return std::nullopt;
    any_gathers = any_gathers || number_in(run.ranks.front().at("models")[m], "gathered") > 0;
  }
  if (run.models() == 0) return "no-model: no module has run forward";
  return fmt::format("{}: each of {} ranks keeps all parameters between two steps{}",
                     any_gathers ? "never-frees" : "replicated", run.ranks.size(),
                     any_gathers ? ", though forward gathers some" : ", and forward gathers none");
}

const std::map<std::string, std::optional<std::string> (*)(const Run&)> expectations{
    {"overlap", misses_overlap},
    {"sharded-optimizer", misses_sharded_optimizer},
    {"fsdp", misses_fsdp}};

// ---- Reports

// Ranks of one test and one size belong together; a rank that comes again begins another run.
std::vector<Run> runs_in(const std::filesystem::path& folder) {
  std::vector<Json> reports;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    try {
      reports.push_back(Json::parse(read_file(entry.path())));
      number_in(reports.back(), "began_ns");
    } catch (const Error& error) {
      fail("{} is not a rank's report of ringside watch: {}", entry.path().string(), error.what());
    }
  }
  std::sort(reports.begin(), reports.end(),
            [](const Json& a, const Json& b) { return a.at("began_ns") < b.at("began_ns"); });
  std::vector<Run> runs;
  for (Json& report : reports) {
    const auto lacks_it = [&](const Run& run) {
      const Json& first = run.ranks.front();
      return first.at("test") == report.at("test") && first.at("size") == report.at("size") &&
             std::none_of(run.ranks.begin(), run.ranks.end(),
                          [&](const Json& each) { return each.at("rank") == report.at("rank"); });
    };
    auto run = std::find_if(runs.begin(), runs.end(), lacks_it);
    if (run == runs.end()) run = runs.insert(runs.end(), Run{});
    run->ranks.push_back(std::move(report));
  }
  for (Run& run : runs)
    std::sort(run.ranks.begin(), run.ranks.end(),
              [](const Json& a, const Json& b) { return a.at("rank") < b.at("rank"); });
  return runs;
}

Table table_of_ranks(const Run& run) {
  Table table{{"rank", number("calls", "calls"), number("sent\n(MB)", "bytes_sent", fixed(3, 1e-6)),
               number("waited\n(ms)", "waited_ms", fixed(1)),
               number("gradients\n(calls)", "reductions"),
               number("early\n(calls)", "early_reductions"),
               number("early\n(% of bytes)", "early_percent", fixed(0)),
               number("waits in\nbackward", "waits_in_backward")}};
  for (const Json& rank : run.ranks) {
    std::int64_t calls = 0;
    for (const Json& call : rank.at("calls")) calls += call.at("calls").get<std::int64_t>();
    const double reduced = number_in(rank, "reduced_bytes");
    table.rows.push_back(
        {rank.at("rank").get<std::int64_t>(), calls, rank.at("bytes_sent").get<std::int64_t>(),
         1e3 * number_in(rank, "waited_seconds"), rank.at("reductions").get<std::int64_t>(),
         rank.at("early_reductions").get<std::int64_t>(),
         reduced > 0 ? Cell(100 * number_in(rank, "early_bytes") / reduced) : Cell(),
         rank.at("waits_in_backward").get<std::int64_t>()});
  }
  return table;
}

Table table_of_calls(const Run& run) {
  Table table{{words("call of rank " + run.ranks.front().at("rank").dump(), "collective"),
               words("data", "label"), number("times", "calls"),
               number("MB in all", "bytes", fixed(3, 1e-6))}};
  for (const Json& call : run.ranks.front().at("calls"))
    table.rows.push_back({call.at("collective").get<std::string>(),
                          call.at("label").get<std::string>(), call.at("calls").get<std::int64_t>(),
                          call.at("bytes").get<std::int64_t>()});
  return table;
}

void print(const Run& run) {
  const Json& first = run.ranks.front();
  const auto test = first.at("test").get<std::string>();
  fmt::print("\n{}{} of {} ranks over {}\n\n", test.empty() ? "" : test + ": ", run.ranks.size(),
             first.at("size").get<int>(), first.at("transport").get<std::string>());
  fmt::print("{}\n{}\n", table_of_ranks(run).text(), table_of_calls(run).text());
  for (std::size_t m = 0; m < run.models(); ++m) {
    const Json& model = first.at("models")[m];
    fmt::print("  {}, {:.0f} parameters: {}", model.at("model").get<std::string>(), whole(model),
               shares_of(run, m, kept));
    if (number_in(model, "with_state") > 0 || number_in(model, "state_bytes") > 0)
      fmt::print("; optimizer's state: {}", shares_of(run, m, with_state));
    fmt::print("\n");
  }
}

// Runs the program in this terminal and returns its exit code.
int run_program(std::vector<std::string> command, const std::string& folder) {
  ::setenv("RINGSIDE_WATCH", folder.c_str(), 1);
  ::setenv("RINGSIDE_AS_GLOO", "1", 0);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, command.front().c_str(), nullptr, nullptr,
                                   exec_arguments(command).data(), environ);
  require(error == 0, "cannot run {}: {}", command.front(), std::strerror(error));
  std::signal(SIGINT, SIG_IGN);  // Ctrl-C ends the program, and its reports are shown
  siginfo_t end{};
  while (::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, SIG_DFL);
  return exit_code_of(end);
}

// Whether all expectations hold. Prints a line for each.
bool judge(const Run& run, const std::vector<std::string>& expected, Json& findings) {
  bool all_hold = true;
  for (const std::string& name : expected) {
    const auto missed = expectations.at(name)(run);
    fmt::print("  {}: {}\n", name, missed.value_or("as expected"));
    findings[name] = missed;
    all_hold = all_hold && !missed;
  }
  return all_hold;
}

void watch(const WatchArguments& args) {
  for (const std::string& name : args.expect)
    refuse_if(!expectations.contains(name),
              "--expect: overlap, sharded-optimizer or fsdp is expected, not {}", name);
  refuse_if(args.command.empty() && args.folder.empty(),
            "name a program after --, or the folder of earlier reports with --folder");
  const std::filesystem::path folder =
      !args.folder.empty()
          ? std::filesystem::path(args.folder)
          : std::filesystem::temp_directory_path() / fmt::format("ringside-watch-{}", ::getpid());
  int code = 0;
  if (!args.command.empty()) {
    std::filesystem::create_directories(folder);
    code = run_program(args.command, std::filesystem::absolute(folder).string());
  }
  require(std::filesystem::is_directory(folder),
          "{} is not a folder: name the one that RINGSIDE_WATCH named", folder.string());
  const std::vector<Run> runs = runs_in(folder);
  if (args.folder.empty()) std::filesystem::remove_all(folder);
  require(!runs.empty() || code != 0,
          "no rank left a report: the program makes no process group over ringside or gloo, or its "
          "Python lacks the package: pip install build/release/python");
  Json figures = Json::array();
  bool all_hold = true;
  for (const Run& run : runs) {
    print(run);
    Json findings = Json::object();
    all_hold = judge(run, args.expect, findings) && all_hold;
    figures.push_back(
        {{"test", run.ranks.front().at("test")}, {"findings", findings}, {"ranks", run.ranks}});
  }
  if (!args.json.empty()) write_json_file(args.json, figures);
  if (code != 0) throw Exit{code};
  if (!all_hold) throw Exit{1};
}

}  // namespace

void add_watch_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "watch", "What each rank of a PyTorch program sends, keeps and waits for", watch);
  option("--expect WORD,...", args.expect,
         "Fail if a run lacks one of them: overlap, sharded-optimizer, fsdp")
      ->allow_extra_args(false);  // or its values would end at --, and options of PROGRAM be ours
  option("--folder DIR", args.folder,
         "Where the ranks leave their reports, and where earlier ones lie [removed at the end]");
  option("--json FILE", args.json, "Write all figures to this file");
  option("PROGRAM ARGS...", args.command, "The program and its arguments, after --");
}

}  // namespace ringside::cli
