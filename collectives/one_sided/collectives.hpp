// Collectives among ranks that see each other's memory: what a block of a GPU kernel does, and a
// thread of the CPU in the tests.
//
// Read one_sided.hpp first: from there come the numbers, the flags, and publish() and has_come(),
// with which everything here is said.
//
//     rank 0   [block 0] [block 1] [block 2] ...       A BLOCK of a rank (on a GPU a CTA, on the CPU one thread) works on its own stripe
//                  |         |         |                of the data, and waits for the blocks of the same number of other ranks only:
//     rank 1   [block 0] [block 1] [block 2] ...       so blocks never wait for their own rank, and each row of blocks is a small world.
//
// As a block spins on its peers, ALL BLOCKS OF ALL RANKS MUST BE RUNNING AT ONCE. Whoever starts
// them sees to that (cuda/kernels.cu).
//
// What passes between two blocks lies in the receiver's DESK: a lane from each rank, for each
// block. A lane's numbers count what its sender has done, one after the other over the life of the
// desk, and both sides count alike because both make the same calls with as many blocks. So the
// count, too, is kept for each block: were it one for the whole rank, a block that is idle for 2^31
// numbers (because calls are small) would take an ancient flag for a new one.
//
// The functions are templates over MEMORY (one_sided.hpp) and TEAM, the threads that are one block:
//
//     int index(), count()     which of them this is, and how many there are
//     void sync()              returns when all have called it; what one wrote before, all see after
//     bool any(bool)           the same, and whether any of them said true
//
// A team of one thread is the CPU's. MEMORY here also moves and computes: load() and store() of an
// element or of 16 bytes, widen(T) to fp32, and narrow<T>(float), which rounds. What it loads may
// have been written by a peer since the block began, so load() must promise the compiler nothing (a
// GPU would otherwise read what it has kept: ld.global.nc). They return false where a peer is lost:
// then nobody waits any longer, on any rank (give_up()), and the data are of no further use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/data_type.hpp"
#include "collectives/one_sided/protocol.hpp"

