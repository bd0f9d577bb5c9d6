// `ringside bench`: how fast a collective is over each backend, beside what the machine could do at
// best.

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <unistd.h>

#include "base/environment.hpp"
#include "cli/bench/calibrate.hpp"
#include "cli/bench/report.hpp"
#include "cli/bench/run.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "collectives/call.hpp"
#include "collectives/selection/calibration.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more =
    "\nExamples:\n"
    "  ringside bench all_reduce -n 2,4 --bytes 4B,64KB,10MB --backends tcp,shm,threads\n"
    "  ringside bench --calibrate --backends tcp,shm,threads\n"
    "  ringside bench all_gather -n 4 --bytes 100MB --backends tcp,gloo,mpi_tcp --json "
    "figures.json --svg figures.svg\n"
    "\n"
    "Columns as in nccl-tests. time: the median of the slowest rank. algbw: size / time. busbw: "
    "algbw times 2(n-1)/n for "
    "all_reduce,\n"
    "1 for broadcast and reduce, (n-1)/n for the others; 10^9 bytes/s. limit: what this machine "
    "reached in the same run, in "
    "terms\n"
    "of busbw, when the ranks moved the same bytes and did nothing else: round a bare ring of TCP "
    "sockets for tcp, gloo and "
    "mpi_tcp,\n"
    "by copying in memory for the others; with --link, the link's own rate. ratio: busbw / limit. "
    "wrong: elements of the result that were not what they should be.\n"
    "Backends take turns within one run, because a machine drifts.\n"
    "mpi is Open MPI as it comes, mpi_heap the same with its temporaries kept on the heap, mpi_tcp "
    "the same over TCP.";

struct BenchArguments {
  BenchPlan plan;
  std::string collective, type = "fp32", op = "sum";
  std::vector<std::string> bytes{"4B", "64KB", "1MB", "10MB"};
  std::string json, svg;
  bool calibrate = false, ranks_given = false;
};

// A link slows our own transports down; what libraries send goes beside it.
void plan_link(BenchPlan& plan, const collectives::Link& link, const BenchArguments& args) {
  if (args.calibrate)
    throw UsageError(
        "--calibrate measures this machine as it is: leave out --link, and unset RINGSIDE_LINK");
  for (const auto& name : plan.backends)
    if (name != "tcp" && name != "shm" && name != "threads")
      throw UsageError(
          fmt::format("--link slows down tcp, shm and threads, but what {} sends is out of its "
                      "reach: leave out either",
                      name));
  plan.limits = false;  // it is the link that limits
  if (!bench_has_a_seat())
    fmt::print(file_beside(args.json), "every rank behind a link of {}\n", to_text(link)),
        std::fflush(nullptr);
}

BenchPlan plan_from(const BenchArguments& args) {
  BenchPlan plan = args.plan;
  if (const auto link = collectives::link_from_environment()) plan_link(plan, *link, args);
  if (args.calibrate) {
    if (!args.collective.empty())
      throw UsageError("--calibrate measures what it needs: leave out " + args.collective);
    plan_calibration(plan, args.ranks_given);
    return plan;
  }
  plan.collective = collectives::collective_named(args.collective);
  plan.type = type_named(args.type);
  plan.op = op_named(args.op);
  for (const auto& name : plan.algorithms)
    if (name != "auto") collectives::find_algorithm(plan.collective, name);
  for (const auto& name : plan.backends) bench_backend_named(name);
  for (const auto& text : args.bytes) {
    plan.bytes.push_back(parse_bytes(text));
    if (plan.collective != collectives::Collective::barrier &&
        plan.bytes.back() < size_of(plan.type))
      throw UsageError(
          fmt::format("--bytes {} has no room for one element of {}", text, args.type));
  }
  if (plan.collective == collectives::Collective::barrier) plan.bytes = {0};
  return plan;
}

