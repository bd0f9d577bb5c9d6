// Collectives among ranks that see each other's memory: what one block of a GPU kernel does. In the
// tests a CPU thread does the same.
//
// Read protocol.hpp first. It defines sequence numbers, flags, publish() and has_arrived().
//
//     rank 0   [block 0] [block 1] [block 2] ...     A rank has several BLOCKS: thread blocks
//                  |         |         |             (CTAs) of a GPU, or threads of the CPU. Each
//     rank 1   [block 0] [block 1] [block 2] ...     works on its own stripe of the data. It waits
//                  |         |         |             only for the blocks with the same number on
//     rank 2   [block 0] [block 1] [block 2] ...     other ranks, never for its own rank.
//
// A block spins on its peers, so ALL BLOCKS OF ALL RANKS MUST RUN AT THE SAME TIME. The code that
// launches them ensures it (cuda/kernels.cu).
//
// Each rank has a MAILBOX, which holds the flags of what other ranks publish to it: for each block,
// a channel from each rank. The sequence numbers of a channel grow over the life of the mailbox.
// Sender and receiver count alike, because all ranks make the same calls with the same number of
// blocks. Each block keeps its own count. A count for the whole rank would not do: a block may be
// idle for 2^31 numbers while calls are small, and would then take an old flag for a new one.
//
// The functions are templates over MEMORY (protocol.hpp) and TEAM, the threads of one block:
//
//     int index(), count()     the number of this thread, and how many threads there are
//     void sync()              returns when all have called it; earlier writes are then visible
//     bool any(bool)           the same; returns whether any thread passed true
//
// A team of one thread is the CPU's. MEMORY also moves and converts data here: load() and store()
// of an element or of 16 bytes, widen(T) to fp32, and narrow<T>(float), which rounds. A peer may
// have written what load() reads since the block began, so load() must not use a cache that assumes
// constant memory (ld.global.nc on a GPU).
//
// Each function returns false when a peer is lost. It has then told every rank to stop waiting
// (give_up()), and the data are undefined.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/data_type.hpp"
#include "collectives/one_sided/protocol.hpp"

