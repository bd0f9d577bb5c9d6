// `ringside bench`: how fast a collective is over each backend, beside what the machine could do at best.

#include <cstdio>
#include <fstream>
#include <memory>

#include <unistd.h>

#include "cli/bench_report.hpp"
#include "cli/bench_run.hpp"
#include "cli/command.hpp"
#include "cli/ranks.hpp"
#include "collectives/message.hpp"

namespace ringside::cli {
namespace {

constexpr const char* more =
    "\nExamples:\n"
    "  ringside bench all_reduce -n 2,4 --bytes 4B,64KB,10MB --backends tcp,shm,threads\n"
    "  ringside bench all_gather -n 4 --bytes 100MB --backends tcp,gloo,mpi_tcp --json figures.json --svg figures.svg\n"
    "\n"
    "Columns as in nccl-tests. time: the median of the slowest rank. algbw: size / time. busbw: algbw times 2(n-1)/n for "
    "all_reduce,\n"
    "1 for broadcast and reduce, (n-1)/n for the others; 10^9 bytes/s. limit: what this machine reached in the same run, in "
    "terms\n"
    "of busbw, when the ranks moved the same bytes and did nothing else: round a bare ring of TCP sockets for tcp, gloo and "
    "mpi_tcp,\n"
    "by copying in memory for the others. ratio: busbw / limit. wrong: elements of the result that were not what they should be.\n"
    "Backends take turns within one run, because a machine drifts.\n"
    "mpi is Open MPI as it comes, mpi_heap the same with its temporaries kept on the heap, mpi_tcp the same over TCP.";

struct BenchArguments {
  BenchPlan plan;
  std::string collective, type = "fp32", op = "sum";
  std::vector<std::string> bytes{"4B", "64KB", "1MB", "10MB"};
  std::string json, svg;
};

BenchPlan plan_from(const BenchArguments& said) {
  BenchPlan plan = said.plan;
  plan.collective = collectives::collective_named(said.collective);
  plan.type = type_named(said.type);
  plan.op = op_named(said.op);
  collectives::find_algorithm(plan.collective, plan.algorithm);
  for (const auto& name : plan.backends) bench_backend_named(name);
  for (const auto& text : said.bytes) {
    plan.bytes.push_back(parse_bytes(text));
    if (plan.collective != collectives::Collective::barrier && plan.bytes.back() < size_of(plan.type))
      throw UsageError(fmt::format("--bytes {} has no room for one element of {}", text, said.type));
  }
  if (plan.collective == collectives::Collective::barrier) plan.bytes = {0};
  return plan;
}

// A file for the ranks to leave their rows in. It goes when this object does.
class RowsFile {
 public:
  RowsFile() {
    const int fd = ::mkstemp(path_.data());
    require(fd >= 0, "cannot make a file in /tmp for the figures: {}", std::strerror(errno));
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
  std::string path_ = "/tmp/ringside-bench-XXXXXX";
};

void write_figures(const BenchArguments& said, const std::vector<Json>& rows) {
  if (!said.json.empty()) write_json_file(said.json, Json(rows));
  if (said.svg.empty()) return;
  std::ofstream file(said.svg);
  file << bench_plot(rows);
  file.close();
  require(!file.fail(), "cannot write the plot to {}: does its folder exist, and may you write there?", said.svg);
}

// Prints each size's rows when they are known, and keeps them.
class Printer {
 public:
  explicit Printer(const std::string& rows_file) : rows_file_(rows_file) {}

  void take(const std::vector<BenchRow>& rows) {
    if (all_.empty() && !rows.empty()) fmt::print("\n{}\n{}\n", bench_title(rows.front()), bench_table_head());
    for (const auto& row : rows) {
      fmt::print("{}\n", bench_table_line(row));
      all_.push_back(to_json(row));
    }
    if (rows.size() > 1) fmt::print("\n");
    std::fflush(stdout);
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
  std::vector<Json> all_;
};

void take_part(const BenchArguments& said, const BenchPlan& plan) {
  const BenchSeat seat = take_bench_seat(plan);
  Printer printer(seat.rows_file);
  run_bench(plan, seat, [&](const auto& rows) { printer.take(rows); });
  if (seat.everybody.rank != 0) return;
  if (seat.rows_file.empty()) return write_figures(said, printer.all());
  printer.leave();
}

void run(const BenchArguments& said) {
  const BenchPlan plan = plan_from(said);
  if (bench_has_a_seat()) return take_part(said, plan);
  check_memory(plan);
  std::vector<Json> rows;
  for (const int ranks : plan.ranks) {
    const RowsFile file;
    const int code = start_bench_job(plan, ranks, file.path());
    if (code != 0) throw Exit{code};
    for (auto& row : file.rows()) rows.push_back(std::move(row));
  }
  write_figures(said, rows);
  const auto wrong = std::count_if(rows.begin(), rows.end(), [](const Json& row) { return row.at("wrong") != 0; });
  require(wrong == 0, "{} of {} results were wrong: see the column \"wrong\"", wrong, rows.size());
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure a collective over several backends, beside the machine's own limit");
  const auto said = std::make_shared<BenchArguments>();
  std::vector<std::string> here;
  for (const auto& backend : bench_backends())
    if (backend.here) here.push_back(backend.name);
  said->plan.ranks = {2, 4};
  said->plan.backends = {"tcp", "threads"};

  command
      ->add_option("COLLECTIVE", said->collective,
                   "all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, barrier");
  command->add_option("-n,--ranks", said->plan.ranks, "Numbers of ranks, one after the other")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(at_least_one("rank"))
      ->capture_default_str();
  command->add_option("--bytes", said->bytes, "Sizes of the whole buffer: MB is 10^6 bytes, MiB 2^20")
      ->delimiter(',')
      ->type_name("SIZE,...")
      ->capture_default_str();
  command->add_option("--backends", said->plan.backends, fmt::format("This build has {}", fmt::join(here, ", ")))
      ->delimiter(',')
      ->type_name("NAME,...")
      ->capture_default_str();
  command->add_option("--algorithm", said->plan.algorithm, "For our own backends; see ringside prove (default: the first there)")
      ->type_name("NAME");
  command->add_option("--type", said->type, "Of the elements")->capture_default_str();
  command->add_option("--op", said->op, "Of the reduction")->capture_default_str();
  command->add_option("--warmup", said->plan.warmup, "Calls before the first sample")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--repeat", said->plan.repeat, "Samples of each figure (default: what half a second allows, at least 7)")
      ->type_name("N")
      ->check(at_least_one("sample"));
  command->add_option("--json", said->json, "Write the figures there")->type_name("FILE");
  command->add_option("--svg", said->svg, "Draw busbw over size there")->type_name("FILE");
  command->footer(more);
  add_bench_train_command(*command);
  command->callback([command, said] {
    if (!command->get_subcommands().empty()) return;
    if (said->collective.empty()) throw UsageError("say what to measure: a collective, such as all_reduce, or train");
    run(*said);
  });
}

}  // namespace ringside::cli