// Where temporary files go: what TMPDIR says, else /tmp.
std::filesystem::path temporary_folder() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  require(!error,
          "{}, where temporary files go, is no folder that the ranks could leave their figures in: "
          "let TMPDIR name one",
          environment("TMPDIR").value_or("/tmp"));
  return folder;
}

// A file for the ranks to leave their rows in. It goes when this object does.
class RowsFile {
 public:
  RowsFile() : path_(temporary_folder() / "ringside-bench-XXXXXX") {
    const int fd = ::mkstemp(path_.data());
    require(fd >= 0, "cannot make the file {} for the figures: {}", path_, std::strerror(errno));
    ::close(fd);
  }
  ~RowsFile() { ::unlink(path_.c_str()); }
  RowsFile(const RowsFile&) = delete;
  RowsFile& operator=(const RowsFile&) = delete;

  const std::string& path() const { return path_; }
  std::vector<Json> rows() const {
    std::ifstream file(path_);
    std::vector<Json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
    return rows;
  }

 private:
  std::string path_;
};

// A line for each algorithm, where there are several.
std::vector<Json> to_be_drawn(const BenchPlan& plan, std::vector<Json> rows) {
  if (plan.algorithms.size() > 1)
    for (Json& row : rows)
      if (row.at("algorithm") != "library")
        row["backend"] = fmt::format("{} {}", row.at("backend").get<std::string>(),
                                     row.at("algorithm").get<std::string>());
  return rows;
}

void write_figures(const BenchArguments& args, const std::vector<Json>& rows) {
  if (!args.json.empty()) write_json_file(args.json, Json(rows));
  if (args.svg.empty()) return;
  std::ofstream file(args.svg);
  file << bench_plot(to_be_drawn(args.plan, rows));
  file.close();
  require(!file.fail(),
          "cannot write the plot to {}: does its folder exist, and may you write there?", args.svg);
}

// Keeps each size's rows when they are known, and prints them.
class Printer {
 public:
  Printer(const std::string& rows_file, std::FILE* out) : rows_file_(rows_file), out_(out) {}

  void take(const std::vector<BenchRow>& rows, bool print) {
    for (const auto& row : rows) all_.push_back(to_json(row));
    if (!print) return;
    if (all_.size() == rows.size() && !rows.empty())
      fmt::print(out_, "\n{}\n{}\n", bench_title(rows.front()), bench_table_head());
    for (const auto& row : rows) fmt::print(out_, "{}\n", bench_table_line(row));
    if (rows.size() > 1) fmt::print(out_, "\n");
    std::fflush(out_);
  }

  const std::vector<Json>& all() const { return all_; }
  void leave() const {
    std::ofstream file(rows_file_);
    for (const auto& row : all_) file << row.dump() << "\n";
    file.close();
    require(!file.fail(), "cannot write the figures to {}", rows_file_);
  }

 private:
  std::string rows_file_;
  std::FILE* out_;
  std::vector<Json> all_;
};

void take_part(const BenchArguments& args, const BenchPlan& plan) {
  const BenchSeat seat = take_bench_seat(plan);
  if (args.calibrate && seat.rows_file.empty() && seat.everybody.rank == 0)
    throw UsageError("--calibrate starts ranks of its own: run it without a launcher");
  Printer printer(seat.rows_file, file_beside(args.json));
  run_bench(plan, seat, [&](const auto& rows) { printer.take(rows, !args.calibrate); });
  if (seat.everybody.rank != 0) return;
  if (seat.rows_file.empty()) return write_figures(args, printer.all());
  printer.leave();
}

void finish_calibration(const BenchArguments& args, const BenchPlan& plan,
                        const std::vector<Json>& rows) {
  const auto costs = costs_from_rows(plan, rows, measure_adding());
  collectives::keep_calibration(costs);
  fmt::print(file_beside(args.json),
             "{}\nKept in {}: ProcessGroup chooses by it from now on, on this machine.\n",
             calibration_report(costs, plan.ranks.back()),
             collectives::calibration_file().string());
  if (!args.json.empty()) write_json_file(args.json, Json(rows));
}

