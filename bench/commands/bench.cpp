// `ringside bench`: measures a collective over several backends, beside the machine's limit.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/read_file.hpp"
#include "base/system/file_descriptor.hpp"
#include "base/text/words.hpp"
#include "bench/calibrate.hpp"
#include "bench/machine_file.hpp"
#include "bench/measured_costs.hpp"
#include "bench/report.hpp"
#include "bench/run.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/python_svg.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/call.hpp"
#include "collectives/ranks/run_threads.hpp"
#include "collectives/selection/calibration.hpp"
#include "collectives/selection/calibration_file.hpp"
#include "collectives/transport/link.hpp"
#include "training/product_calibration.hpp"

namespace ringside::cli {
namespace {

struct BenchArguments {
  BenchOptions options;
  std::string collective, type = "fp32", op = "sum";
  std::vector<std::string> bytes{"4B", "64KB", "1MB", "10MB"};
  std::vector<std::string> plugins;
  std::string json, svg, machine;
  bool calibrate = false, nccl_tests = false, per_iteration = false, graph = false, group = false;
};

// An emulated link slows down our own transports only, not those of libraries.
void set_up_link(BenchOptions& options, const collectives::Link& link, const BenchArguments& args) {
  refuse_if(
      args.calibrate,
      "--calibrate measures this machine as it is: leave out --link, and unset RINGSIDE_LINK");
  for (const auto& name : options.backends)
    refuse_if(name != "tcp" && name != "shm" && name != "threads",
              "--link slows down tcp, shm and threads, but not {}: leave out one of the two", name);
  options.limits = false;  // the link is the limit
  if (!is_bench_process())
    fmt::print(file_beside(args.json), "every rank behind a link of {}\n", to_text(link)),
        std::fflush(nullptr);
}

BenchOptions options_from(const BenchArguments& args) {
  BenchOptions options = args.options;
  if (const auto link = collectives::link_from_environment()) set_up_link(options, *link, args);
  if (args.calibrate) {
    if (args.collective.empty())
      set_up_calibration(options);
    else
      set_up_corrections(options, collectives::collective_named(args.collective));
    return options;
  }
  if (options.ranks.empty()) options.ranks = {2, 4};
  options.collective = collectives::collective_named(args.collective);
  refuse_if(args.per_iteration && !args.nccl_tests,
            "--per-iteration adds columns to those of --nccl-tests: name both");
  options.both_places = args.nccl_tests;
  options.type = type_named(args.type);
  options.op = op_named(args.op);
  for (const auto& name : options.algorithms)
    if (name != "auto")
      for (const int ranks : options.ranks)
        make_schedules(collectives::algorithm_named(options.collective, name), ranks);
  for (const auto& file : args.plugins) options.backends.push_back(add_plugin(file));
  for (const auto& name : options.backends) bench_backend_named(name);
  refuse_if(args.graph && options.queued == 0,
            "--graph captures the calls of --queued: name how many");
  refuse_if(args.graph && std::ranges::count(options.backends, "cuda_kernels") > 0,
            "--graph: the ranks of cuda_kernels share a stream, so none can capture it");
  refuse_if(args.group && options.queued == 0,
            "--group makes a group of the calls of --queued: name how many");
  for (const std::string& name : options.backends)
    refuse_if(args.group && !name.starts_with("nccl"),
              "--group: expected backends of NCCL, which has groups of calls, got {}", name);
  if (args.graph || args.group)
    options.queueing =
        args.graph ? collectives::cuda::Queueing::graph : collectives::cuda::Queueing::group;
  for (const auto& text : args.bytes) {
    options.bytes.push_back(parse_bytes(text));
    refuse_if(options.collective != collectives::Collective::barrier &&
                  options.bytes.back() < size_of(options.type),
              "--bytes {} is too small for one element of {}", text, args.type);
  }
  if (options.collective == collectives::Collective::barrier) options.bytes = {0};
  return options;
}

void write_figures(const BenchArguments& args, const Json& rows) {
  if (!args.nccl_tests) fmt::print(file_beside(args.json), "{}", selection_in_words(rows));
  if (!args.json.empty()) write_json_file(args.json, rows);
  if (!args.svg.empty())
    write_svg_file(args.svg, bench_plot(rows, args.options.algorithms.size() > 1), "the plot");
}

// Prints the rows of each size as soon as they are complete.
void take_part(const BenchArguments& args, const BenchOptions& options) {
  const ProcessLayout layout = find_process_layout(options);
  refuse_if(options.passes > 1 && layout.rows_file.empty() && layout.in_job.rank == 0,
            "{} starts its own ranks: run it without a launcher",
            args.calibrate ? "--calibrate" : "--passes");
  std::FILE* const out = file_beside(args.json);
  // Whoever stops this process keeps what was measured: the file grows row by row, behind the rows
  // of the jobs before this one.
  const bool grows = !args.json.empty() && !is_stdout(args.json) && !args.calibrate;
  const bool is_first = layout.rows_file.empty() || layout.in_job.rank != 0 || !grows;
  Json written = is_first ? Json::array() : Json::parse(read_file(args.json));
  Json all = Json::array();
  std::vector<BenchRow> of_all_sizes;  // which --nccl-tests prints at the end
  const bool prints_rows = !args.calibrate && !args.nccl_tests;
  std::string title;  // of the rows before
  run_bench(options, layout, [&](const std::vector<BenchRow>& rows) {
    const Table table = bench_table(rows);
    const std::string above = std::exchange(title, bench_title(rows.at(0)));
    if (prints_rows && title != above) fmt::print(out, "\n{}\n{}", title, table.head_line());
    for (const auto& row : table.rows)
      if (prints_rows) fmt::print(out, "{}", table.line_of(row));
    if (prints_rows && rows.size() > 1) fmt::print(out, "\n");
    std::fflush(out);
    of_all_sizes.insert(of_all_sizes.end(), rows.begin(), rows.end());
    for (const Json& row : table.json()) {
      all.push_back(row);
      written.push_back(row);
    }
    if (grows) write_json_file(args.json, written);
  });
  if (layout.in_job.rank != 0) return;
  if (args.nccl_tests) fmt::print(out, "{}", nccl_tests_tables(of_all_sizes, args.per_iteration));
  if (layout.rows_file.empty()) return write_figures(args, all);
  write_text_file(layout.rows_file, all.dump(), "the figures");
}

// The rows that rank 0 of a job leaves in a file in memory.
Json rows_of_job(const BenchOptions& options, int ranks) {
  const FileDescriptor file(::memfd_create("ringside-bench", 0));
  require(file.is_open(), "cannot make a file in memory for the figures: {}", std::strerror(errno));
  const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), file.get());
  if (const int code = start_bench_job(options, ranks, path); code != 0) throw Exit{code};
  return Json::parse(read_file(path));
}

