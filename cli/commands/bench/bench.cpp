// `ringside bench`: measures a collective over several backends, beside the machine's limit.

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "cli/bench/calibrate.hpp"
#include "cli/bench/report.hpp"
#include "cli/bench/run.hpp"
#include "cli/command.hpp"
#include "cli/commands/options/rank_options.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/call.hpp"
#include "collectives/selection/calibration.hpp"
#include "collectives/selection/calibration_file.hpp"
#include "collectives/transport/link.hpp"
#include "training/product_calibration.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more = R"(
Columns as in nccl-tests:
  time    median of the slowest rank
  algbw   size / time, in 10^9 bytes/s
  busbw   algbw times 2(n-1)/n for all_reduce, 1 for broadcast and reduce,
          (n-1)/n for the others
  bare    the busbw of this machine in the same run when the ranks only move
          the same bytes: around a bare ring of TCP sockets for tcp, gloo and
          mpi_tcp; by bare copies in memory for the others; with --link, the
          link's bandwidth. With many bytes it is the machine's limit; with few
          bytes an algorithm with fewer steps than a ring is faster
  ratio   busbw / bare
  wrong   number of wrong elements in the result
Backends take turns within one run, so that changes of the machine affect all
alike. mpi is Open MPI with its defaults, mpi_heap keeps its temporary buffers
on the heap, mpi_tcp uses TCP.

Examples:
  ringside bench all_reduce -n 2,4 --bytes 4B,64KB,10MB --backends tcp,shm
  ringside bench all_gather -n 4 --bytes 100MB --backends tcp,gloo --svg out.svg
  ringside bench --calibrate)";

struct BenchArguments {
  BenchOptions options;
  std::string collective, type = "fp32", op = "sum";
  std::vector<std::string> bytes{"4B", "64KB", "1MB", "10MB"};
  std::string json, svg;
  bool calibrate = false, ranks_given = false;
};

// An emulated link slows down our own transports only, not those of libraries.
void set_up_link(BenchOptions& options, const collectives::Link& link, const BenchArguments& args) {
  if (args.calibrate)
    throw UsageError(
        "--calibrate measures this machine as it is: leave out --link, and unset RINGSIDE_LINK");
  for (const auto& name : options.backends)
    if (name != "tcp" && name != "shm" && name != "threads")
      throw UsageError(fmt::format(
          "--link slows down tcp, shm and threads, but not {}: leave out one of the two", name));
  options.limits = false;  // the link is the limit
  if (!is_bench_process())
    fmt::print(file_beside(args.json), "every rank behind a link of {}\n", to_text(link)),
        std::fflush(nullptr);
}

BenchOptions options_from(const BenchArguments& args) {
  BenchOptions options = args.options;
  if (const auto link = collectives::link_from_environment()) set_up_link(options, *link, args);
  if (args.calibrate) {
    if (!args.collective.empty())
      throw UsageError("--calibrate measures what it needs: leave out " + args.collective);
    set_up_calibration(options, args.ranks_given);
    return options;
  }
  options.collective = collectives::collective_named(args.collective);
  options.type = type_named(args.type);
  options.op = op_named(args.op);
  for (const auto& name : options.algorithms)
    if (name != "auto") collectives::find_algorithm(options.collective, name);
  for (const auto& name : options.backends) bench_backend_named(name);
  for (const auto& text : args.bytes) {
    options.bytes.push_back(parse_bytes(text));
    if (options.collective != collectives::Collective::barrier &&
        options.bytes.back() < size_of(options.type))
      throw UsageError(
          fmt::format("--bytes {} is too small for one element of {}", text, args.type));
  }
  if (options.collective == collectives::Collective::barrier) options.bytes = {0};
  return options;
}

// The folder for temporary files: TMPDIR, else /tmp.
std::filesystem::path temporary_folder() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  require(!error,
          "the ranks cannot leave their figures in {}, because it is not a folder: set TMPDIR to a "
          "folder for temporary files",
          environment("TMPDIR").value_or("/tmp"));
  return folder;
}

// A temporary file in which the ranks leave their rows. The destructor removes it.
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

void write_figures(const BenchArguments& args, const std::vector<Json>& rows) {
  if (!args.json.empty()) write_json_file(args.json, Json(rows));
  if (args.svg.empty()) return;
  write_text_file(args.svg, bench_plot(rows, args.options.algorithms.size() > 1), "the plot");
}

// Collects the rows of each size and prints them as soon as they are complete.
class Printer {
 public:
  Printer(const std::string& rows_file, std::FILE* out) : rows_file_(rows_file), out_(out) {}