void run(const BenchArguments& args) {
  const BenchPlan plan = plan_from(args);
  if (bench_has_a_seat()) return take_part(args, plan);
  if (args.calibrate) {
    fmt::print(file_beside(args.json), "Measuring {} with 2 and {} ranks on {} cores ...\n\n",
               fmt::join(plan.backends, ", "), plan.ranks.back(),
               std::thread::hardware_concurrency());
    std::fflush(nullptr);
  }
  check_memory(plan);
  std::vector<Json> rows;
  for (const int ranks : plan.ranks) {
    const RowsFile file;
    const int code = start_bench_job(plan, ranks, file.path());
    if (code != 0) throw Exit{code};
    for (auto& row : file.rows()) rows.push_back(std::move(row));
  }
  if (args.calibrate) return finish_calibration(args, plan, rows);
  write_figures(args, rows);
  const auto wrong =
      std::count_if(rows.begin(), rows.end(), [](const Json& row) { return row.at("wrong") != 0; });
  require(wrong == 0, "{} of {} results were wrong: see the column \"wrong\"", wrong, rows.size());
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto* command = app.add_subcommand(
      "bench", "Measure a collective over several backends, beside the machine's own limit");
  const auto args = std::make_shared<BenchArguments>();
  std::vector<std::string> here;
  for (const auto& backend : bench_backends())
    if (backend.here) here.push_back(backend.name);
  args->plan.ranks = {2, 4};
  args->plan.backends = {"tcp", "threads"};

  command->add_option("COLLECTIVE", args->collective,
                      "all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, "
                      "all_to_all, barrier");
  command->add_flag("--calibrate", args->calibrate,
                    "Measure what messages and sums cost here, and keep it: by that our backends "
                    "choose their algorithms");
  const auto* ranks =
      command->add_option("-n,--ranks", args->plan.ranks, "Numbers of ranks, one after the other")
          ->delimiter(',')
          ->type_name("N,...")
          ->check(at_least_one("rank"))
          ->capture_default_str();
  command
      ->add_option("--bytes", args->bytes, "Sizes of the whole buffer: MB is 10^6 bytes, MiB 2^20")
      ->delimiter(',')
      ->type_name("SIZE,...")
      ->capture_default_str();
  command
      ->add_option("--backends", args->plan.backends,
                   fmt::format("This build has {}", fmt::join(here, ", ")))
      ->delimiter(',')
      ->type_name("NAME,...")
      ->capture_default_str();
  command
      ->add_option("--algorithm", args->plan.algorithms,
                   "For our own backends, a row for each; ringside prove lists them. auto: what a "
                   "program would get, by "
                   "RINGSIDE_ALGORITHM or "
                   "the calibration")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->capture_default_str();
  add_link_option(*command);
  command->add_option("--type", args->type, "Of the elements")->capture_default_str();
  command->add_option("--op", args->op, "Of the reduction")->capture_default_str();
  command->add_option("--warmup", args->plan.warmup, "Calls before the first sample")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--repeat", args->plan.repeat,
                   "Samples of each figure (default: what half a second allows, at least 7)")
      ->type_name("N")
      ->check(at_least_one("sample"));
  command
      ->add_option(
          "--json", args->json,
          "Write the figures there; -: to standard output, and the table to standard error")
      ->type_name("FILE");
  command->add_option("--svg", args->svg, "Draw busbw over size there")->type_name("FILE");
  command->footer(more);
  add_bench_train_command(*command);
  add_bench_ddp_command(*command);
  add_bench_zero_command(*command);
  add_bench_kernels_command(*command);
  command->callback([command, args, ranks] {
    if (!command->get_subcommands().empty()) return;
    if (args->collective.empty() && !args->calibrate)
      throw UsageError(
          "say what to measure: a collective, such as all_reduce, or train, or ddp; or "
          "--calibrate");
    args->ranks_given = ranks->count() > 0;
    run(*args);
  });
}

}  // namespace ringside::cli