// This machine for `account --machine` and `simulate --topology`: shared memory joins its ranks, or
// what was measured.
void write_machine(const std::string& path, const collectives::CostTable& costs) {
  const auto found = costs.contains("shm") ? costs.find("shm") : costs.begin();
  const collectives::MachineCosts& cost = found->second;
  training::begin_computing(1);
  Json file;
  collectives::run_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())),
                           [&](collectives::ProcessGroup& world) {
                             Json measured = machine_file(world, found->first, cost.common.alpha,
                                                          cost.per_byte[2].beta);
                             if (world.rank() == 0) file = std::move(measured);
                           });
  write_json_file(path, file);
}

void finish_corrections(const BenchArguments& args, const BenchOptions& options, const Json& rows) {
  const auto costs = corrected_by_rows(options, rows);
  collectives::keep_calibration(costs);
  fmt::print(
      file_beside(args.json),
      "\n{}\nSaved in {}\nFrom now on ProcessGroup selects algorithms of {} by it.\nThe next "
      "bench --calibrate measures the model anew and forgets it.\n",
      corrections_report(options, costs), collectives::calibration_file().string(),
      args.collective);
  if (!args.json.empty()) write_json_file(args.json, rows);
}

void finish_calibration(const BenchArguments& args, const BenchOptions& options, const Json& rows) {
  const auto costs = costs_from_rows(options, rows, measure_adding());
  collectives::keep_calibration(costs);
  const std::vector<training::ProductSpeed> products = training::measure_products();
  training::keep_products(products);
  fmt::print(file_beside(args.json),
             "\n{}\n{}\nSaved in {}\nFrom now on ProcessGroup selects algorithms on this machine "
             "by it, and training\nselects libraries.\n",
             calibration_report(costs, options.ranks.back()), training::products_report(products),
             collectives::calibration_file().string());
  if (!args.machine.empty()) {
    write_machine(args.machine, costs);
    fmt::print(file_beside(args.json),
               "This machine, for account --machine and simulate --topology: {}\n", args.machine);
  }
  if (!args.json.empty()) write_json_file(args.json, rows);
}

