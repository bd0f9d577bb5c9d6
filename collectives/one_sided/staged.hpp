// The same collectives for ranks that see only each other's ARENAS: processes, each with a GPU.
// Read collectives.hpp first.
//
// A block copies a tile of its rank's input into the arena, makes the collective of collectives.hpp
// on that tile, and copies the result out. Then it goes on with the next tile.
//
//     input  ---- copy ---->  [ first area  ]                     peers read it
//                             [ second area ]  ---- copy ---->  output
//                               peers write it (two-shot), or read it (the ring)
//
//     area:   [ block 0 | block 1 | block 2 | ... ]     each block has a part, as long as a tile
//
// Blocks never touch each other's parts, so no block waits for another of its rank, and while one
// copies another sums. A part is written again in the next tile: by its own block, which has passed
// the last barrier of this tile, so that no peer reads it any more; or by a peer after the first
// barrier of the next tile, so that this block has copied the result out. In the next call the
// parts may be divided differently; but a kernel ends only when all of its blocks have passed that
// last barrier, and the first barrier of a kernel is passed only after all peers have ended the
// last.
#pragma once

#include "collectives/one_sided/collectives.hpp"

namespace ringside::collectives::one_sided {

// The buffers of this rank, which no peer sees, and how many elements an area of an arena holds: at
// least a pack for each chunk of each block.
template <Element T>
struct Staging {
  const T* input = nullptr;
  T* output = nullptr;
  std::size_t room = 0;

  // The part of this block, in elements of the area.
  constexpr Range part(const BlockContext& context) const {
    const auto block = static_cast<std::size_t>(context.block);
    const std::size_t each = whole_packs(room / static_cast<std::size_t>(context.blocks));
    return {block * each, (block + 1) * each};
  }
  static constexpr std::size_t whole_packs(std::size_t elements) {
    return elements / Pack<T>::size * Pack<T>::size;
  }
};

// How many of the `count` elements from `begin` on a chunk of `length` elements has.
constexpr std::size_t within(std::size_t length, std::size_t begin, std::size_t count) {
  return begin >= length ? 0 : (length - begin < count ? length - begin : count);
}

// `all_reduce(range)` is an all-reduce of the areas: from all ranks' areas.input to their
// areas.output.
template <class Memory, Element T, class Team, class AllReduce>
constexpr bool staged_all_reduce(const Team& team, const BlockContext& context,
                                 const Staging<T>& staging, const Buffers<T>& areas,
                                 std::size_t count, AllReduce all_reduce) {
  const Range mine = stripe_of<T>(context, count), part = staging.part(context);
  T* const first = const_cast<T*>(areas.input[context.rank]);
  for (std::size_t begin = mine.begin; begin < mine.end; begin += part.end - part.begin) {
    const std::size_t tile = within(mine.end, begin, part.end - part.begin);
    copy<Memory>(team, first + part.begin, staging.input + begin, tile);
    if (!all_reduce(Range{part.begin, part.begin + tile})) return false;
    copy<Memory>(team, staging.output + begin, areas.output[context.rank] + part.begin, tile);
    team.sync();
  }
  return true;
}

// A tile has a part of each rank's chunk; that of chunk r lies at r * each in the block's part.
template <class Memory, Element T, class Team>
constexpr bool staged_reduce_scatter(const Team& team, const BlockContext& context,
                                     const Staging<T>& staging, const Buffers<T>& areas,
                                     std::size_t count, float scale) {
  const int size = context.size, rank = context.rank;
  const Range part = staging.part(context),
              longest = stripe_of<T>(context, even_chunk(count, 0, size).end);
  const std::size_t each =
      Staging<T>::whole_packs((part.end - part.begin) / static_cast<std::size_t>(size));
  T* const first = const_cast<T*>(areas.input[rank]);
  for (std::size_t begin = longest.begin; begin < longest.end; begin += each) {
    const std::size_t tile = within(longest.end, begin, each);
    for (int r = 0; r < size; ++r) {
      const Range chunk = even_chunk(count, r, size);
      copy<Memory>(team, first + part.begin + static_cast<std::size_t>(r) * each,
                   staging.input + chunk.begin + begin,
                   within(chunk.end - chunk.begin, begin, tile));
    }
    const Range chunk = even_chunk(count, rank, size);
    const std::size_t at = part.begin + static_cast<std::size_t>(rank) * each;
    if (!reduce_scatter<Memory>(team, context, areas.input,
                                {at, at + within(chunk.end - chunk.begin, begin, tile)},
                                staging.output + begin, scale))
      return false;
    team.sync();
  }
  return true;
}

template <class Memory, Element T, class Team>
constexpr bool staged_all_gather(const Team& team, const BlockContext& context,
                                 const Staging<T>& staging, const Buffers<T>& areas,
                                 std::size_t count) {
  const int size = context.size, rank = context.rank;
  const Range part = staging.part(context),
              longest = stripe_of<T>(context, even_chunk(count, 0, size).end);
  T* const first = const_cast<T*>(areas.input[rank]);
  for (std::size_t begin = longest.begin; begin < longest.end; begin += part.end - part.begin) {
    const std::size_t tile = within(longest.end, begin, part.end - part.begin);
    const auto piece_from = [&](int from) {
      const Range chunk = even_chunk(count, from, size);
      return Piece<T>{from == rank ? staging.input + begin : areas.input[from] + part.begin,
                      staging.output + chunk.begin + begin,
                      within(chunk.end - chunk.begin, begin, tile)};
    };
    copy<Memory>(team, first + part.begin, staging.input + begin, piece_from(rank).count);
    if (!gather<Memory, T>(team, context, piece_from)) return false;
    team.sync();
  }
  return true;
}

// The root's data are in its output.
template <class Memory, Element T, class Team>
constexpr bool staged_broadcast(const Team& team, const BlockContext& context,
                                const Staging<T>& staging, const Buffers<T>& areas,
                                std::size_t count, int root) {
  const int rank = context.rank;
  const Range part = staging.part(context), mine = stripe_of<T>(context, count);
  T* const first = const_cast<T*>(areas.input[rank]);
  for (std::size_t begin = mine.begin; begin < mine.end; begin += part.end - part.begin) {
    const std::size_t tile = within(mine.end, begin, part.end - part.begin);
    if (rank == root) copy<Memory>(team, first + part.begin, staging.output + begin, tile);
    const auto piece_from = [&](int from) {
      return Piece<T>{areas.input[root] + part.begin, staging.output + begin,
                      from == root && rank != root ? tile : 0};
    };
    if (!gather<Memory, T>(team, context, piece_from)) return false;
    team.sync();
  }
  return true;
}

}  // namespace ringside::collectives::one_sided
