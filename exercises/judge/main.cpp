// The program of the judges. exercises/tool/kit.py starts it:
//
//     PROGRAM EXERCISE collect CASE FOLDER     as one rank of a world, which the environment
//                                              describes (RANK, WORLD_SIZE, MASTER_PORT, ...):
//                                              writes FOLDER/RANK.json
//     PROGRAM EXERCISE judge CASE              reads {"world", "seed", "ranks": [...]} from
//                                              standard input, and writes {"says", "picture"}
//     PROGRAM postmortem FOLDER                what the flight records in FOLDER tell
//
// It is built twice: with the student's code, where it only collects; and with the reference in its
// place, where it judges, and takes part in worlds as the witness.
#include <fstream>
#include <iostream>
#include <thread>

#include "base/environment.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "exercises/judge/judge.hpp"
#include "exercises/judge/starter.hpp"

namespace ringside::exercises {
namespace {

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

void write(const Json& outcome, const std::string& folder, int rank) {
  // Renamed when it is complete: a reader never sees half of it.
  const std::string path = fmt::format("{}/{}.json", folder, rank);
  std::ofstream(path + ".part") << outcome;
  std::filesystem::rename(path + ".part", path);
}

void collect(const Case& each, const std::string& folder) {
  collectives::RankInfo rank_info = collectives::rank_info_from_environment();
  const World::Options options{
      .transport = environment("RINGSIDE_JUDGE_TRANSPORT").value_or("tcp"),
      .seed = std::stoull(environment("RINGSIDE_JUDGE_SEED").value_or("0")),
      .folder = folder};
  const auto run_rank = [&](collectives::RankInfo info,
                            std::shared_ptr<collectives::ThreadsWorld> threads) {
    World world(info, options, std::move(threads));
    Json outcome = outcome_of(each, world);
    outcome["called"] = student_calls();
    write(outcome, folder, info.rank);
  };
  if (options.transport != "threads") return run_rank(rank_info, nullptr);
  const auto threads = collectives::make_threads_world(rank_info.size);
  std::vector<std::thread> ranks;
  for (rank_info.rank = 0; rank_info.rank < rank_info.size; ++rank_info.rank)
    ranks.emplace_back(run_rank, rank_info, threads);
  for (std::thread& rank : ranks) rank.join();
}

void judge(const Case& each) {
  const Json given = Json::parse(std::cin);
  const Run run{.world = given.at("world"), .seed = given.at("seed"), .ranks = given.at("ranks")};
  Verdict verdict;
  try {
    verdict = each.judge(run);
  } catch (const Json::exception& error) {
    verdict.says = {fmt::format("the data of a rank has another form: {}", error.what())};
  }
  std::cout << Json{{"says", verdict.says}, {"picture", verdict.picture}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

void run(const std::vector<std::string>& args) {
  if (args.size() == 2 && args[0] == "postmortem")
    std::cout << collectives::postmortem(collectives::read_flights(args[1]));
  else if (args.size() == 4 && args[1] == "collect") {
    if (environment("RINGSIDE_STUDENT_PROGRAM")) let_program_answer(args[0]);
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
