#include "collectives/algorithm_files/algorithm_file.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "collectives/algorithm_files/schedule_json.hpp"
#include "collectives/proof/verify.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "tests/collectives/algorithm_files/forced.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// A file that goes with the test case.
class File {
 public:
  File(const std::string& name, const Json& content) : File(name, content.dump()) {}
  File(const std::string& name, const std::string& text)
      : path_((std::filesystem::temp_directory_path() / fmt::format("{}-{}", ::getpid(), name))) {
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string name() const { return path_.filename(); }
  operator std::string() const { return path_; }

 private:
  std::filesystem::path path_;
};

Json object_of(Collective collective, const std::vector<Schedule>& schedules, int root = 0) {
  return {{"collective", name_of(collective)}, {"root", root}, {"schedules", schedules}};
}

Json object_of(Collective collective, std::string_view name, int size, int root = 0) {
  return object_of(collective, make_schedules(find_algorithm(collective, name), size, root), root);
}

std::string error_of(const std::string& file) {
  try {
    load_proved_algorithm(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// all_gather where each rank's block has two chunks, which go round the ring in opposite
// directions.
std::vector<Schedule> two_way_all_gather(int size) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) {
    Schedule schedule{.chunks = 2 * size, .steps = {}};
    for (int s = 0; s < size - 1; ++s)
      for (const int way : {1, -1}) {
        const int part = way == 1 ? 0 : 1;
        const auto chunk = [&](int owner) { return 2 * wrap(owner, size) + part; };
        schedule.steps.push_back(
            {Send{.to = wrap(rank + way, size), .chunks = {chunk(rank - way * s)}},
             Receive{wrap(rank - way, size), {chunk(rank - way * (s + 1))}, Action::overwrite}});
      }
    schedules.push_back(schedule);
  }
  return schedules;
}

}  // namespace

TEST_CASE("every algorithm of the catalogue is the same after a way through a file") {
  for (const Algorithm& algorithm : all_algorithms())
    for (const int size : {3, 4, 7}) {  // a program holds 128 files
      const int root = has_root(algorithm.collective) ? size - 1 : 0;
      CAPTURE(algorithm.title());
      CAPTURE(size);
      const File file("copy.json", object_of(algorithm.collective, algorithm.name, size, root));
      const Algorithm& copy = load_proved_algorithm(file);
      CHECK(copy.collective == algorithm.collective);
      CHECK(copy.name == file.name());
      const auto expected = make_schedules(algorithm, size, root),
                 seen = make_schedules(copy, size, root);
      REQUIRE(seen.size() == expected.size());
      for (int rank = 0; rank < size; ++rank) {
        CHECK(seen[rank].chunks == expected[rank].chunks);
        CHECK(seen[rank].steps == expected[rank].steps);
      }
    }
}

TEST_CASE("a wrong algorithm is refused with the sentence of the proof") {
  auto schedules = make_schedules(find_algorithm(Collective::all_reduce, "ring"), 3);
  schedules[1].steps[3].receive->action = Action::add;
  const File wrong("wrong.json", object_of(Collective::all_reduce, schedules));
  CHECK(error_of(wrong) ==
        fmt::format(
            "{} all_reduce, 3 ranks: at the end chunk 2 on rank 1 holds rank 0 twice "
            "and rank 1 twice\n`ringside prove --algorithm {}` shows all that is wrong with it",
            wrong.name(), std::string(wrong)));
}

TEST_CASE("what is wrong with the form of a file is said with the place") {
  const auto says = [](const Json& content, const std::string& expected) {
    const File file("form.json", content);
    CHECK(error_of(file) ==
          fmt::format("the algorithm {} cannot be used: {}", std::string(file), expected));
  };
  Json ring = object_of(Collective::all_reduce, "ring", 3);
  Json other = ring;
  other["schedules"][2]["steps"][1]["send"].erase("to");
  says(other,
       R"(rank 2, step 1: {"first":0,"count":1} has no integer 'to': expected "to", "first", )"
       R"("count" and perhaps "stride", "run", "input" and "held")");
  other = ring;
  other["schedules"][1]["steps"][0]["recieve"] = 1;
  CHECK(contains(error_of(File("form.json", other)), "rank 1, step 0: 'recieve' is unknown in {"));
  other = ring;
  other["schedules"][0]["steps"][0]["receive"]["action"] = "plus";
  CHECK(contains(error_of(File("form.json", other)), "rank 0, step 0: the action of {"));
  CHECK(contains(error_of(File("form.json", other)), "must be \"add\" or \"overwrite\""));
  other = ring;
  other["schedules"][0]["steps"][0]["send"]["stride"] = 2;
  other["schedules"][0]["steps"][0]["send"]["run"] = 0;
  CHECK(contains(error_of(File("form.json", other)), "step 0: a run has at least 1 chunk: {"));
  other["schedules"][0]["steps"][0]["send"] = {
      {"to", 1}, {"first", 0}, {"count", 900'000'000}, {"stride", 2}};
  CHECK(contains(error_of(File("form.json", other)),
                 "rank 0 sends chunks 0 to 899999999 to rank 1, but the chunks are 0 to 2"));
  other["schedules"][0]["steps"][0]["send"] = {
      {"to", 1}, {"first", 0}, {"count", 2}, {"stride", 999'999'998}};  // 2 modulo 3
  CHECK(contains(error_of(File("form.json", other)),
                 "rank 0 sends chunks 0, 2 to rank 1, but rank 1 expects chunk 2 from rank 0"));
  other = ring;
  other["collective"] = "allreduce";
  CHECK(contains(error_of(File("form.json", other)),
                 "there is no collective named 'allreduce' (did you mean all_reduce?)"));
  other = ring;
  other["schedules"][0]["chunks"] = 1 << 20;
  says(other, "a buffer has 1 to 16384 chunks, not 1048576");
  says(Json::object(),
       R"(expected {"collective": "all_reduce", "schedules": [one for each rank]})");
  says({ring, object_of(Collective::broadcast, "binomial", 3)}, "one file is for one collective");
  CHECK(contains(error_of(File("form.json", std::string("{"))), "parse error"));
  const File xml("exchange.xml", std::string(" <algo coll=\"allreduce\"/>"));
  const std::string path = xml;
  CHECK(error_of(xml) ==
        fmt::format("the algorithm {} cannot be used: it is XML: `ringside msccl {} --json "
                    "{}.json` makes JSON of an algorithm of MSCCL",
                    path, path, path.substr(0, path.size() - 4)));
  CHECK(error_of("no/such.json") ==
        "cannot read the algorithm no/such.json: No such file or directory");
}

TEST_CASE("a file is for the numbers of ranks that it has, and for its collective") {
  const File file("two.json", Json{object_of(Collective::all_reduce, "ring", 2),
                                   object_of(Collective::all_reduce, "ring", 4)});
  const Algorithm& algorithm = load_proved_algorithm(file);
  CHECK(make_schedules(algorithm, 4).size() == 4);
  CHECK_THROWS_WITH_AS(
      make_schedules(algorithm, 3),
      (file.name() + " all_reduce is for 2 ranks and 4 ranks, but was asked to run on 3 ranks")
          .c_str(),
      Error);
  CHECK_THROWS_WITH_AS(
      algorithm_named(Collective::reduce, file),
      (std::string(file) + " is an algorithm for all_reduce, not for reduce").c_str(), Error);
  const File rooted("rooted.json", object_of(Collective::reduce, "chain", 4, 2));
  CHECK_THROWS_WITH_AS(
      make_schedules(load_proved_algorithm(rooted), 4, 1),
      (rooted.name() + " reduce is for 4 ranks and root 2, but was asked to run on "
                       "4 ranks with root 1")
          .c_str(),
      Error);
}

TEST_CASE("the same file is the same algorithm, and another content has another number") {
  const File a("a.json", object_of(Collective::all_reduce, "ring", 3)),
      b("b.json", object_of(Collective::all_reduce, "two_shot", 3));
  const Algorithm& first = load_algorithm(a);
  CHECK(&load_algorithm(a) == &first);
  CHECK(number_of(first) >= 128);
  CHECK(algorithm_numbered(number_of(first)) == &first);
  CHECK(number_of(load_algorithm(b)) != number_of(first));
  CHECK(algorithm_numbered(127) == nullptr);
}

TEST_CASE(
    "an algorithm of a file runs over every transport, and sub-groups of other sizes select") {
  for (const int size : {2, 3, 4}) {
    const File file("run.json", object_of(Collective::all_reduce, "halving_doubling", size));
    GroupOptions options;
    options.algorithms = forced(file);
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          CHECK(group.algorithm_for(Collective::all_reduce, 10, DataType::fp32).name ==
                file.name());
          for (const std::size_t count : {0, 1, 5, 1000}) {
            std::vector<int> x(count, 1 << group.rank());
            group.all_reduce(std::span(x));
            require(x == std::vector<int>(count, (1 << size) - 1), "wrong sum of {}", count);
          }
          ProcessGroup alone = group.split(group.rank() == 0 ? 0 : 1);
          std::vector<int> y(3, 1);
          alone.all_reduce(std::span(y));
          require(y == std::vector<int>(3, group.rank() == 0 ? 1 : size - 1), "wrong sub-group");
        },
        options);
  }
}

