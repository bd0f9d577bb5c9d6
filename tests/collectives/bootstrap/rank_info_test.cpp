// What a rank reads from the variables of its launcher.
#include "collectives/bootstrap/rank_info.hpp"

#include <cstdlib>
#include <initializer_list>
#include <utility>

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

// Sets environment variables, after it has unset all that a launcher may have set.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "RINGSIDE_INTERFACE",
                             "RINGSIDE_JOB_KEY",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMIX_NAMESPACE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_NTASKS_PER_NODE",
                             "SLURM_TASKS_PER_NODE",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "SLURM_NODEID",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "SLURM_JOB_NODELIST"})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
};

}  // namespace

TEST_CASE("the rank comes from the variables of torchrun") {
  const Environment environment{{"RANK", "3"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "10.1.2.3"},
                                {"MASTER_PORT", "4711"},
                                {"RINGSIDE_JOB_KEY", "k"}};
  const RankInfo rank_info = rank_info_from_environment();
  CHECK(rank_info.rank == 3);
  CHECK(rank_info.size == 8);
  CHECK(rank_info.local_rank == 1);
  CHECK(rank_info.local_size == 2);
  CHECK(rank_info.master_address == "10.1.2.3");
  CHECK(rank_info.master_port == 4711);
  CHECK(rank_info.job_key == "k");
}

TEST_CASE("whether a job has other hosts is the launcher's word or else that of MASTER_ADDR") {
  const auto one_host = [](const char* address, const char* local_size = "") {
    const Environment environment{{"RANK", "0"},
                                  {"WORLD_SIZE", "4"},
                                  {"MASTER_ADDR", address},
                                  {"LOCAL_WORLD_SIZE", local_size}};
    return rank_info_from_environment().one_host;
  };
  CHECK(one_host("nodea", "4"));
  CHECK(!one_host("127.0.0.1", "2"));
  for (const char* address : {"127.0.0.1", "[::1]", "localhost", "ip6-localhost"})
    CHECK(one_host(address));
  for (const char* address : {"nodea", "10.1.2.3", "fd00::1"}) CHECK(!one_host(address));
}

TEST_CASE("without any launcher the world is one rank") {
  const Environment environment{};
  CHECK(rank_info_from_environment().size == 1);
}

