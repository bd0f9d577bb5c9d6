// The blocks of a rank, and how they wait for the blocks of other ranks.
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
// A team of one thread is the CPU's. MEMORY also reads a clock, nanoseconds().
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/one_sided/protocol.hpp"

namespace ringside::collectives::one_sided {

inline constexpr int most_ranks = 8;     // in one world
inline constexpr int most_blocks = 256;  // of one rank

// What a block was waiting for when its time was over.
struct Stall {
  Number waiting_for = 0;  // the peer's rank plus 1; 0: no block of this rank waited too long
  Number block = 0;
  Number number = 0;  // the sequence number that did not arrive
};

// What the host of a rank and its blocks tell each other, in memory that both see. Initially all
// zeros.
struct HostWords {
  Flag stop;     // raised by the host: stop waiting
  Flag gave_up;  // raised by a block that stops waiting: the data are undefined
  Stall stall;   // why, if this rank was the first to give up
};

// Belongs to one rank and lies where all ranks can read and write. Initially all zeros.
struct Mailbox {
  Flag aborted;  // not 0: stop waiting
  // Private to the owner: the last number that each block has published.
  alignas(128) Number counts[most_blocks];
  Channel channels[most_blocks][most_ranks];  // [block][from]
};

// Which block of which rank this is, and what it shares with the others.
struct BlockContext {
  int rank = 0, size = 1;
  int block = 0, blocks = 1;
  std::uint64_t patience = 0;  // nanoseconds of a wait, after which the peer counts as lost
  Mailbox* const* mailboxes = nullptr;  // [rank], as addresses of this rank
  HostWords* host = nullptr;            // of this rank
};

// The rank that a rank reads from and writes to first, and so on around: if all began with rank 0,
// they would all use the link of one GPU while the others are idle.
constexpr int after(int rank, int size) {
  return rank + 1 == size ? 0 : rank + 1;
}

// Polls until ready(). Returns false when a peer is lost, when a peer gave up, or when the host
// says stop; then all ranks give up. `from` and `number` say what this block waits for.
template <class Memory, class Ready>
constexpr bool wait_until(const BlockContext& context, int from, Number number, Ready ready) {
  // The host's word and the clock are slow to read.
  constexpr std::uint64_t polls_between_looks = 1000;
  HostWords& host = *context.host;
  const Flag& aborted = context.mailboxes[context.rank]->aborted;
  std::uint64_t start = 0;
  for (;;) {
    const Waited waited = spin<Memory>(ready, aborted, polls_between_looks);
    if (waited == Waited::ready) return true;
    if (waited == Waited::aborted || Memory::load_acquire(host.stop.value) != 0) break;
    const std::uint64_t now = Memory::nanoseconds();
    if (start == 0) start = now;
    if (now - start <= context.patience) continue;
    // Other blocks of this rank may write here too; any of them will do for the message.
    Memory::store_relaxed(host.stall.block, static_cast<Number>(context.block));
    Memory::store_relaxed(host.stall.number, number);
    Memory::store_relaxed(host.stall.waiting_for, static_cast<Number>(from) + 1);
    break;
  }
  Memory::store_release(host.gave_up.value, 1);
  for (int r = 0; r < context.size; ++r)
    Memory::store_release(context.mailboxes[r]->aborted.value, 1);
  return false;
}

// Waits until the block with this block's number on rank `from` has published `number` to it.
template <class Memory>
constexpr bool await(const BlockContext& context, int from, Number number) {
  const Channel& channel = context.mailboxes[context.rank]->channels[context.block][from];
  return wait_until<Memory>(context, from, number,
                            [&channel, number] { return has_arrived<Memory>(channel, number); });
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

// The sequence numbers of a collective begin with first_number() and grow by one with each publish;
// it ends with finish_at(last). The team must sync between the two, as it does in every await, and
// between finish_at() and the next first_number().
constexpr Number first_number(const BlockContext& context) {
  return context.mailboxes[context.rank]->counts[context.block] + 1;
}
template <class Team>
constexpr void finish_at(const Team& team, const BlockContext& context, Number last) {
  if (team.index() == 0) context.mailboxes[context.rank]->counts[context.block] = last;
}

}  // namespace ringside::collectives::one_sided
