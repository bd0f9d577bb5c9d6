// Collectives among ranks that see each other's memory: what one block of a GPU kernel does. In the
// tests a CPU thread does the same. Read mailbox.hpp first, then elements.hpp.
//
//     the collective of one block on a range that all ranks see:
//         two_shot_all_reduce, pull_all_reduce (the ring), reduce_scatter, gather
//     one_shot_all_reduce: for small messages, by packets
//     direct_...: a whole call of ranks that see each other's buffers: threads that share a GPU
//     staged_... (staged.hpp): a whole call of ranks that see only each other's arenas: processes
//
// Each function returns false when a peer is lost. It has then told every rank to stop waiting, and
// the data are undefined.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "collectives/one_sided/elements.hpp"
#include "collectives/one_sided/mailbox.hpp"

namespace ringside::collectives::one_sided {

// Memory of all ranks, as addresses of this rank: peers read inputs and write outputs.
template <Element T>
struct Buffers {
  const T* input[most_ranks] = {};
  T* output[most_ranks] = {};
};

// Whether elements can be moved 16 bytes at a time in the buffers of all ranks.
template <Element T>
constexpr bool all_on_16_bytes(const T* const* buffers, int count) {
  bool all = true;
  for (int r = 0; r < count; ++r) all = all && on_16_bytes(buffers[r]);
  return all;
}

// ---- On one range: every rank makes the same calls with the same number of blocks ----

// Each rank loads its chunk of the range from all ranks, adds, and stores the sum to all ranks. All
// N ranks together load each element N times and store it N times, which is the minimum for an
// all-reduce over memory. It also works in place: only the owner of a chunk reads it, before
// writing it.
//
//     barrier                                             barrier
//     all inputs are ready, outputs may be written        all ranks have stored
template <class Memory, Element T, class Team>
constexpr bool two_shot_all_reduce(const Team& team, const BlockContext& context,
                                   const Buffers<T>& buffers, Range range, float scale) {
  const Number first = first_number(context);
  const int size = context.size, next = after(context.rank, size);
  const bool packs =
      all_on_16_bytes(buffers.input, size) && all_on_16_bytes<T>(buffers.output, size);
  if (!barrier<Memory>(team, context, first)) return false;
  transform<sums_under_way<T>, T>(
      team, stripe<T>(range, context.rank, size), packs,
      [&](const auto& width, std::size_t i) {
        return sum_of<Memory>(buffers.input, size, next, i, width, scale);
      },
      [&](std::size_t i, const auto& sum) {
        for (int s = 0, r = next; s < size; ++s, r = after(r, size))
          Memory::store(buffers.output[r] + i, sum);
      });
  if (!barrier<Memory>(team, context, first + 1)) return false;
  finish_at(team, context, first + 1);
  return true;
}

// The first half of two-shot: a rank stores the sum of the range `mine` to `into`, which no peer
// reads. Every rank has a range of its own.
template <class Memory, Element T, class Team>
constexpr bool reduce_scatter(const Team& team, const BlockContext& context, const T* const* inputs,
                              Range mine, T* into, float scale) {
  const Number first = first_number(context);
  const int size = context.size, next = after(context.rank, size);
  const bool packs =
      all_on_16_bytes(inputs, size) && on_16_bytes(into) && mine.begin % Pack<T>::size == 0;
  if (!barrier<Memory>(team, context, first)) return false;
  transform<sums_under_way<T>, T>(
      team, mine, packs,
      [&](const auto& width, std::size_t i) {
        return sum_of<Memory>(inputs, size, next, i, width, scale);
      },
      [&](std::size_t i, const auto& sum) { Memory::store(into + (i - mine.begin), sum); });
  // After this barrier inputs may be overwritten.
  if (!barrier<Memory>(team, context, first + 1)) return false;
  finish_at(team, context, first + 1);
  return true;
}

// What one rank reads from another.
template <Element T>
struct Piece {
  const T* from = nullptr;
  T* into = nullptr;
  std::size_t count = 0;
};

// Each rank reads piece_from(r) of each rank r, from its next neighbour first and from itself last.
// So the ranks do not all read from the same one at once.
template <class Memory, Element T, class Team, class PieceFrom>
constexpr bool gather(const Team& team, const BlockContext& context, PieceFrom piece_from) {
  const Number first = first_number(context);
  if (!barrier<Memory>(team, context, first)) return false;
  for (int s = 0, r = after(context.rank, context.size); s < context.size;
       ++s, r = after(r, context.size)) {
    const Piece<T> piece = piece_from(r);
    copy<Memory>(team, piece.into, piece.from, piece.count);
  }
  // After this barrier what was read may be overwritten.
  if (!barrier<Memory>(team, context, first + 1)) return false;
  finish_at(team, context, first + 1);
  return true;
}

// One step of a schedule from the receiver's side, made by proof/pull.hpp: wait until `from` has
// done all earlier steps, then read its chunk and add it to this rank's, or overwrite this rank's
// with it.
struct Pull {
  std::int8_t from = 0, chunk = 0;
  bool add = false;
  // Nothing has been received into the chunk yet, so it is read from the input buffer.
  bool our_input = false, their_input = false;
  bool last = false;  // this addition makes the sum complete
};

inline constexpr int most_steps = 2 * (most_ranks - 1);
struct PullSchedule {
  int steps = 0;
  Pull pulls[most_steps] = {};
};

// A schedule, such as the ring, without messages. A rank publishes a number after each step; its
// neighbour sees the number and reads the chunk in place. There is no copy in between: each element
// that is added costs 3 memory accesses and each that is passed on costs 2, so 5(N-1) in all.
//
//     barrier(first)    all ranks are ready
//     step 0                               publish first+1
//     step 1            await first+1      publish first+2
//     step s            await first+s      publish first+s+1      (await: from the neighbour)
//
// No rank may overwrite a chunk that another has yet to read. This is a property of the schedule;
// proof/pull.hpp proves it or rejects the schedule. 16-bit sums are rounded at each hop, as in the
// ring over any transport.
template <class Memory, Element T, class Team>
constexpr bool pull_all_reduce(const Team& team, const BlockContext& context,
                               const Buffers<T>& buffers, Range range, const PullSchedule& plan,
                               float scale_of_sum) {
  const Number first = first_number(context);
  const bool packs = all_on_16_bytes(buffers.input, context.size) &&
                     all_on_16_bytes<T>(buffers.output, context.size);
  if (!barrier<Memory>(team, context, first)) return false;
  for (int s = 0; s < plan.steps; ++s) {
    const Pull& pull = plan.pulls[s];
    const Number before = first + static_cast<Number>(s);
    if (team.any(team.index() == 0 && !await<Memory>(context, pull.from, before))) return false;
    const T* const theirs = pull.their_input ? buffers.input[pull.from] : buffers.output[pull.from];
    const T* const ours =
        pull.our_input ? buffers.input[context.rank] : buffers.output[context.rank];
    T* const into = buffers.output[context.rank];
    const float scale = pull.last ? scale_of_sum : 1.0f;
    const Range chunk = stripe<T>(range, pull.chunk, context.size);
    if (pull.add)
      for_each<T>(team, chunk, packs, [&](const auto& width, std::size_t i) {
        Sum<T> sum;
        sum.template add<Memory>(Memory::load(ours + i, width));
        sum.template add<Memory>(Memory::load(theirs + i, width));
        Memory::store(into + i, sum.template as<Memory>(width, scale));
      });
    else
      for_each<T>(team, chunk, packs, [&](const auto& width, std::size_t i) {
        Memory::store(into + i, Memory::load(theirs + i, width));
      });
    publish_to_all<Memory>(team, context, before + 1);
  }
  const Number last = first + static_cast<Number>(plan.steps);
  if (!await_all<Memory>(team, context, last)) return false;  // no rank reads this one's chunks now
  finish_at(team, context, last);
  return true;
}

// ---- Small messages, by packets ----

inline constexpr std::size_t most_one_shot_bytes = 256 << 10;
inline constexpr std::size_t most_packets = most_one_shot_bytes / sizeof(std::uint32_t);

// The elements of a packet.
template <Element T>
struct Payload {
  static constexpr std::size_t size = sizeof(std::uint32_t) / sizeof(T);
  T at[size];
};

// Where the packets of a rank arrive, from each other rank. Initially all zeros.
struct PacketBox {
  Packet from[2][most_ranks][most_packets];  // [number % 2][rank]
};

// Each rank sends its whole input to every rank, in packets, and then adds up what it receives. It
// waits once instead of twice, and needs no flags; but the N ranks together store each element N x
// N times, and a packet is twice as long as its data.
//
// `number` counts these calls from 1 on, and is the number of all packets of a call. No rank waits
// until its packets have been read. Instead, consecutive calls use different halves of the box, and
// TWO are enough: a rank in call n+2 has received packets of call n+1 from all peers, so they have
// finished call n. (The blocks of a rank begin a call together, after all of them have ended the
// previous one.) The numbers must not wrap around, because a packet may lie unread for many calls.
template <class Memory, Element T, class Team>
constexpr bool one_shot_all_reduce(const Team& team, const BlockContext& context, const T* input,
                                   T* output, std::size_t count, PacketBox* const* boxes,
                                   Number number, float scale) {
  constexpr std::size_t each = Payload<T>::size;
  const auto threads = static_cast<std::size_t>(context.blocks * team.count()),
             thread = static_cast<std::size_t>(context.block * team.count() + team.index());
  const int size = context.size, rank = context.rank;
  const auto payload = [&](std::size_t p) {
    Payload<T> elements{};
    for (std::size_t e = 0; e < each; ++e)
      if (p * each + e < count) elements.at[e] = input[p * each + e];
    return elements;
  };
  for (std::size_t p = thread; p * each < count; p += threads) {
    const Packet packet = packet_of(std::bit_cast<std::uint32_t>(payload(p)), number);
    for (int s = 1, to = after(rank, size); s < size; ++s, to = after(to, size))
      Memory::store_packet(boxes[to]->from[number % 2][rank][p], packet);
  }
  bool lost = false;
  for (std::size_t p = thread; p * each < count && !lost; p += threads) {
    const Payload<T> ours = payload(p);
    float sum[each] = {};
    for (int from = 0; from < size && !lost; ++from) {
      const Packet& slot = boxes[rank]->from[number % 2][from][p];
      Packet seen = packet_of(std::bit_cast<std::uint32_t>(ours), number);
      if (from != rank)
        lost = !wait_until<Memory>(context, from, number, [&slot, &seen, number] {
          seen = Memory::load_packet(slot);
          return number_in(seen) == number;
        });
      const auto theirs = std::bit_cast<Payload<T>>(data_in(seen));
      for (std::size_t e = 0; e < each; ++e) sum[e] += Memory::widen(theirs.at[e]);
    }
    for (std::size_t e = 0; e < each; ++e)
      if (p * each + e < count) output[p * each + e] = Memory::template narrow<T>(sum[e] * scale);
  }
  return !team.any(lost);
}

// ---- Whole calls of ranks that see each other's buffers ----

// This block's part of `count` elements.
template <Element T>
constexpr Range stripe_of(const BlockContext& context, std::size_t count) {
  return stripe<T>({0, count}, context.block, context.blocks);
}

// output[rank] begins with chunk `rank` of the inputs.
template <class Memory, Element T, class Team>
constexpr bool direct_reduce_scatter(const Team& team, const BlockContext& context,
                                     const Buffers<T>& buffers, std::size_t count, float scale) {
  const Range chunk = even_chunk(count, context.rank, context.size);
  const Range mine = stripe<T>(chunk, context.block, context.blocks);
  return reduce_scatter<Memory>(team, context, buffers.input, mine,
                                buffers.output[context.rank] + (mine.begin - chunk.begin), scale);
}

// input[r] begins with chunk r; a rank's own chunk may already be in place.
template <class Memory, Element T, class Team>
constexpr bool direct_all_gather(const Team& team, const BlockContext& context,
                                 const Buffers<T>& buffers, std::size_t count) {
  return gather<Memory, T>(team, context, [&](int from) {
    const Range chunk = even_chunk(count, from, context.size);
    const Range part = stripe_of<T>(context, chunk.end - chunk.begin);
    return Piece<T>{buffers.input[from] + part.begin,
                    buffers.output[context.rank] + chunk.begin + part.begin, part.end - part.begin};
  });
}

// Every other rank reads the root's output.
template <class Memory, Element T, class Team>
constexpr bool direct_broadcast(const Team& team, const BlockContext& context,
                                const Buffers<T>& buffers, std::size_t count, int root) {
  return gather<Memory, T>(team, context, [&](int from) {
    const Range part = stripe_of<T>(context, count);
    return Piece<T>{buffers.output[root] + part.begin, buffers.output[context.rank] + part.begin,
                    from == root ? part.end - part.begin : 0};
  });
}

}  // namespace ringside::collectives::one_sided