TEST_CASE("a file that is not loaded is refused with the name of the call, and a wrong one never") {
  const File file("later.json", object_of(Collective::all_reduce, "ring", 3));
  const std::string path = file;
  for (const std::string& list : {path, "all_reduce=" + path, "broadcast=chain," + path})
    CHECK_THROWS_WITH_AS(
        AlgorithmSelection{list},
        fmt::format(
            "the algorithm {} is not loaded: the program must call "
            "collectives::load_algorithms() (collectives/algorithm_files/algorithm_file.hpp) "
            "before it makes a group",
            path)
            .c_str(),
        Error);
  load_algorithm(path);  // which proves nothing
  CHECK_THROWS_AS(AlgorithmSelection{path}, Error);
  load_algorithms("broadcast=chain,all_reduce=" + path);
  CHECK(AlgorithmSelection(path).choose(Collective::all_reduce, 1, DataType::fp32, 3).name ==
        file.name());
  CHECK_THROWS_WITH_AS(AlgorithmSelection("reduce=" + path),
                       (path + " is an algorithm for all_reduce, not for reduce").c_str(), Error);

  auto schedules = make_schedules(find_algorithm(Collective::all_reduce, "ring"), 3);
  schedules[1].steps[3].receive->action = Action::add;
  const File wrong("wrong.json", object_of(Collective::all_reduce, schedules));
  CHECK_THROWS_AS(load_algorithms(wrong), Error);
  CHECK_THROWS_AS(AlgorithmSelection{std::string(wrong)}, Error);
}

