// What `ringside bench` is asked to measure, and which backends there are to measure it with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/data_type.hpp"

namespace ringside::cli {

// Where a backend's ranks run.
enum class Home {
  ranks,    // in the processes that the launcher starts, as all of ours do
  threads,  // all of them in rank 0's process
  mpirun,   // in processes of their own: how MPI moves bytes is settled once, when mpirun starts
};

// What stands beside a backend's figure as the machine's own limit (bench_limits.hpp).
enum class Limit { tcp, memory, device };

struct BenchBackend {
  std::string name;
  Home home = Home::ranks;
  Limit limit = Limit::tcp;
  bool here = true;  // in this build
  bool device =
      false;  // for memory of a GPU: whether there is one is asked when it is named, not before
  std::vector<std::string> mpirun_options = {};  // that make it what it is
  std::vector<std::string> environment = {};     // likewise, "NAME=value"
};

// All that bench knows, in the order in which help names them.
const std::vector<BenchBackend>& bench_backends();

// The backend of that name. Throws Error, with a list of what this build has, where there is none.
const BenchBackend& bench_backend_named(std::string_view name);

struct BenchPlan {
  collectives::Collective collective{};
  std::vector<std::string> algorithms{
      "auto"};  // of our own backends, a row for each; auto: what a ProcessGroup would choose
  collectives::DataType type{};
  collectives::ReduceOp op{};
  std::vector<int> ranks;
  std::vector<std::uint64_t>
      bytes;  // of the whole buffer: of reduce_scatter's input, of all_gather's output
  std::vector<std::string> backends;
  int warmup = 5;
  bool limits = true;     // measure the machine's own beside them
  double quantile = 0.5;  // of the samples, that is a figure
  std::optional<int>
      repeat;  // samples of each figure; none: as many as fit into half a second, at least 7
};

// "64KB" is 64000 bytes, "64KiB" 65536; B, KB, MB, GB, TB and their binary kin. Throws Error.
std::uint64_t parse_bytes(const std::string& text);
std::string bytes_to_text(std::uint64_t bytes);  // "64 KB", "65536 B"

// The type, the operation of that name. Throw Error with a list of those that exist.
collectives::DataType type_named(std::string_view name);
collectives::ReduceOp op_named(std::string_view name);

// Throws Error, with what is needed and what there is, where the buffers of the largest measurement
// do not fit in memory.
void check_memory(const BenchPlan& plan);

}  // namespace ringside::cli