  void take(const std::vector<BenchRow>& rows, bool print) {
    Table table = bench_table();
    if (print && all_.empty() && !rows.empty())
      fmt::print(out_, "\n{}\n{}", bench_title(rows.front()), table.head_line());
    for (const auto& row : rows) {
      table.rows = {cells_of(row)};
      all_.push_back(table.json(facts_of(row)).front());
      if (print) fmt::print(out_, "{}", table.line_of(table.rows.front()));
    }
    if (!print) return;
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

void take_part(const BenchArguments& args, const BenchOptions& options) {
  const ProcessLayout layout = find_process_layout(options);
  if (args.calibrate && layout.rows_file.empty() && layout.in_job.rank == 0)
    throw UsageError("--calibrate starts its own ranks: run it without a launcher");
  Printer printer(layout.rows_file, file_beside(args.json));
  run_bench(options, layout, [&](const auto& rows) { printer.take(rows, !args.calibrate); });
  if (layout.in_job.rank != 0) return;
  if (layout.rows_file.empty()) return write_figures(args, printer.all());
  printer.leave();
}

void finish_calibration(const BenchArguments& args, const BenchOptions& options,
                        const std::vector<Json>& rows) {
  const auto costs = costs_from_rows(options, rows, measure_adding());
  collectives::keep_calibration(costs);
  const std::vector<training::ProductSpeed> products = training::measure_products();
  training::keep_products(products);
  fmt::print(
      file_beside(args.json),
      "{}\n{}\nSaved in {}\nFrom now on ProcessGroup selects algorithms on this machine by it, and "
      "training\nselects libraries.\n",
      calibration_report(costs, options.ranks.back()), training::products_report(products),
      collectives::calibration_file().string());
  if (!args.json.empty()) write_json_file(args.json, Json(rows));
}

void bench(const BenchArguments& args) {
  const BenchOptions options = options_from(args);
  if (is_bench_process()) return take_part(args, options);
  if (args.calibrate) {
    fmt::print(file_beside(args.json), "Measuring {} with 2 and {} ranks on {} cores ...\n\n",
               fmt::join(options.backends, ", "), options.ranks.back(),
               std::thread::hardware_concurrency());
    std::fflush(nullptr);
  }
  check_memory(options);
  std::vector<Json> rows;
  for (const int ranks : options.ranks) {
    const RowsFile file;
    const int code = start_bench_job(options, ranks, file.path());
    if (code != 0) throw Exit{code};
    for (auto& row : file.rows()) rows.push_back(std::move(row));
  }
  if (args.calibrate) return finish_calibration(args, options, rows);
  write_figures(args, rows);
  const auto wrong =
      std::count_if(rows.begin(), rows.end(), [](const Json& row) { return row.at("wrong") != 0; });
  require(wrong == 0, "{} of {} results are wrong: see the column \"wrong\"", wrong, rows.size());
}

// The options of the collective's measurement. Returns -n.
CLI::Option* add_measurement_options(CLI::App& command, BenchArguments& args) {
  CLI::Option* const ranks =
      command
          .add_option("-n,--ranks", args.options.ranks, "Numbers of ranks, measured in this order")
          ->delimiter(',')
          ->type_name("N,...")
          ->check(at_least_one("rank"))
          ->capture_default_str();
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* type,
                        const std::string& text) {
    command.add_option(name, values, text)->delimiter(',')->type_name(type)->capture_default_str();
  };
  list("--bytes", args.bytes, "SIZE,...",
       "Sizes of the whole buffer; MB is 10^6 bytes, MiB 2^20 bytes");
  std::vector<std::string> available;
  for (const auto& backend : bench_backends())
    if (backend.available) available.push_back(backend.name);
  list("--backends", args.options.backends, "NAME,...",
       fmt::format("Some of the backends of this build: {}", fmt::join(available, ", ")));
  list("--algorithm", args.options.algorithms, "NAME,...",
       "Algorithms of our own backends, one row for each; `ringside prove` lists them. auto: the "
       "algorithm that a ProcessGroup selects (RINGSIDE_ALGORITHM, or by calibration)");
  add_link_option(command);
  command.add_option("--type", args.type, "Type of the elements")
      ->type_name("TYPE")
      ->capture_default_str();
  command.add_option("--op", args.op, "Operation of a reduction")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--warmup", args.options.warmup, "Calls before the first sample")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber.description(""));
  command
      .add_option("--repeat", args.options.repeat,
                  "Samples of each figure [as fit into half a second, at least 7]")
      ->type_name("N")
      ->check(at_least_one("sample"));
  return ranks;
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto* command = app.add_subcommand(
      "bench", "Measure a collective over several backends, beside bare rings and copies");
  const auto args = std::make_shared<BenchArguments>();
  args->options.ranks = {2, 4};
  args->options.backends = {"tcp", "shm", "threads"};
  command
      ->add_option("COLLECTIVE", args->collective,
                   "all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, "
                   "all_to_all or barrier")
      ->type_name("");
  command->add_flag("--calibrate", args->calibrate,
                    "Measure the costs of messages, sums and matrix products on this machine and "
                    "save them: our backends select their algorithms by them, and training the "
                    "library of each kind of product");
  const CLI::Option* ranks = add_measurement_options(*command, *args);
  add_json_option(*command, args->json);
  command->add_option("--svg", args->svg, "Draw busbw by size to this file")->type_name("FILE");
  command->footer(more);
  add_commands(*command, "bench");
  command->callback([command, args, ranks] {
    if (!command->get_subcommands().empty()) return;
    if (args->collective.empty() && !args->calibrate)
      throw UsageError(
          "name what to measure: a collective such as all_reduce, or train, ddp, zero or kernels, "
          "or --calibrate");
    args->ranks_given = ranks->count() > 0;
    bench(*args);
  });
}

}  // namespace ringside::cli