void bench(const BenchArguments& args) {
  collectives::load_algorithms();
  const BenchOptions options = options_from(args);
  if (is_bench_process()) return take_part(args, options);
  if (args.calibrate) {
    std::vector<std::string> numbers;
    for (const int ranks : options.ranks) numbers.push_back(std::to_string(ranks));
    fmt::print(file_beside(args.json), "Measuring {} with {} ranks on {} cores\n",
               fmt::join(options.backends, ", "), enumerate(numbers),
               std::thread::hardware_concurrency());
  }
  check_memory(options);
  Json rows = Json::array();
  for (int pass = 0; pass < options.passes; ++pass)
    for (const int ranks : options.ranks) {
      if (options.passes > 1)
        fmt::print(file_beside(args.json), "pass {} of {}: {}\n", pass + 1, options.passes,
                   counted(ranks, "rank"));
      std::fflush(nullptr);
      if (!args.json.empty() && !is_stdout(args.json)) write_json_file(args.json, rows);
      for (const Json& row : rows_of_job(options, ranks)) rows.push_back(row);
    }
  rows = fastest_of_passes(rows);
  if (args.calibrate && !args.collective.empty()) return finish_corrections(args, options, rows);
  if (args.calibrate) return finish_calibration(args, options, rows);
  write_figures(args, rows);
  const auto wrong =
      std::count_if(rows.begin(), rows.end(), [](const Json& row) { return row.at("wrong") != 0; });
  require(wrong == 0, "{} of {} results are wrong: see the column \"wrong\"", wrong, rows.size());
}

void run(const BenchArguments& args) {
  refuse_if(!args.machine.empty() && (!args.calibrate || !args.collective.empty()),
            "--machine writes what --calibrate measures without a collective: bench --calibrate "
            "--machine FILE");
  refuse_if(
      args.collective.empty() && !args.calibrate,
      "name what to measure: a collective such as all_reduce, or train, ddp, zero or kernels, "
      "or --calibrate");
  bench(args);
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BenchBackend& backend : bench_backends()) names.push_back(backend.name);
  return names;
}

}  // namespace

void add_bench_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "bench",
                  "Measure a collective over several backends, beside bare rings and copies", run);
  BenchOptions& options = args.options;
  option.show_defaults();  // also of its subcommands
  option(
      "COLLECTIVE", args.collective,
      "all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all or "
      "barrier");
  option.flag("--calibrate", args.calibrate,
              "Measure the costs of messages, sums and matrix products on this machine and save "
              "them: our backends select their algorithms by them, and training the library of "
              "each kind of product. With COLLECTIVE: measure its algorithms afterwards, to "
              "correct what the model of these costs misses");
  option("--machine FILE", args.machine,
         "With --calibrate: describe this machine, for account --machine and simulate --topology");
  option("-n,--ranks N,...", options.ranks,
         "Numbers of ranks, measured in this order. On fewer cores, those of shm, threads and mpi, "
         "which poll, are bound to the cores in turn [2,4]",
         at_least_one("rank"));
  option("--bytes SIZE,...", args.bytes,
         "Sizes of the whole buffer; MB is 10^6 bytes, MiB 2^20 bytes");
  option("--backends NAME,...", options.backends,
         fmt::format("Some of {}; a build has those whose libraries it found",
                     fmt::join(backend_names(), ", ")));
  option("--plugin FILE.so,...", args.plugins,
         "Backends of your own in shared libraries (docs/your_own.md), each checked at every size "
         "before it is timed");
  option(
      "--algorithm NAME,...", options.algorithms,
      "Algorithms of our own backends, one row for each: names, which `ringside prove` lists, or "
      "files. auto: the algorithm that a ProcessGroup selects (RINGSIDE_ALGORITHM, or by "
      "calibration)");
  add_link_option(option);
  option("--type TYPE", args.type, "Type of the elements");
  option("--op NAME", args.op, "Operation of a reduction");
  option("--warmup N", options.warmup, "Calls before the first sample", not_negative());
  option(
      "--queued N", options.queued,
      "Of backends on GPUs: put N calls on the GPU before waiting for them, and time them by its "
      "events. 0: wait for each call",
      not_negative());
  const DeclaredOption graph = option.flag(
      "--graph", args.graph, "Capture the --queued calls as a CUDA graph, and time its launch");
  option
      .flag("--group", args.group,
            "Make one group of the --queued calls (ncclGroupStart; -m of nccl-tests)")
      .excludes(graph);
  const DeclaredOption in_place = option.flag(
      "--in-place", options.in_place,
      "One buffer on each rank, which is input and output. A size of which three do not fit in "
      "memory is measured so in any case, and the table says it");
  option
      .flag("--nccl-tests", args.nccl_tests,
            "Measure each size out of place and in place, and print the columns of nccl-tests, a "
            "table for each backend, when all sizes are done")
      .excludes(in_place);
  option.flag("--per-iteration", args.per_iteration,
              "With --nccl-tests: also the shortest, the longest and the 99th percentile of the "
              "samples, and their standard deviation in percent of the mean (-I of nccl-tests)");
  option("--repeat N", options.repeat,
         "Samples of each figure [as fit into half a second, at least 7]", at_least_one("sample"));
  option(
      "--passes N", options.passes,
      "Measure everything N times. The last lines, --json and --svg have the fastest time of each "
      "figure, because other programs on the machine can only make a pass slower",
      at_least_one("pass"));
  add_json_option(option, args.json);
  option("--svg FILE", args.svg, "Draw busbw by size to this file");
  add_commands(option.command(), "bench");
}

}  // namespace ringside::cli
