#include "collectives/diagnostics/torch/torch_flights.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::collectives;
using ringside::tests::contains;

namespace {

struct DumpFolder {
  void write(int rank, const std::string& text) const {
    directory.write(fmt::format("nccl_trace_rank_{}", rank), text);
  }
  TemporaryDirectory directory;
};

// A call as PyTorch's recorder has it.
std::string entry(const std::string& name, int sequence, const std::string& state,
                  const std::string& in, const std::string& out,
                  const std::string& group = R"("0", "default_pg")") {
  return fmt::format(
      R"({{"pg_id": 0, "process_group": [{}], "collective_seq_id": {}, "p2p_seq_id": {},
          "profiling_name": "nccl:{}", "time_created_ns": {}, "input_sizes": {}, "output_sizes": {},
          "input_dtypes": ["BFloat16"], "state": "{}", "retired": false}})",
      group, sequence, sequence, name, sequence * 1000, in, out, state);
}

std::string record(const std::vector<std::string>& entries) {
  return fmt::format(R"({{"version": "2.10", "pg_config": {{
                          "0": {{"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
                          "7": {{"name": "7", "desc": "mesh_tp", "ranks": "[0, 2]"}}}},
                        "entries": [{}]}})",
                     fmt::join(entries, ","));
}

const std::string one_done = entry("all_reduce", 1, "completed", "[[4, 5]]", "[[4, 5]]");

}  // namespace

TEST_CASE("a PyTorch job whose ranks diverged is explained as one of ours") {
  const DumpFolder folder;
  for (const int rank : {0, 1, 2})
    folder.write(
        rank, record({one_done,
                      rank == 1 ? entry("broadcast", 2, "started", "[[3]]", "[[3]]")
                                : entry("_all_gather_base", 2, "scheduled", "[[4]]", "[[12]]")}));
  CHECK(postmortem(read_flights(folder.directory.path())) ==
        "The ranks diverged at call #2:\n"
        "  ranks 0 and 2 made all_gather of 12 bf16\n"
        "  rank 1 made broadcast of 3 bf16\n"
        "Every rank must make the same calls in the same order.\n"
        "\n"
        "rank 0   was in call #2, all_gather of 12 bf16\n"
        "rank 1   was in call #2, broadcast of 3 bf16\n"
        "rank 2   was in call #2, all_gather of 12 bf16\n");
}

TEST_CASE("a rank of a PyTorch job that did not come and one without a record are named") {
  const DumpFolder folder;
  folder.write(0, record({one_done, entry("all_reduce", 2, "started", "[[3]]", "[[3]]")}));
  folder.write(2, record({one_done}));
  const std::string text = postmortem(read_flights(folder.directory.path()));
  CHECK(contains(text, "rank 2   had ended call #1, all_reduce of 20 bf16"));
  CHECK(contains(text, "rank 2 had not come to call #2"));
  CHECK(contains(text, "rank 1 left no record"));
}

TEST_CASE("groups and messages of a PyTorch job, and blocks whose sizes differ by right") {
  const DumpFolder folder;
  const std::string tp = R"("7", "mesh_tp")";
  for (const int rank : {0, 1, 2}) {
    std::vector<std::string> entries = {
        entry("gather", 1, "completed", "[[4]]", rank == 0 ? "[[4], [4], [4]]" : "[]"),
        entry("all_to_all", 2, "completed", fmt::format("[[{}]]", rank), "[[6]]"),
        entry("coalesced", 3, "started", "[]", "[]")};
    if (rank != 1) entries.push_back(entry("all_reduce", 1, "completed", "[[9]]", "[[9]]", tp));
    entries.push_back(
        entry(fmt::format("recv {}<-{}", rank, (rank + 1) % 3), 4, "started", "[[8]]", "[[8]]"));
    folder.write(rank, record(entries));
  }
  const std::vector<Flight> flights = read_flights(folder.directory.path());
  REQUIRE(flights.size() == 5);
  CHECK(flights[0].entries[0].call.count == 12);
  CHECK(flights[0].entries[1].call.count == 2);
  CHECK(std::string(flights[4].header.group) == "mesh_tp@0,2");
  CHECK(flights[4].header.rank == 1);
  CHECK(flights[4].header.size == 2);
  CHECK(
      contains(postmortem(flights),
               "Ranks wait for each other in a circle: rank 0 for rank 1, rank 1 for rank 2, rank "
               "2 for rank 0."));
}

TEST_CASE("what is no record of PyTorch is refused by its name") {
  const DumpFolder folder;
  folder.write(3, R"({"entries": [{}]})");
  CHECK_THROWS_WITH_AS(
      read_flights(folder.directory.path()),
      doctest::Contains("nccl_trace_rank_3 is no flight record of PyTorch that can be read: "),
      Error);
  folder.write(3,
               "\x80\x02"
               "cos\nsystem\n");
  CHECK_THROWS_WITH_AS(read_flights(folder.directory.path()),
                       doctest::Contains("flight records have data alone"), Error);
}