namespace ringside::collectives::one_sided {

inline constexpr int most_ranks = 8;     // in one world
inline constexpr int most_blocks = 256;  // of one rank
inline constexpr int most_steps = 2 * (most_ranks - 1);

// What a block was waiting for when its budget ran out.
struct Stall {
  Number waiting_for = 0;  // the peer's rank plus 1; 0: no block of this rank ran out of budget
  Number block = 0;
  Number number = 0;  // the sequence number that did not arrive
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

// Belongs to one rank and lies where all ranks can read and write. Initially all zeros.
struct Mailbox {
  Flag aborted;              // not 0: stop waiting
  alignas(128) Stall stall;  // written by the owner before it gives up
  // Private to the owner: the last number that each block has published.
  alignas(128) Number counts[most_blocks];
  Channel channels[most_blocks][most_ranks];  // [block][from]
};

// Which block of which rank this is, and the mailboxes that it uses.
struct BlockContext {
  int rank = 0, size = 1;
  int block = 0, blocks = 1;
  std::uint64_t budget = 0;             // how often a flag is polled before the peer counts as lost
  Mailbox* const* mailboxes = nullptr;  // [rank], as addresses of this rank
};

// Raises the abort flag of every rank. The first rank to do so has written the reason into its own
// mailbox.
template <class Memory>
constexpr void give_up(const BlockContext& context) {
  for (int r = 0; r < context.size; ++r)
    Memory::store_release(context.mailboxes[r]->aborted.value, 1);
}

// Waits until the block with this block's number on rank `from` has published `number` to it.
// Returns false when a peer is lost; all ranks then give up.
template <class Memory>
constexpr bool await(const BlockContext& context, int from, Number number) {
  Mailbox& mailbox = *context.mailboxes[context.rank];
  const Channel& channel = mailbox.channels[context.block][from];
  const Waited waited =
      spin<Memory>([&channel, number] { return has_arrived<Memory>(channel, number); },
                   mailbox.aborted, context.budget);
  if (waited == Waited::ready) return true;
  if (waited == Waited::out_of_budget) {
    // Other blocks of this rank may write here too; any of them will do for the message.
    Memory::store_relaxed(mailbox.stall.block, static_cast<Number>(context.block));
    Memory::store_relaxed(mailbox.stall.number, number);
    Memory::store_relaxed(mailbox.stall.waiting_for, static_cast<Number>(from) + 1);
    give_up<Memory>(context);
  }
  return false;
}

// Publishes `number` to the blocks with this block's number on all ranks, this rank included. What
// the team wrote before is visible to a block that sees the number.
template <class Memory, class Team>
constexpr void publish_to_all(const Team& team, const BlockContext& context, Number number) {
  team.sync();
  for (int to = team.index(); to < context.size; to += team.count())
    publish<Memory>(context.mailboxes[to]->channels[context.block][context.rank], number);
}

// Waits until those blocks of all ranks have published `number`. The whole team calls it.
template <class Memory, class Team>
constexpr bool await_all(const Team& team, const BlockContext& context, Number number) {
  bool lost = false;
  for (int from = team.index(); from < context.size; from += team.count())
    lost = lost || !await<Memory>(context, from, number);
  return !team.any(lost);
}

template <class Memory, class Team>
constexpr bool barrier(const Team& team, const BlockContext& context, Number number) {
  publish_to_all<Memory>(team, context, number);
  return await_all<Memory>(team, context, number);
}

// The sequence numbers of a call begin with first_number() and grow by one with each publish; the
// call ends with finish_at(last). The team must sync between the two, as it does in every await.
constexpr Number first_number(const BlockContext& context) {
  return context.mailboxes[context.rank]->counts[context.block] + 1;
}
template <class Team>
constexpr void finish_at(const Team& team, const BlockContext& context, Number last) {
  if (team.index() == 0) context.mailboxes[context.rank]->counts[context.block] = last;
}

// ---- Elements, sixteen bytes at a time ----

// What a thread moves at once. A GPU loads or stores a whole Pack with one instruction.
template <Element T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

struct Range {
  std::size_t begin = 0, end = 0;
};

// Stripe number `part` of the `parts` stripes of `whole`. Stripes begin and end on multiples of a
// pack, counted from the start of the buffer; only the two ends of `whole` may lie inside a pack.
// If the packs do not divide evenly, the first stripes have one more.
template <Element T>
constexpr Range stripe(Range whole, int part, int parts) {
  constexpr std::size_t pack = Pack<T>::size;
  if (whole.begin >= whole.end) return {whole.begin, whole.begin};
  const std::size_t first = whole.begin / pack, packs = (whole.end + pack - 1) / pack - first;
  const auto p = static_cast<std::size_t>(part), n = static_cast<std::size_t>(parts);
  const std::size_t each = packs / n, longer = packs % n;
  const std::size_t from = first + p * each + (p < longer ? p : longer),
                    to = from + each + (p < longer ? 1 : 0);
  const std::size_t begin = from * pack, end = to * pack;
  return {begin < whole.begin ? whole.begin : (begin > whole.end ? whole.end : begin),
          end > whole.end ? whole.end : end};
}

// Calls body(Pack<T>{}, i) for each whole pack in `range`, i being its first element, and body(T{},
// i) for the elements before and after. The calls are divided among the team. The first argument
// only gives the width. If `packs` is false (a buffer is not aligned to 16 bytes), every call has
// width T.
template <Element T, class Team, class Body>
constexpr void for_each(const Team& team, Range range, bool packs, Body body) {
  constexpr std::size_t pack = Pack<T>::size;
  std::size_t first = (range.begin + pack - 1) / pack * pack, last = range.end / pack * pack;
  if (!packs || first >= last) first = last = range.end;
  const auto index = static_cast<std::size_t>(team.index()),
             count = static_cast<std::size_t>(team.count());
  for (std::size_t i = range.begin + index; i < first; i += count) body(T{}, i);
  for (std::size_t i = first + index * pack; i < last; i += count * pack) body(Pack<T>{}, i);
  for (std::size_t i = last + index; i < range.end; i += count) body(T{}, i);
}

// A sum is computed in fp32, from rank 0 to the last. The order is the same on all ranks, so the
// bits are too.
template <Element T>
struct Sum {
  float at[Pack<T>::size] = {};
  template <class Memory>
  constexpr void add(const Pack<T>& pack) {
    for (int i = 0; i < Pack<T>::size; ++i) at[i] += Memory::widen(pack.at[i]);
  }
  template <class Memory>
  constexpr void add(const T& element) {
    at[0] += Memory::widen(element);
  }
  // The result in the width of the first argument, times `scale`.
  template <class Memory>
  constexpr Pack<T> as(const Pack<T>&, float scale) const {
    Pack<T> pack{};
    for (int i = 0; i < Pack<T>::size; ++i) pack.at[i] = Memory::template narrow<T>(at[i] * scale);
    return pack;
  }
  template <class Memory>
  constexpr T as(const T&, float scale) const {
    return Memory::template narrow<T>(at[0] * scale);
  }
};

// The buffers of all ranks, as addresses of this rank: peers read inputs and write outputs. Indices
// below count elements of the whole buffer. The outputs of reduce_scatter and the inputs of
// all_gather hold only their rank's chunk of it.
template <Element T>
struct Buffers {
  const T* input[most_ranks] = {};
  T* output[most_ranks] = {};
  T* packet[most_ranks] = {};     // used by one_shot only
  Range chunks[most_ranks] = {};  // [rank] that rank's part of the whole
  // Elements can be read 16 bytes at a time: element i of the whole is aligned to 16 bytes wherever
  // i is a multiple of a pack.
  bool packs = true;
  float scale = 1;  // multiplies the result: 1/size for avg
};

// The sum over all ranks of the element, or pack, at index i, times `scale`.
template <class Memory, class T, class Width>
constexpr Width sum_of_all(const BlockContext& context, const T* const* buffers, std::size_t i,
                           const Width& width, float scale) {
  Sum<T> sum;
  for (int r = 0; r < context.size; ++r)
    sum.template add<Memory>(Memory::load(buffers[r] + i, width));
  return sum.template as<Memory>(width, scale);
}

// ---- The collectives: every rank makes the same calls with the same number of blocks. ----

// Each rank loads its chunk from all ranks, adds, and stores the sum to all ranks. All N ranks
// together load each element N times and store it N times, which is the minimum for an all-reduce
// over memory. It also works in place: only the owner of a chunk reads it, before writing it.
//
//     barrier                                             barrier
//     all inputs are ready, outputs may be written        all ranks have stored
template <class Memory, Element T, class Team>
constexpr bool two_shot_all_reduce(const Team& team, const BlockContext& context,
                                   const Buffers<T>& buffers) {
  const Number first = first_number(context);
  if (!barrier<Memory>(team, context, first)) return false;
  for_each<T>(team, stripe<T>(buffers.chunks[context.rank], context.block, context.blocks),
              buffers.packs, [&](const auto& width, std::size_t i) {
                const auto sum =
                    sum_of_all<Memory>(context, buffers.input, i, width, buffers.scale);
                for (int r = 0; r < context.size; ++r) Memory::store(buffers.output[r] + i, sum);
              });
  if (!barrier<Memory>(team, context, first + 1)) return false;
  finish_at(team, context, first + 1);
  return true;
}

// For small messages: each rank copies its input into its packet, where all can read it, and adds
// up all packets itself. It waits once instead of twice, but the N ranks together load each element
// N x N times.
//
// No rank waits until its packet has been read. Instead, consecutive calls use different packets,
// and TWO are enough: a rank in call n+2 has seen all peers publish in call n+1, so they have
// finished call n. (The blocks of a rank begin a call together, after all of them have ended the
// previous one, so a stripe may belong to another block in the next call.)
template <class Memory, Element T, class Team>
constexpr bool one_shot_all_reduce(const Team& team, const BlockContext& context,
                                   const Buffers<T>& buffers, std::size_t count) {
  const Number first = first_number(context);
  const Range range = stripe<T>({0, count}, context.block, context.blocks);
  for_each<T>(team, range, buffers.packs, [&](const auto& width, std::size_t i) {
    Memory::store(buffers.packet[context.rank] + i,
                  Memory::load(buffers.input[context.rank] + i, width));
  });
  if (!barrier<Memory>(team, context, first)) return false;
  for_each<T>(team, range, buffers.packs, [&](const auto& width, std::size_t i) {
    Memory::store(buffers.output[context.rank] + i,
                  sum_of_all<Memory>(context, buffers.packet, i, width, buffers.scale));
  });
  finish_at(team, context, first);
  return true;
}

// The first half of two-shot: a rank stores the sum of its chunk to its own output only.
// output[rank] begins with that chunk.
template <class Memory, Element T, class Team>
constexpr bool direct_reduce_scatter(const Team& team, const BlockContext& context,
                                     const Buffers<T>& buffers) {
  const Number first = first_number(context);
  const Range mine = buffers.chunks[context.rank];
  if (!barrier<Memory>(team, context, first)) return false;
  for_each<T>(team, stripe<T>(mine, context.block, context.blocks), buffers.packs,
              [&](const auto& width, std::size_t i) {
                Memory::store(buffers.output[context.rank] + i - mine.begin,
                              sum_of_all<Memory>(context, buffers.input, i, width, buffers.scale));
              });
  // After this barrier inputs may be overwritten.
  if (!barrier<Memory>(team, context, first + 1)) return false;
  finish_at(team, context, first + 1);
  return true;
}

// Each rank reads every rank's chunk, beginning with its own, so that the ranks do not all read
// from the same one at once. input[r] begins with chunk r; a rank's own chunk may already be in
// place.
template <class Memory, Element T, class Team>
constexpr bool direct_all_gather(const Team& team, const BlockContext& context,
                                 const Buffers<T>& buffers) {
  const Number first = first_number(context);
  if (!barrier<Memory>(team, context, first)) return false;
  for (int s = 0; s < context.size; ++s) {
    const int r = (context.rank + s) % context.size;
    const Range chunk = buffers.chunks[r];
    const T* const from = buffers.input[r];
    T* const to = buffers.output[context.rank];
    if (from == to + chunk.begin) continue;
    for_each<T>(team, stripe<T>(chunk, context.block, context.blocks), buffers.packs,
                [&](const auto& width, std::size_t i) {
                  Memory::store(to + i, Memory::load(from + i - chunk.begin, width));
                });
  }
  if (!barrier<Memory>(team, context, first + 1)) return false;
  finish_at(team, context, first + 1);
  return true;
}

// Every other rank reads the root's output.
template <class Memory, Element T, class Team>
constexpr bool direct_broadcast(const Team& team, const BlockContext& context,
                                const Buffers<T>& buffers, std::size_t count, int root) {
  const Number first = first_number(context);
  if (!barrier<Memory>(team, context, first)) return false;
  if (context.rank != root)
    for_each<T>(team, stripe<T>({0, count}, context.block, context.blocks), buffers.packs,
                [&](const auto& width, std::size_t i) {
                  Memory::store(buffers.output[context.rank] + i,
                                Memory::load(buffers.output[root] + i, width));
                });
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

struct PullPlan {
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
                               const Buffers<T>& buffers, const PullPlan& plan) {
  const Number first = first_number(context);
  if (!barrier<Memory>(team, context, first)) return false;
  for (int s = 0; s < plan.steps; ++s) {
    const Pull& pull = plan.pulls[s];
    const Number before = first + static_cast<Number>(s);
    if (team.any(team.index() == 0 && !await<Memory>(context, pull.from, before))) return false;
    const T* const theirs = pull.their_input ? buffers.input[pull.from] : buffers.output[pull.from];
    const T* const ours =
        pull.our_input ? buffers.input[context.rank] : buffers.output[context.rank];
    T* const into = buffers.output[context.rank];
    const float scale = pull.last ? buffers.scale : 1.0f;
    const Range range = stripe<T>(buffers.chunks[pull.chunk], context.block, context.blocks);
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
    publish_to_all<Memory>(team, context, before + 1);
  }
  const Number last = first + static_cast<Number>(plan.steps);
  if (!await_all<Memory>(team, context, last)) return false;  // no rank reads this one's chunks now
  finish_at(team, context, last);
  return true;
}

}  // namespace ringside::collectives::one_sided