TEST_CASE("the rank comes from Open MPI or Slurm where torchrun's names are unset") {
  {
    const Environment environment{{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                  {"PMIX_NAMESPACE", "1234"}};
    const RankInfo rank_info = rank_info_from_environment();
    CHECK(rank_info.rank == 2);
    CHECK(rank_info.size == 4);
    CHECK(rank_info.local_size == 4);
    CHECK(rank_info.master_address == "127.0.0.1");
    CHECK(rank_info.job_key == "1234");
    CHECK(rank_info.master_port >= 20000);
  }
  const Environment environment{{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "6"},
                                {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "99"},
                                {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NODELIST", "gpu[07-09,12]"}};
  const RankInfo rank_info = rank_info_from_environment();
  CHECK(rank_info.rank == 5);
  CHECK(rank_info.size == 6);
  CHECK(rank_info.local_rank == 1);
  CHECK(rank_info.master_address == "gpu07");
}

TEST_CASE("RINGSIDE_INTERFACE and an IPv6 address in brackets are read") {
  const Environment environment{{"RANK", "0"},
                                {"WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "[fd00::1]"},
                                {"RINGSIDE_INTERFACE", "eth1"}};
  CHECK(rank_info_from_environment().interface == "eth1");
  CHECK(rank_info_from_environment().master_address == "fd00::1");
}

TEST_CASE("under Slurm the local size is the number of tasks on this node") {
  const std::pair<const char*, const char*> rank{"SLURM_PROCID", "5"}, size{"SLURM_NTASKS", "7"},
      local_rank{"SLURM_LOCALID", "1"}, nodes{"SLURM_JOB_NODELIST", "gpu[1-4]"},
      step{"SLURM_STEP_ID", "0"};
  {
    const Environment environment{rank,
                                  size,
                                  local_rank,
                                  nodes,
                                  step,
                                  {"SLURM_NODEID", "2"},
                                  {"SLURM_TASKS_PER_NODE", "2(x3),1"}};
    CHECK(rank_info_from_environment().local_size == 2);
  }
  {
    const Environment environment{rank,
                                  size,
                                  local_rank,
                                  nodes,
                                  step,
                                  {"SLURM_NODEID", "3"},
                                  {"SLURM_TASKS_PER_NODE", "2(x3),1"}};
    CHECK(rank_info_from_environment().local_size == 1);
  }
  {  // a step with fewer tasks than its job
    const Environment environment{rank,
                                  size,
                                  local_rank,
                                  nodes,
                                  step,
                                  {"SLURM_TASKS_PER_NODE", "4(x2)"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "3,4"}};
    CHECK(rank_info_from_environment().local_size == 3);
  }
  {
    const Environment environment{rank,  size, local_rank,
                                  nodes, step, {"SLURM_NTASKS_PER_NODE", "2"}};
    CHECK(rank_info_from_environment().local_size == 2);
  }
  {  // two nodes without a number that the user has asked for
    const Environment environment{{"SLURM_PROCID", "3"},
                                  {"SLURM_NTASKS", "4"},
                                  {"SLURM_NODEID", "1"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                                  nodes,
                                  step};
    CHECK(rank_info_from_environment().local_size == 1);
  }
  const Environment environment{rank, size, local_rank, nodes, step};
  CHECK(rank_info_from_environment().local_size == 7);
}

TEST_CASE("two steps of a job of Slurm get different ports and keys") {
  const auto in_step = [](const char* step) {
    const Environment environment{{"SLURM_PROCID", "1"},
                                  {"SLURM_NTASKS", "2"},
                                  {"SLURM_JOB_ID", "99"},
                                  {"SLURM_STEP_ID", step}};
    return rank_info_from_environment();
  };
  CHECK(in_step("0").master_port == in_step("0").master_port);
  CHECK(in_step("0").master_port != in_step("1").master_port);
  CHECK(in_step("0").job_key != in_step("1").job_key);
}

TEST_CASE("the script of sbatch and the shell of salloc are no rank") {
  for (const char* step : {"", "4294967291", "4294967290"}) {
    CAPTURE(step);
    const Environment environment{{"SLURM_PROCID", "0"},
                                  {"SLURM_NTASKS", "4"},
                                  {"SLURM_JOB_ID", "99"},
                                  {"SLURM_STEP_ID", step}};
    CHECK_FALSE(started_by_srun());
    CHECK(rank_info_from_environment().size == 1);
  }
}

TEST_CASE("the tasks of a node in a list of Slurm") {
  CHECK(tasks_of_node("4", 0) == 4);
  CHECK(tasks_of_node("2(x3),1", 0) == 2);
  CHECK(tasks_of_node("2(x3),1", 2) == 2);
  CHECK(tasks_of_node("2(x3),1", 3) == 1);
  CHECK(tasks_of_node("12,3(x2)", 2) == 3);
  CHECK_THROWS_WITH_AS(tasks_of_node("2,1", 2), "SLURM_TASKS_PER_NODE=2,1 has no node 2", Error);
  for (const char* wrong : {"two", "2(x", "2(x)", "2(3)", "2,,1", "-1", "2(x0)", "99999999999"})
    CHECK_THROWS_WITH_AS(
        tasks_of_node(wrong, 9),
        fmt::format("SLURM_TASKS_PER_NODE={} is not a list of numbers such as 2(x3),1", wrong)
            .c_str(),
        Error);
}

TEST_CASE("beside torchrun's store rank 0 listens at the port after MASTER_PORT") {
  const auto with_port = [](const char* port) {
    const Environment environment{{"RANK", "0"},
                                  {"WORLD_SIZE", "2"},
                                  {"MASTER_ADDR", "10.1.2.3"},
                                  {"MASTER_PORT", port},
                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
    return rank_info_from_environment().master_port;
  };
  CHECK(with_port("29500") == 29501);
  CHECK_THROWS_WITH_AS(with_port("65535"),
                       "MASTER_PORT=65535 belongs to torchrun's store, and rank 0 listens at the "
                       "port after it, which does not exist: choose a lower MASTER_PORT",
                       Error);
}

TEST_CASE("the first host of a node list of Slurm") {
  CHECK(first_host_of("login") == "login");
  CHECK(first_host_of("a,b") == "a");
  CHECK(first_host_of("n[3-5]") == "n3");
  CHECK(first_host_of("n[003,007]") == "n003");
  CHECK(first_host_of("a,n[1-2]") == "a");
  CHECK_THROWS_WITH_AS(first_host_of("n[1"),
                       "SLURM_JOB_NODELIST=n[1 has a bracket that does not close", Error);
}

TEST_CASE("an error names the variable that is wrong") {
  {
    const Environment environment{{"RANK", "3"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "RANK is set but WORLD_SIZE is not: a launcher sets both, or neither",
                         Error);
  }
  {
    const Environment environment{{"RANK", "3"}, {"WORLD_SIZE", "3"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "RANK=3 does not fit WORLD_SIZE=3: ranks are numbered from 0 to 2", Error);
  }
  {
    const Environment environment{{"RANK", "0"}, {"WORLD_SIZE", "two"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "WORLD_SIZE=two is not an integer from 1 to 2147483647", Error);
  }
  {
    const Environment environment{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "MASTER_PORT=70000 is not an integer from 1 to 65535", Error);
  }
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "0"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                       "this job has ranks on several hosts, and Open MPI does not say where rank "
                       "0 is: set MASTER_ADDR",
                       Error);
}
