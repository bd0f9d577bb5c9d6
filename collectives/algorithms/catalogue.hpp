// The catalogue: which collectives there are, what each promises, and which algorithms keep the
// promise.
//
// `prove`, `step`, the executor's choice and the cost model all read this one list; an algorithm is
// added by one line in catalogue.cpp and is from then on proved, drawn, run and costed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// What must hold at the end. Before, every chunk c on every rank r holds what rank r put there:
// "r's contribution".
enum class Collective : std::uint8_t {
  all_reduce,      // every chunk on every rank: all ranks' contributions, each once
  reduce_scatter,  // chunk r on rank r: all ranks' contributions, each once
  all_gather,      // chunk c on every rank: rank c's contribution alone
  broadcast,       // every chunk on every rank: the root's contribution alone
  reduce,          // every chunk on the root: all ranks' contributions, each once
  barrier,         // every rank has heard, by way of messages, from every rank
  gather,          // chunk c on the root: rank c's contribution alone
  scatter,         // chunk r on rank r: the root's contribution alone
  all_to_all,      // chunk c on rank r: what was chunk r on rank c
  point_to_point,  // no collective: a call of the two ranks of a send and its recv, which no others
                   // make
};

inline constexpr Collective all_collectives[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::reduce,         Collective::gather,
    Collective::scatter,    Collective::all_to_all,     Collective::barrier};

std::string_view name_of(Collective collective);     // "all_reduce"
std::string_view promise_of(Collective collective);  // the comment above, in words for a table
bool has_root(Collective collective);
bool reduces(Collective collective);       // contributions are added, not only moved
bool names_chunks(Collective collective);  // a chunk may end in another chunk's place, so that its
                                           // number must be followed, too

// The collective of that name. Throws Error with a list of those that exist.
Collective collective_named(std::string_view name);

struct Algorithm {
  Collective collective;
  std::string_view name;                           // "ring"; names are unique within a collective
  Schedule (*make)(int size, int rank, int root);  // root is ignored where the collective has none
  bool cautionary =
      false;  // here to be compared with: run where it is asked for by name, never chosen

  std::string title() const {
    return std::string(name) + " " + std::string(name_of(collective));
  }  // "ring all_reduce"
};

// All of them, in the order of `all_collectives`; the first of a collective is its default.
const std::vector<Algorithm>& all_algorithms();

// The algorithm of that name for `collective`; with an empty name the default. Throws Error with a
// list of those that exist.
const Algorithm& find_algorithm(Collective collective, std::string_view name = "");

// The schedules of all ranks, element r being rank r's. Throws Error unless size >= 1 and 0 <= root
// < size.
std::vector<Schedule> make_schedules(const Algorithm& algorithm, int size, int root = 0);

}  // namespace ringside::collectives
