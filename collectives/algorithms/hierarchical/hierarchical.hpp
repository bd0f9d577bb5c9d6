// Hierarchical: an all-reduce in two levels, made from any schedules. For hosts whose ranks reach
// each other faster than ranks of other hosts.
//
// Ranks form a grid: a row is a host, a column has one rank of each host.
//
//     4 ranks       host 0    rank 0   rank 1       1. reduce-scatter in each row
//                   host 1    rank 2   rank 3       2. all-reduce of each part in each column
//                                                   3. all-gather in each row
//
// A column reduces 1/per_host of the buffer, so all of its ranks together send 2 (hosts-1)
// n/per_host bytes to other hosts, and all columns together 2 (hosts-1) n. That is the least
// possible. A flat ring sends as many if neighbours share a host, and per_host times as many if
// none do.
//
// In a cluster whose ranks of equal index share a switch (NCCL's rails), each column has its own.
//
// Source: Ueno and Yokota, "Exhaustive study of hierarchical AllReduce patterns for large messages
// between GPUs", CCGRID 2019, pages 430-439; the same three phases are in BlueConnect (Cho et al.,
// 2019).
#pragma once

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

using MakeSchedule = Schedule (*)(int size, int rank);

// The largest number of ranks per host, up to the square root of `size`, that divides `size`.
constexpr int square_grid(int size) {
  int per_host = 1;
  for (int n = 2; n * n <= size; ++n)
    if (size % n == 0) per_host = n;
  return per_host;
}

// Adds the steps of `part`, whose ranks and chunks have other names there.
template <class RankOf, class ChunksOf>
void add_renamed(Schedule& schedule, const Schedule& part, const RankOf& rank_of,
                 const ChunksOf& chunks_of) {
  for (Step step : part.steps) {
    if (step.send) {
      step.send->to = rank_of(step.send->to);
      step.send->chunks = chunks_of(step.send->chunks);
    }
    if (step.receive) {
      step.receive->from = rank_of(step.receive->from);
      step.receive->chunks = chunks_of(step.receive->chunks);
    }
    schedule.steps.push_back(step);
  }
}

// Afterwards every rank holds the sum of all ranks' buffers. `per_host` must divide `size`; ranks
// h per_host .. (h+1) per_host - 1 are those of host h. The schedules in a host have a chunk for
// each rank, in ranges that may go round the end but have no other stride. The one across hosts has
// ranges that are not circular. None of them sends its input.
inline Schedule hierarchical_all_reduce_of(int size, int rank, int per_host,
                                           MakeSchedule reduce_scatter, MakeSchedule across,
                                           MakeSchedule all_gather) {
  const int hosts = size / per_host, host = rank / per_host, index = rank % per_host;
  const Schedule column = across(hosts, host);
  Schedule schedule{.chunks = per_host * column.chunks, .steps = {}};

  // A chunk of the row is all the chunks of a column.
  const auto in_row = [&](int other) { return host * per_host + other; };
  const auto in_column = [&](int other) { return other * per_host + index; };
  const auto chunks_of_row = [&](ChunkRange range) {
    return ChunkRange{range.first * column.chunks, range.count * column.chunks, 1,
                      range.modulus * column.chunks};
  };
  const auto chunks_of_column = [&](ChunkRange range) {
    return ChunkRange{index * column.chunks + range.first, range.count};
  };
  add_renamed(schedule, reduce_scatter(per_host, index), in_row, chunks_of_row);
  add_renamed(schedule, column, in_column, chunks_of_column);
  add_renamed(schedule, all_gather(per_host, index), in_row, chunks_of_row);
  return schedule;
}

}  // namespace ringside::collectives