TEST_CASE("load_algorithms() loads what RINGSIDE_ALGORITHM names") {
  load_algorithms();  // nothing
  const File file("of_environment.json", object_of(Collective::all_reduce, "ring", 3));
  const std::string list = "broadcast=chain," + std::string(file);
  ::setenv("RINGSIDE_ALGORITHM", list.c_str(), 1);
  load_algorithms();
  const GroupOptions options = group_options_from_environment();
  ::unsetenv("RINGSIDE_ALGORITHM");
  CHECK(options.algorithms.choose(Collective::all_reduce, 1, DataType::fp32, 3).name ==
        file.name());
}

TEST_CASE("a rank makes its own schedule alone, once for all calls of a kind") {
  std::atomic<int> made = 0;
  const Algorithm& ring = find_algorithm(Collective::all_reduce, "ring");
  Algorithm counted{.collective = Collective::all_reduce, .name = "counted.ring", .make = {}};
  counted.make = [&](int size, int rank, int root) {
    ++made;
    return ring.make(size, rank, root);
  };
  set_algorithm_of_file("counted.ring", add_algorithm(counted, 4711));
  GroupOptions options;
  options.algorithms = AlgorithmSelection("counted.ring");
  run_threads(
      4,
      [](ProcessGroup& group) {
        std::vector<int> x(10, 1);
        group.all_reduce(std::span(x));
        group.all_reduce(std::span(x));
        require(x == std::vector<int>(10, 16), "wrong sum");
      },
      options);
  CHECK(made == 4);
}

TEST_CASE("a job of another size than its file is refused") {
  const File file("four.json", object_of(Collective::all_reduce, "ring", 4));
  GroupOptions options;
  options.algorithms = forced("all_reduce=" + std::string(file));
  for (const std::string& text : run_tcp(
           2, [](ProcessGroup&) {}, options))
    CHECK(contains(text,
                   file.name() + " all_reduce is for 4 ranks, but was asked to run on 2 ranks"));
}

TEST_CASE(
    "a rank's block may have several chunks: proved, and run with blocks that are not equal") {
  for (const int size : {2, 3, 4}) {
    const File file("blocks.json", object_of(Collective::all_gather, two_way_all_gather(size)));
    GroupOptions options;
    options.algorithms = forced(file);
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          for (const std::size_t count : {0, 1, 3, 7, 10, 1003}) {
            std::vector<int> all(count), expected(count);
            std::iota(expected.begin(), expected.end(), 0);
            const auto begin = group.block_begin(count, group.rank());
            const std::vector<int> mine(
                expected.begin() + static_cast<std::ptrdiff_t>(begin),
                expected.begin() +
                    static_cast<std::ptrdiff_t>(begin + group.block_size(count, group.rank())));
            group.all_gather(std::span(mine), std::span(all));
            require(all == expected, "{} elements on {} ranks", count, size);
          }
        },
        options);
  }
  auto wrong = two_way_all_gather(3);
  std::swap(wrong[0].steps[2].receive->chunks, wrong[0].steps[3].receive->chunks);
  CHECK(contains(error_of(File("blocks.json", object_of(Collective::all_gather, wrong))),
                 "but rank 0 expects chunk"));
}
