// The catalogue: all algorithms of all collectives.
//
// To add an algorithm, add one line to catalogue.cpp: it is then proved, drawn, run, costed and
// offered for selection. An algorithm of a file joins the catalogue while the program runs, by
// load_algorithms() (algorithm_files/algorithm_file.hpp), and is used only where it is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/collective.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

inline constexpr Collective all_collectives[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::reduce,         Collective::gather,
    Collective::scatter,    Collective::all_to_all,     Collective::barrier};

// The collective of that name. Throws Error with a list of those that exist.
Collective collective_named(std::string_view name);

// A number of ranks, and the root where the collective has one.
struct Case {
  int size, root = 0;
};

struct Algorithm {
  Collective collective;
  std::string_view name;  // "ring", unique within a collective; or the name of a file
  // Ignores root where the collective has none.
  std::function<Schedule(int size, int rank, int root)> make;
  bool cautionary = false;  // for comparison only: it runs when asked for by name, never by default
  // Every rank sends to every other one, and nothing is forwarded: such a call can be announced
  // (execution/announcing_executor.hpp).
  bool direct = false;
  std::vector<Case> only = {};    // of a file: the cases that it has; empty: all
  std::uint8_t number_added = 0;  // of a file: number_of() it

  // "ring all_reduce"
  std::string title() const { return std::string(name) + " " + std::string(name_of(collective)); }
};

// All but those of files, in the order of `all_collectives`; the first of a collective is its
// default.
const std::vector<Algorithm>& all_algorithms();

// Those of a collective that are not cautionary, its default first.
std::vector<const Algorithm*> algorithms_to_select(Collective collective);

// The algorithm of that name for `collective`, or algorithm_of_file(); the default if the name is
// empty. Throws Error with a list of those that exist, or if the file is for another collective.
const Algorithm& find_algorithm(Collective collective, std::string_view name = "");

// The number that stands for it in a call: its index in all_algorithms(), or what add_algorithm()
// gave it. `algorithm` must be a reference into the catalogue.
std::uint8_t number_of(const Algorithm& algorithm);

// The inverse; nullptr if this process knows no algorithm of that number.
const Algorithm* algorithm_numbered(std::uint8_t number);

// Keeps an algorithm of a file until the program ends, and gives it a number. `content` is a hash
// of its schedules. Its lowest bits are in the number, so ranks with different files notice. The
// same content and name again is the same algorithm. Any thread may call it.
const Algorithm& add_algorithm(const Algorithm& algorithm, std::uint64_t content);

// Whether `name` is a file and no name of the catalogue: it has an ending or a folder.
bool is_algorithm_file(std::string_view name);

// Makes an algorithm, which is in the catalogue and proved, the one of `file`. Any thread may call
// it.
void set_algorithm_of_file(const std::string& file, const Algorithm& algorithm);

// The algorithm of `file`. Throws Error if load_algorithms() has not loaded it.
const Algorithm& algorithm_of_file(std::string_view file);

// Whether it has schedules for so many ranks: false only for files.
bool has_size(const Algorithm& algorithm, int size);

// The schedule of one rank, 0 <= rank < size. Throws Error unless size >= 1, 0 <= root < size, and
// the algorithm has that case.
Schedule make_schedule(const Algorithm& algorithm, int size, int rank, int root = 0);

// The schedules of all ranks; element r is rank r's. Throws as make_schedule() does.
std::vector<Schedule> make_schedules(const Algorithm& algorithm, int size, int root = 0);

}  // namespace ringside::collectives
