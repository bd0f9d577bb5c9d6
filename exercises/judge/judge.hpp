// A judge says whether a student's code is right, case by case. exercises/NN-slug/judge.cpp has the
// cases of one exercise.
//
//     collect()   runs where the student's code is, in one process for each rank, and returns what
//                 was seen: numbers, schedules, the calls that were made
//     judge()     runs in a process without the student's code, and says what is wrong with it
//
// So code that ends its process early, or that prints "right", only loses its data. The program of
// main.cpp runs both halves; exercises/tool/kit.py starts it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/json.hpp"
#include "collectives/bootstrap/connections.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/process_group.hpp"
#include "exercises/judge/observed_calls.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::collectives {
class ThreadsWorld;
}

namespace ringside::exercises {

// One rank of the world in which collect() runs.
class World {
 public:
  struct Options {
    std::string transport = "tcp";  // or "shm", "threads"
    std::uint64_t seed = 0;         // of all random numbers: each student has another one
    std::string folder = ".";       // for the data and the flight records
    Seconds timeout{5};             // of a collective that stands still
  };
  World(collectives::RankInfo rank_info, Options options,
        std::shared_ptr<collectives::ThreadsWorld> threads = nullptr);
  ~World();

  int rank() const { return rank_info_.rank; }
  int size() const { return rank_info_.size; }
  std::uint64_t seed() const { return options_.seed; }
  Seconds timeout() const { return options_.timeout; }
  // A random number in low .. high; the same on every rank.
  int number(int low, int high, std::uint64_t which) const;

  // Connects the ranks. group() is made at the first use, and runs the ring and the binomial tree,
  // so that the bytes of each rank are known.
  collectives::Connections connect();
  collectives::ProcessGroup& group();
  CallObserver& calls() { return *calls_; }  // of group()

  // Notes what this rank is about to do, for the sentence about a rank that does not come back.
  void doing(const std::string& what) const;

  // Tells the other ranks that this one gives up.
  void abort(const std::string& cause) noexcept;

 private:
  collectives::RankInfo rank_info_;
  Options options_;
  std::shared_ptr<collectives::ThreadsWorld> threads_;
  std::shared_ptr<CallObserver> calls_ = std::make_shared<CallObserver>();
  std::optional<collectives::ProcessGroup> group_;
};

// What the ranks of one world returned: [rank].
struct Run {
  int world = 1;
  std::uint64_t seed = 0;
  std::vector<Json> ranks;
};

// What the ranks of a world of this size and seed return where the reference is the student: in the
// program that judges, each rank a thread.
Run run_of_reference(const Run& run, Json (*collect)(World& world));

struct Verdict {
  Verdict() = default;
  Verdict(std::vector<std::string> sentences, std::string drawing = "")
      : says(std::move(sentences)), picture(std::move(drawing)) {}
  std::vector<std::string> says;  // what is wrong; empty: the case is right
  std::string picture;            // for a terminal
};

// What `fault` says about the first rank that has a fault: "rank 1: sent 8 bytes, expected 12".
// `fault` returns "" where all is right.
Verdict first_fault(const Run& run,
                    const std::function<std::string(int rank, const Json& seen)>& fault);

// The "error" of the first rank that saw one. A judge asks after what explains it better.
Verdict first_error(const Run& run);

struct Case {
  std::string_view id;  // as in exercise.json
  Json (*collect)(World& world);
  Verdict (*judge)(const Run& run);
};

// Makes the cases of an exercise known to the program. A judge.cpp has one. `by_program` lets a
// program answer all calls of the student's code (program.hpp), where it may be in any language.
struct Judge {
  Judge(std::string_view exercise, std::vector<Case> cases, void (*by_program)() = nullptr);
};

// Throws Error unless there is such a case.
const Case& find_case(std::string_view exercise, std::string_view id);
// Whether the reference is in the student's place: reference.cpp is in that program only.
bool holds_the_reference();
bool hold_the_reference();
// Throws Error unless programs may answer.
void let_program_answer(std::string_view exercise);

}  // namespace ringside::exercises
