#include "collectives/bootstrap/rank_info.hpp"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <optional>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text/read_number.hpp"

namespace ringside::collectives {
namespace {

// The names of the variables in which a launcher tells a process its rank.
struct Names {
  const char* launcher;
  const char *rank, *size, *local_rank, *local_size;
  const char* job;
};

constexpr Names torchrun{
    "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"};
constexpr Names open_mpi{"Open MPI",
                         "OMPI_COMM_WORLD_RANK",
                         "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                         "PMIX_NAMESPACE"};
constexpr Names slurm{"Slurm",         "SLURM_PROCID",          "SLURM_NTASKS",
                      "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID"};
constexpr int highest_port = 65535;

int read_int(const char* name, int low, int high, int otherwise) {
  return static_cast<int>(integer_environment(name, low, high).value_or(otherwise));
}

const Names* find_launcher() {
  for (const Names* names : {&torchrun, &open_mpi, &slurm}) {
    const bool rank = environment(names->rank).has_value(),
               size = environment(names->size).has_value();
    require(rank == size || names != &torchrun,
            "{} is set but {} is not: a launcher sets both, or neither",
            rank ? names->rank : names->size, rank ? names->size : names->rank);
    if (rank && size && (names != &slurm || started_by_srun())) return names;
  }
  return nullptr;
}

// An IPv6 address may be written as in a URL: [fd00::1].
std::string without_brackets(const std::string& address) {
  const bool in_brackets = address.size() > 2 && address.front() == '[' && address.back() == ']';
  return in_brackets ? address.substr(1, address.size() - 2) : address;
}

std::optional<int> positive_integer(std::string_view text) {
  const auto value = decimal_number<int>(text);
  return value > 0 ? value : std::nullopt;
}

// The steps of a Slurm job may run at the same time, so each has its own port and its own key.
std::string job_of(const Names& launcher) {
  const std::string job = environment(launcher.job).value_or("");
  return &launcher == &slurm ? job + "." + environment("SLURM_STEP_ID").value_or("") : job;
}

// Two jobs on one host at the same time get different ports, most likely. They lie below the range
// from which Linux takes ports for outgoing connections.
std::uint16_t port_of_job(const std::string& job) {
  return static_cast<std::uint16_t>(20000 + hash_of_text(job) % 12000);
}

// Slurm's list for the job step, then for the job, is exact; SLURM_NTASKS_PER_NODE is set only
// where the user has asked for a number, and is a maximum.
int local_size_from_slurm(int size) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (const auto tasks = environment(name))
      return std::min(size, tasks_of_node(*tasks, read_int("SLURM_NODEID", 0, INT_MAX, 0)));
  return std::min(size, read_int(slurm.local_size, 1, INT_MAX, size));
}

std::uint16_t master_port(const Names& launcher, const std::string& job) {
  const bool of_job = &launcher != &torchrun && !job.empty();
  const int port = read_int("MASTER_PORT", 1, highest_port, of_job ? port_of_job(job) : 29500);
  // torchrun's agent may keep its store at MASTER_PORT. Rank 0 then listens at the next port.
  if (environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True")
    return static_cast<std::uint16_t>(port);
  require(port < highest_port,
          "MASTER_PORT={} belongs to torchrun's store, and rank 0 listens at the port after it, "
          "which does not exist: choose a lower MASTER_PORT",
          port);
  return static_cast<std::uint16_t>(port + 1);
}

}  // namespace

bool names_loopback(const std::string& master_address) {
  return master_address.starts_with("127.") || master_address == "::1" ||
         master_address.find("localhost") != std::string::npos;
}

bool started_by_srun() {
  constexpr std::int64_t special = 0xfffffff0;  // from here on: the script, the shell, ...
  const auto step = integer_environment("SLURM_STEP_ID", INT64_MIN, INT64_MAX);
  return environment("SLURM_PROCID") && step && *step >= 0 && *step < special;
}

std::uint32_t job_number(const std::string& job_key) {
  return static_cast<std::uint32_t>(hash_of_text(job_key));
}

std::string first_host_of(const std::string& node_list) {
  const auto bracket = node_list.find('['), comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return node_list.substr(0, comma);
  const auto number_end = node_list.find_first_of("-,]", bracket);
  require(number_end != std::string::npos,
          "SLURM_JOB_NODELIST={} has a bracket that does not close", node_list);
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, number_end - bracket - 1);
}

int tasks_of_node(const std::string& tasks_per_node, int node) {
  // Each entry is a number of tasks, followed by (xN) if it holds for N nodes.
  std::int64_t first = 0;  // the first node of the next entry
  for (std::size_t begin = 0; begin < tasks_per_node.size();) {
    const std::size_t end = std::min(tasks_per_node.find(',', begin), tasks_per_node.size());
    const std::string_view entry = std::string_view(tasks_per_node).substr(begin, end - begin);
    const std::size_t bracket = std::min(entry.find("(x"), entry.size());
    const auto tasks = positive_integer(entry.substr(0, bracket));
    const auto nodes = bracket == entry.size() ? std::optional(1)
                       : entry.back() == ')'
                           ? positive_integer(entry.substr(bracket + 2, entry.size() - bracket - 3))
                           : std::nullopt;
    require(tasks && nodes, "SLURM_TASKS_PER_NODE={} is not a list of numbers such as 2(x3),1",
            tasks_per_node);
    first += *nodes;
    if (node < first) return *tasks;
    begin = end + 1;
  }
  fail("SLURM_TASKS_PER_NODE={} has no node {}", tasks_per_node, node);
}

RankInfo rank_info_from_environment() {
  RankInfo rank_info;
  rank_info.interface = environment("RINGSIDE_INTERFACE").value_or("");
  rank_info.connect_timeout = Seconds(read_int("RINGSIDE_CONNECT_TIMEOUT", 1, 86400, 60));
  const Names* names = find_launcher();
  if (!names) return rank_info;

  rank_info.size = read_int(names->size, 1, INT_MAX, 1);
  rank_info.rank = read_int(names->rank, 0, INT_MAX, 0);
  require(rank_info.rank < rank_info.size,
          "{}={} does not fit {}={}: ranks are numbered from 0 to {}", names->rank, rank_info.rank,
          names->size, rank_info.size, rank_info.size - 1);
  rank_info.local_rank = read_int(names->local_rank, 0, INT_MAX, rank_info.rank);
  rank_info.local_size = names == &slurm ? local_size_from_slurm(rank_info.size)
                                         : read_int(names->local_size, 1, INT_MAX, rank_info.size);

  const std::string job = job_of(*names);
  rank_info.job_key = environment("RINGSIDE_JOB_KEY").value_or(job);
  if (const auto address = environment("MASTER_ADDR")) {
    rank_info.master_address = without_brackets(*address);
  } else if (const auto nodes = environment("SLURM_JOB_NODELIST"); names == &slurm && nodes) {
    rank_info.master_address = first_host_of(*nodes);
  } else {
    require(
        rank_info.local_size == rank_info.size,
        "this job has ranks on several hosts, and {} does not say where rank 0 is: set MASTER_ADDR",
        names->launcher);
  }
  const bool told = names == &slurm || environment(names->local_size);
  rank_info.one_host =
      told ? rank_info.local_size == rank_info.size : names_loopback(rank_info.master_address);
  rank_info.master_port = master_port(*names, job);
  use_port_of_launcher(rank_info);
  return rank_info;
}

void use_port_of_launcher(RankInfo& rank_info) {
  const std::string text = environment("RINGSIDE_LISTENING").value_or("");
  int given = 0, port = 0, descriptor = -1;
  if (std::sscanf(text.c_str(), "%d:%d:%d", &given, &port, &descriptor) != 3 ||
      given != rank_info.master_port || port < 1 || port > highest_port)
    return;
  rank_info.master_port = static_cast<std::uint16_t>(port);
  rank_info.listening = descriptor;
}

}  // namespace ringside::collectives
