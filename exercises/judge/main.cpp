// The program of the judges. exercises/tool/kit.py starts it:
//
//     PROGRAM EXERCISE collect CASE FOLDER     as one rank of a world, which the environment
//                                              describes (RANK, WORLD_SIZE, MASTER_PORT, ...):
//                                              reports to its parent, or writes FOLDER/RANK.json
//     PROGRAM EXERCISE judge CASE              reads {"world", "seed", "ranks": [...]} from
//                                              standard input, and writes {"says", "picture"}
//     PROGRAM postmortem FOLDER                what the flight records in FOLDER tell
//
// It is built twice: with the student's code, where it only collects; and with the reference in its
// place (reference.cpp), where it judges, and collects only what a student's program answers.
//
// RINGSIDE_JUDGE_RESULT is a socket to the parent. Before any code of the student runs, a secret is
// read from it; the report begins with this secret. Then the process ends at once, so that no
// destructor of the student's has a say in it.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "base/environment.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "exercises/judge/judge.hpp"
#include "exercises/judge/starter.hpp"

namespace ringside::exercises {
namespace {

constexpr std::size_t secret_length = 32;
int result_socket = -1;
char secret[secret_length];

// Of the highest priority: kit.py refuses objects with a constructor that has one.
__attribute__((constructor(101))) void read_secret() {
  const char* const number = std::getenv("RINGSIDE_JUDGE_RESULT");
  if (number == nullptr) return;
  result_socket = std::atoi(number);
  unsetenv("RINGSIDE_JUDGE_RESULT");
  fcntl(result_socket, F_SETFD, FD_CLOEXEC);
  for (std::size_t read_so_far = 0; read_so_far < secret_length;) {
    const auto some = read(result_socket, secret + read_so_far, secret_length - read_so_far);
    if (some <= 0) std::_Exit(1);
    read_so_far += static_cast<std::size_t>(some);
  }
}

void write_all(const std::string& text) {
  for (std::size_t written = 0; written < text.size();) {
    const auto some = ::write(result_socket, text.data() + written, text.size() - written);
    if (some <= 0) std::_Exit(1);
    written += static_cast<std::size_t>(some);
  }
}

Json outcome_of(const Case& each, World& world) {
  Json outcome;
  try {
    outcome["data"] = each.collect(world);
  } catch (const NotWrittenYet& stub) {
    outcome["not_written"] = stub.what();
    world.abort(stub.what());
  } catch (const std::exception& error) {
    outcome["error"] = error.what();
    world.abort(error.what());
  }
  return outcome;
}

// outcomes: [rank of this process]
void report(const std::map<int, Json>& outcomes, const std::string& folder) {
  if (result_socket < 0) {  // in a debugger
    for (const auto& [rank, outcome] : outcomes)
      std::ofstream(fmt::format("{}/{}.json", folder, rank)) << outcome;
    return;
  }
  Json all = Json::object();
  for (const auto& [rank, outcome] : outcomes) all[std::to_string(rank)] = outcome;
  write_all(std::string(secret, secret_length) + all.ascii());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which report at the end
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(0);
#endif
}

void collect(const Case& each, const std::string& folder) {
  collectives::RankInfo rank_info = collectives::rank_info_from_environment();
  const World::Options options{
      .transport = environment("RINGSIDE_JUDGE_TRANSPORT").value_or("tcp"),
      .seed = std::stoull(environment("RINGSIDE_JUDGE_SEED").value_or("0")),
      .folder = folder,
      .timeout = Seconds(integer_environment("RINGSIDE_JUDGE_TIMEOUT", 1, 1000).value_or(5))};
  std::map<int, Json> outcomes;
  std::mutex mutex;
  const auto run_rank = [&](collectives::RankInfo info,
                            std::shared_ptr<collectives::ThreadsWorld> threads) {
    World world(info, options, std::move(threads));
    Json outcome = outcome_of(each, world);
    outcome["called"] = student_calls();
    const std::lock_guard lock(mutex);
    outcomes[info.rank] = std::move(outcome);
  };
  if (options.transport != "threads") {
    run_rank(rank_info, nullptr);
    return report(outcomes, folder);
  }
  const auto threads = collectives::make_threads_world(rank_info.size);
  std::vector<std::thread> ranks;
  for (rank_info.rank = 0; rank_info.rank < rank_info.size; ++rank_info.rank)
    ranks.emplace_back(run_rank, rank_info, threads);
  for (std::thread& rank : ranks) rank.join();
  report(outcomes, folder);
}

void judge(const Case& each) {
  const Json given = Json::parse(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  const Run run{.world = given.at("world"), .seed = given.at("seed"), .ranks = given.at("ranks")};
  Verdict verdict;
  try {
    verdict = each.judge(run);
  } catch (const JsonError& error) {
    verdict.says = {fmt::format("the data of a rank has another form: {}", error.what())};
  }
  std::cout << Json{{"says", verdict.says}, {"picture", verdict.picture}}.ascii();
}

void run(const std::vector<std::string>& args) {
  if (args.size() == 2 && args[0] == "postmortem")
    std::cout << collectives::postmortem(collectives::read_flights(args[1]));
  else if (args.size() == 4 && args[1] == "collect") {
    if (environment("RINGSIDE_STUDENT_PROGRAM"))
      let_program_answer(args[0]);
    else
      require(!holds_the_reference(), "this program judges: it collects nothing in your name");
    collect(find_case(args[0], args[2]), args[3]);
  } else if (args.size() == 3 && args[1] == "judge")
    judge(find_case(args[0], args[2]));
  else
    fail("usage: EXERCISE collect CASE FOLDER | EXERCISE judge CASE | postmortem FOLDER");
}

}  // namespace
}  // namespace ringside::exercises

int main(int argc, char** argv) {
  try {
    ringside::exercises::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
