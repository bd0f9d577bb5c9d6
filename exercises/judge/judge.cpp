#include "exercises/judge/judge.hpp"

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "base/random.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "exercises/judge/starter.hpp"

namespace ringside::exercises {
namespace {

struct CasesOf {
  std::vector<Case> cases;
  void (*by_program)();
};
std::map<std::string_view, CasesOf>& judges() {
  static std::map<std::string_view, CasesOf> all;
  return all;
}

std::atomic<int> calls = 0;
constinit bool reference_is_here = false;

}  // namespace

Judge::Judge(std::string_view exercise, std::vector<Case> cases, void (*by_program)()) {
  judges()[exercise] = {std::move(cases), by_program};
}

const Case& find_case(std::string_view exercise, std::string_view id) {
  const auto found = judges().find(exercise);
  require(found != judges().end(), "this program has no judge of exercise {}", exercise);
  for (const Case& each : found->second.cases)
    if (each.id == id) return each;
  fail("the judge of {} has no case {}", exercise, id);
}

bool holds_the_reference() {
  return reference_is_here;
}

bool hold_the_reference() {
  return reference_is_here = true;
}

void let_program_answer(std::string_view exercise) {
  const auto& by_program = judges().at(exercise).by_program;
  require(by_program != nullptr, "exercise {} is judged in C++ only", exercise);
  by_program();
}

Verdict first_fault(const Run& run,
                    const std::function<std::string(int rank, const Json& seen)>& fault) {
  for (int rank = 0; rank < run.world; ++rank)
    if (const std::string says = fault(rank, run.ranks.at(static_cast<std::size_t>(rank)));
        !says.empty())
      return {{fmt::format("rank {}: {}", rank, says)}};
  return {};
}

Verdict first_error(const Run& run) {
  return first_fault(run,
                     [](int, const Json& seen) { return seen.at("error").get<std::string>(); });
}

Run run_of_reference(const Run& run, Json (*collect)(World& world)) {
  Run expected{run.world, run.seed, std::vector<Json>(static_cast<std::size_t>(run.world))};
  const auto threads = collectives::make_threads_world(run.world);
  std::vector<std::string> errors(expected.ranks.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < expected.ranks.size(); ++rank)
    ranks.emplace_back([&, rank] {
      collectives::RankInfo info;
      info.rank = static_cast<int>(rank), info.size = run.world;
      World world(info, {.transport = "threads", .seed = run.seed, .folder = ""}, threads);
      try {
        expected.ranks[rank] = collect(world);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        world.abort(error.what());
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& error : errors) require(error.empty(), "the reference: {}", error);
  return expected;
}

int student_calls() {
  return calls;
}

void count_student_call() {
  ++calls;
}

void not_written_yet(const char* function, std::source_location where) {
  const std::string_view path = where.file_name();
  throw NotWrittenYet(fmt::format("{} is not yet written ({}:{})", function,
                                  path.substr(path.rfind('/') + 1), where.line()));
}

World::World(collectives::RankInfo rank_info, Options options,
             std::shared_ptr<collectives::ThreadsWorld> threads)
    : rank_info_(std::move(rank_info)),
      options_(std::move(options)),
      threads_(std::move(threads)) {}

World::~World() = default;

int World::number(int low, int high, std::uint64_t which) const {
  return low + static_cast<int>(random_below(static_cast<std::uint64_t>(high - low + 1),
                                             options_.seed, 0, which));
}

collectives::Connections World::connect() {
  if (options_.transport == "threads") return collectives::connect_threads(threads_, rank());
  if (options_.transport == "shm") return collectives::connect_shm(rank_info_);
  require(options_.transport == "tcp", "a world runs over tcp, shm or threads, not over {}",
          options_.transport);
  return collectives::connect_tcp(rank_info_);
}

collectives::ProcessGroup& World::group() {
  if (group_) return *group_;
  collectives::ExecutorOptions options;
  options.timeout = options_.timeout;
  options.warn_after = Seconds(0);
  group_.emplace(observed(collectives::make_schedule_backend(connect(), options), calls_),
                 collectives::AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,"
                                                 "all_gather=ring,broadcast=binomial"));
  return *group_;
}

void World::doing(const std::string& what) const {
  if (!options_.folder.empty())
    std::ofstream(fmt::format("{}/{}.doing", options_.folder, rank())) << what;
}

void World::abort(const std::string& cause) noexcept {
  if (group_) group_->abort(cause);
}

}  // namespace ringside::exercises
