// The collectives, and what each of them promises.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringside::collectives {

// What holds at the end. At the start every chunk on rank r holds what rank r put there: its
// contribution. In an all_gather and a gather only chunk r of rank r counts; in a broadcast and a
// scatter only the root's chunks.
enum class Collective : std::uint8_t {
  all_reduce,      // every chunk on every rank: the sum of all ranks' contributions
  reduce_scatter,  // chunk r on rank r: the sum of all ranks' contributions
  all_gather,      // chunk c on every rank: rank c's contribution
  broadcast,       // every chunk on every rank: the root's contribution
  reduce,          // every chunk on the root: the sum of all ranks' contributions
  barrier,         // every rank has heard from every rank, directly or through others
  gather,          // chunk c on the root: rank c's contribution
  scatter,         // chunk r on rank r: the root's contribution
  all_to_all,      // chunk c on rank r: chunk r of rank c's contribution
  point_to_point,  // not a collective: a send and its recv, a call of two ranks
};

std::string_view name_of(Collective collective);     // "all_reduce"
std::string_view promise_of(Collective collective);  // the comment above, in words for a table
bool has_root(Collective collective);
bool reduces(Collective collective);       // adds contributions, and does not only move them
bool has_blocks(Collective collective);    // a chunk for each rank, which callers see
bool names_chunks(Collective collective);  // a chunk may end as another chunk

}  // namespace ringside::collectives