namespace ringside::collectives::one_sided {

inline constexpr int most_ranks = 8;     // in one world
inline constexpr int most_blocks = 256;  // of one rank
inline constexpr int most_steps = 2 * (most_ranks - 1);

// Why a world ended: what the block that ran out of patience was waiting for.
struct Trouble {
  Number waiting_for = 0;  // the rank, plus 1; 0: this rank has lost nobody, whoever else has
  Number block = 0;
  Number number = 0;  // the news that did not come
};

struct HostSide : HostMemory {
  template <Element T>
  static constexpr float widen(const T& element) {
    return static_cast<float>(element);
  }
  template <Element T>
  static constexpr T narrow(float value) {
    return static_cast<T>(value);
  }
  template <class Width, class T>
  static constexpr Width load(const T* from, const Width&) {
    return *reinterpret_cast<const Width*>(from);
  }
  template <class Width, class T>
  static constexpr void store(T* into, const Width& value) {
    *reinterpret_cast<Width*>(into) = value;
  }
};

// Of one rank, where all ranks can read and write. Zeros to begin with.
struct Desk {
  Flag aborted;                  // not 0: give up, whatever you wait for
  alignas(128) Trouble trouble;  // written by the rank itself, before it gives up
  alignas(128)
      Number counts[most_blocks];  // the rank's own: the last number that each block has published
  Lane lanes[most_blocks][most_ranks];  // [block][from]
};

// Where a block sits, and whom it sees.
struct Seat {
  int rank = 0, size = 1;
  int block = 0, blocks = 1;
  std::uint64_t budget = 0;      // looks at a flag before a peer is lost
  Desk* const* desks = nullptr;  // [rank], as this rank sees them
};

// Raises everybody's abort word. Who raised it first says why, on its own desk.
template <class Memory>
constexpr void give_up(const Seat& seat) {
  for (int r = 0; r < seat.size; ++r) Memory::store_release(seat.desks[r]->aborted.value, 1);
}

// Waits until rank `from`'s block of this number has published `number` to this one. False: a peer
// is lost, and everybody is told.
template <class Memory>
constexpr bool await(const Seat& seat, int from, Number number) {
  Desk& desk = *seat.desks[seat.rank];
  const Lane& lane = desk.lanes[seat.block][from];
  const Waited waited = spin<Memory>([&lane, number] { return has_come<Memory>(lane, number); },
                                     desk.aborted, seat.budget);
  if (waited == Waited::ready) return true;
  if (waited == Waited::out_of_budget) {
    // Other blocks of this rank may be doing the same: whichever is last is told.
    Memory::store_relaxed(desk.trouble.block, static_cast<Number>(seat.block));
    Memory::store_relaxed(desk.trouble.number, number);
    Memory::store_relaxed(desk.trouble.waiting_for, static_cast<Number>(from) + 1);
    give_up<Memory>(seat);
  }
  return false;
}

// Says to all ranks' blocks of this number, itself too, that this one has got to `number`: what the
// team wrote before is there.
template <class Memory, class Team>
constexpr void publish_to_all(const Team& team, const Seat& seat, Number number) {
  team.sync();
  for (int to = team.index(); to < seat.size; to += team.count())
    publish<Memory>(seat.desks[to]->lanes[seat.block][seat.rank], number);
}

// Waits until all have got to `number`. To be called by the whole team.
template <class Memory, class Team>
constexpr bool await_all(const Team& team, const Seat& seat, Number number) {
  bool lost = false;
  for (int from = team.index(); from < seat.size; from += team.count())
    lost = lost || !await<Memory>(seat, from, number);
  return !team.any(lost);
}

template <class Memory, class Team>
constexpr bool meet(const Team& team, const Seat& seat, Number number) {
  publish_to_all<Memory>(team, seat, number);
  return await_all<Memory>(team, seat, number);
}

// A call's numbers: begin with first_number(), one more for each publish, and leave the last with
// leave_at(). The team must be past a sync between the two, as it is after every await.
constexpr Number first_number(const Seat& seat) {
  return seat.desks[seat.rank]->counts[seat.block] + 1;
}
template <class Team>
constexpr void leave_at(const Team& team, const Seat& seat, Number last) {
  if (team.index() == 0) seat.desks[seat.rank]->counts[seat.block] = last;
}

// ---- Elements, sixteen bytes at a time ----

// As many as a thread moves at once. Loading and storing a whole Pack is one instruction of a GPU.
template <Element T>
struct alignas(16) Pack {
  static constexpr int lanes = 16 / sizeof(T);
  T at[lanes];
};

struct Range {
  std::size_t begin = 0, end = 0;
};

// Stripe `part` of `parts` of the elements in `whole`: cut on whole packs, counted from the
// buffer's beginning, so that only the two ends of `whole` lie within one. The first stripes are
// longer by a pack where they must.
template <Element T>
constexpr Range stripe(Range whole, int part, int parts) {
  constexpr std::size_t lanes = Pack<T>::lanes;
  if (whole.begin >= whole.end) return {whole.begin, whole.begin};
  const std::size_t first = whole.begin / lanes, packs = (whole.end + lanes - 1) / lanes - first;
  const auto p = static_cast<std::size_t>(part), n = static_cast<std::size_t>(parts);
  const std::size_t each = packs / n, longer = packs % n;
  const std::size_t from = first + p * each + (p < longer ? p : longer),
                    to = from + each + (p < longer ? 1 : 0);
  const std::size_t begin = from * lanes, end = to * lanes;
  return {begin < whole.begin ? whole.begin : (begin > whole.end ? whole.end : begin),
          end > whole.end ? whole.end : end};
}

// Calls body(Pack<T>{}, i) for the packs that lie in `range` and body(T{}, i) for the elements
// before and after, i being the first element: shared out among the team. The first argument says
// only how wide. Without `packs` (some buffer does not begin on 16 bytes), element by element.
template <Element T, class Team, class Body>
constexpr void for_each(const Team& team, Range range, bool packs, Body body) {
  constexpr std::size_t lanes = Pack<T>::lanes;
  std::size_t first = (range.begin + lanes - 1) / lanes * lanes, last = range.end / lanes * lanes;
  if (!packs || first >= last) first = last = range.end;
  const auto index = static_cast<std::size_t>(team.index()),
             count = static_cast<std::size_t>(team.count());
  for (std::size_t i = range.begin + index; i < first; i += count) body(T{}, i);
  for (std::size_t i = first + index * lanes; i < last; i += count * lanes) body(Pack<T>{}, i);
  for (std::size_t i = last + index; i < range.end; i += count) body(T{}, i);
}

// Sums are computed in fp32, from rank 0 to the last, whoever computes them: the same bits
// everywhere.
template <Element T>
struct Sum {
  float at[Pack<T>::lanes] = {};
  template <class Memory>
  constexpr void add(const Pack<T>& pack) {
    for (int i = 0; i < Pack<T>::lanes; ++i) at[i] += Memory::widen(pack.at[i]);
  }
  template <class Memory>
  constexpr void add(const T& element) {
    at[0] += Memory::widen(element);
  }
  // The result in the width of the first argument, times `scale`.
  template <class Memory>
  constexpr Pack<T> as(const Pack<T>&, float scale) const {
    Pack<T> pack{};
    for (int i = 0; i < Pack<T>::lanes; ++i) pack.at[i] = Memory::template narrow<T>(at[i] * scale);
    return pack;
  }
  template <class Memory>
  constexpr T as(const T&, float scale) const {
    return Memory::template narrow<T>(at[0] * scale);
  }
};

// What the ranks were called with, as this rank sees it. Every rank's buffers, because peers read
// the one and write the other. Indices below are elements of the whole buffer, of which
// reduce_scatter's outputs and all_gather's inputs hold their rank's chunk only.
template <Element T>
struct Buffers {
  const T* input[most_ranks] = {};
  T* output[most_ranks] = {};
  T* packet[most_ranks] = {};     // one_shot's
  Range chunks[most_ranks] = {};  // what of the whole is each rank's
  bool packs = true;  // may be read 16 bytes at a time: element i of the whole lies on 16 bytes
                      // wherever i is a multiple of a pack
  float scale = 1;    // of the result: 1/size for avg
};

// Element by element (or pack by pack) of `range`: what all ranks have there, added up, times
// scale.
template <class Memory, class T, class Width>
constexpr Width sum_of_all(const Seat& seat, const T* const* buffers, std::size_t i,
                           const Width& width, float scale) {
  Sum<T> sum;
  for (int r = 0; r < seat.size; ++r) sum.template add<Memory>(Memory::load(buffers[r] + i, width));
  return sum.template as<Memory>(width, scale);
}

// ---- The collectives. Each returns false where a peer is lost. Every rank must make the same
// calls with as many blocks. ----

// Each rank loads its chunk from all ranks, adds, and stores the sum to all ranks: every element is
// loaded N times and stored N times by the whole world, and no all-reduce over memory can do with
// less. In place too: nobody but its owner reads a chunk, before he writes it.
//
//     meet: all inputs are there, and all outputs may be written        meet: all have stored
template <class Memory, Element T, class Team>
constexpr bool two_shot_all_reduce(const Team& team, const Seat& seat, const Buffers<T>& buffers) {
  const Number first = first_number(seat);
  if (!meet<Memory>(team, seat, first)) return false;
  for_each<T>(team, stripe<T>(buffers.chunks[seat.rank], seat.block, seat.blocks), buffers.packs,
              [&](const auto& width, std::size_t i) {
                const auto sum = sum_of_all<Memory>(seat, buffers.input, i, width, buffers.scale);
                for (int r = 0; r < seat.size; ++r) Memory::store(buffers.output[r] + i, sum);
              });
  if (!meet<Memory>(team, seat, first + 1)) return false;
  leave_at(team, seat, first + 1);
  return true;
}

// For small messages: each rank lays its input out for all (packet), and adds up all packets by
// itself. Waits once instead of twice, and loads N x N elements for it.
//
// No rank waits until its packet has been read. Instead the caller gives another packet from one
// call to the next, and TWO are enough: who is in call n+2 has heard from all peers in call n+1, so
// they are done with call n. (A rank's blocks begin a call when all of them have ended the one
// before, so it does not matter that a stripe may be another block's then.)
template <class Memory, Element T, class Team>
constexpr bool one_shot_all_reduce(const Team& team, const Seat& seat, const Buffers<T>& buffers,
                                   std::size_t count) {
  const Number first = first_number(seat);
  const Range range = stripe<T>({0, count}, seat.block, seat.blocks);
  for_each<T>(team, range, buffers.packs, [&](const auto& width, std::size_t i) {
    Memory::store(buffers.packet[seat.rank] + i, Memory::load(buffers.input[seat.rank] + i, width));
  });
  if (!meet<Memory>(team, seat, first)) return false;
  for_each<T>(team, range, buffers.packs, [&](const auto& width, std::size_t i) {
    Memory::store(buffers.output[seat.rank] + i,
                  sum_of_all<Memory>(seat, buffers.packet, i, width, buffers.scale));
  });
  leave_at(team, seat, first);
  return true;
}

// The first half of two-shot: a rank keeps the sum of its chunk for itself. output[rank] begins
// with that chunk.
template <class Memory, Element T, class Team>
constexpr bool direct_reduce_scatter(const Team& team, const Seat& seat,
                                     const Buffers<T>& buffers) {
  const Number first = first_number(seat);
  const Range mine = buffers.chunks[seat.rank];
  if (!meet<Memory>(team, seat, first)) return false;
  for_each<T>(team, stripe<T>(mine, seat.block, seat.blocks), buffers.packs,
              [&](const auto& width, std::size_t i) {
                Memory::store(buffers.output[seat.rank] + i - mine.begin,
                              sum_of_all<Memory>(seat, buffers.input, i, width, buffers.scale));
              });
  if (!meet<Memory>(team, seat, first + 1)) return false;  // now inputs may be written again
  leave_at(team, seat, first + 1);
  return true;
}

// Each rank reads every rank's chunk, beginning with its own, so that not all read from one at a
// time. input[r] begins with chunk r; the own may lie in its place already.
template <class Memory, Element T, class Team>
constexpr bool direct_all_gather(const Team& team, const Seat& seat, const Buffers<T>& buffers) {
  const Number first = first_number(seat);
  if (!meet<Memory>(team, seat, first)) return false;
  for (int s = 0; s < seat.size; ++s) {
    const int r = (seat.rank + s) % seat.size;
    const Range chunk = buffers.chunks[r];
    const T* const from = buffers.input[r];
    T* const to = buffers.output[seat.rank];
    if (from == to + chunk.begin) continue;
    for_each<T>(team, stripe<T>(chunk, seat.block, seat.blocks), buffers.packs,
                [&](const auto& width, std::size_t i) {
                  Memory::store(to + i, Memory::load(from + i - chunk.begin, width));
                });
  }
  if (!meet<Memory>(team, seat, first + 1)) return false;
  leave_at(team, seat, first + 1);
  return true;
}

// Everybody reads the root's output.
template <class Memory, Element T, class Team>
constexpr bool direct_broadcast(const Team& team, const Seat& seat, const Buffers<T>& buffers,
                                std::size_t count, int root) {
  const Number first = first_number(seat);
  if (!meet<Memory>(team, seat, first)) return false;
  if (seat.rank != root)
    for_each<T>(team, stripe<T>({0, count}, seat.block, seat.blocks), buffers.packs,
                [&](const auto& width, std::size_t i) {
                  Memory::store(buffers.output[seat.rank] + i,
                                Memory::load(buffers.output[root] + i, width));
                });
  if (!meet<Memory>(team, seat, first + 1)) return false;
  leave_at(team, seat, first + 1);
  return true;
}

// One step of a schedule, from the receiver's side (pull.hpp makes them): wait until `from` has
// done all steps before this one, then take its chunk and add it to mine, or put it in the place of
// mine.
struct Pull {
  std::int8_t from = 0, chunk = 0;
  bool add = false;
  bool our_input = false,
       their_input =
           false;     // nothing has been received into the chunk yet: it still is what was put in
  bool last = false;  // by this addition the chunk has everybody's part
};

struct PullPlan {
  int steps = 0;
  Pull pulls[most_steps] = {};
};

// A schedule, the ring, without messages: a step is a number, and a rank's neighbour sees the
// number and reads the chunk where it lies. Between, nothing is copied: 3 accesses of memory for
// each element that is added and 2 for each that is only passed on, 5(N-1) in all.
//
//     meet(first)       step 0          step 1                          step s
//     all are there     publish first+1 await first+1, publish first+2  await first+s from the neighbour, publish first+s+1
//
// That nobody writes a chunk which somebody has yet to read is a property of the schedule; pull.hpp
// proves it, or refuses. The sums of 16 bits are rounded at each hop, as in the ring over any
// transport.
template <class Memory, Element T, class Team>
constexpr bool pull_all_reduce(const Team& team, const Seat& seat, const Buffers<T>& buffers,
                               const PullPlan& plan) {
  const Number first = first_number(seat);
  if (!meet<Memory>(team, seat, first)) return false;
  for (int s = 0; s < plan.steps; ++s) {
    const Pull& pull = plan.pulls[s];
    const Number before = first + static_cast<Number>(s);
    if (team.any(team.index() == 0 && !await<Memory>(seat, pull.from, before))) return false;
    const T* const theirs = pull.their_input ? buffers.input[pull.from] : buffers.output[pull.from];
    const T* const ours = pull.our_input ? buffers.input[seat.rank] : buffers.output[seat.rank];
    T* const into = buffers.output[seat.rank];
    const float scale = pull.last ? buffers.scale : 1.0f;
    const Range range = stripe<T>(buffers.chunks[pull.chunk], seat.block, seat.blocks);
    if (pull.add)
      for_each<T>(team, range, buffers.packs, [&](const auto& width, std::size_t i) {
        Sum<T> sum;
        sum.template add<Memory>(Memory::load(ours + i, width));
        sum.template add<Memory>(Memory::load(theirs + i, width));
        Memory::store(into + i, sum.template as<Memory>(width, scale));
      });
    else
      for_each<T>(team, range, buffers.packs, [&](const auto& width, std::size_t i) {
        Memory::store(into + i, Memory::load(theirs + i, width));
      });
    publish_to_all<Memory>(team, seat, before + 1);
  }
  const Number last = first + static_cast<Number>(plan.steps);
  if (!await_all<Memory>(team, seat, last)) return false;  // nobody reads my chunks any more
  leave_at(team, seat, last);
  return true;
}

}  // namespace ringside::collectives::one_sided
