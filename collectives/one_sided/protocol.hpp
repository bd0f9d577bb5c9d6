// The one-sided protocol: how two ranks that see the same memory hand data to each other without a
// word from anybody else.
//
// One side writes the data and then a flag; the other sees the flag and then reads the data. That
// the data cannot be missing when the flag is there is the whole art, and it is two words long: the
// flag is stored with RELEASE (nothing written before it may become visible after it) and loaded
// with ACQUIRE (nothing read after it may have been read before it).
//
//          sender                              lane                            receiver
//     slot_is_free(n)?  ◀── acquire ──  [ released  ]  ◀── release ──  free_slot(n)        "I have read message n"
//     write slot n      ───────────▶    [ slots ... ]  ───────────▶   read slot n
//     publish(n)        ── release ──▶  [ published ]  ── acquire ──▶  has_come(n)?        "message n is there"
//
// Messages of a lane are numbered 1, 2, 3, ... and never start again, so a flag needs no reset, and
// nobody can mistake the message of one round for that of the next: message n lies in slot (n-1)
// mod slots, and it may be written once message n-slots has been read. Numbers have 32 bits, which
// is what futex(2) can wait for and a GPU stores at once; they wrap around, and reached() knows it.
//
// One text for processes, threads and GPUs. The steps are templates over MEMORY, which says how a
// word is loaded and stored: HostMemory below; ld.acquire.sys and st.release.sys for a device;
// something weaker in the test that shows how ThreadSanitizer finds it out. They are constexpr,
// which nvcc takes as `__host__ __device__` (--expt-relaxed-constexpr; a device's Memory must be
// marked as both), and which lets the test run them while it is compiled. So no macro marks them;
// in return they call nothing but Memory and each other.
#pragma once

#include <cstdint>

namespace ringside::collectives::one_sided {

using Number = std::uint32_t;

// One word that one side writes and the other reads, alone on its cache line, so that nobody waits
// for a line because of a neighbour. 128 bytes: processors fetch lines of 64 in pairs, and 128 is
// what a GPU moves.
struct alignas(128) Flag {
  Number value = 0;
};

// From one rank to one other.
struct Lane {
  Flag published;  // the last message that the sender has put into its slot
  Flag released;   // the last message whose slot the receiver needs no more
};

struct HostMemory {
  static Number load_acquire(const Number& word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  }
  static void store_release(Number& word, Number value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }
  static Number load_relaxed(const Number& word) {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
  }
  static void store_relaxed(Number& word, Number value) {
    __atomic_store_n(&word, value, __ATOMIC_RELAXED);
  }
  static void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
  static void pause() {  // a moment in a loop that waits
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
};

// Whether a counter that stands at `count` has got to `number`, also if it has wrapped around: they
// are never 2^31 apart.
constexpr bool reached(Number count, Number number) {
  return static_cast<std::int32_t>(count - number) >= 0;
}

// `slots` is a power of two, so that the slots follow each other also where the numbers wrap
// around.
constexpr Number slot_of(Number number, Number slots) {
  return (number - 1) & (slots - 1);
}

// Sender: whether the slot of message `number` may be written.
template <class Memory>
constexpr bool slot_is_free(const Lane& lane, Number number, Number slots) {
  return reached(Memory::load_acquire(lane.released.value), number - slots);
}

// Sender: message `number` lies complete in its slot.
template <class Memory>
constexpr void publish(Lane& lane, Number number) {
  Memory::store_release(lane.published.value, number);
}

// Receiver: whether message `number` may be read.
template <class Memory>
constexpr bool has_come(const Lane& lane, Number number) {
  return reached(Memory::load_acquire(lane.published.value), number);
}

// Receiver: message `number`, and all before it, have been read.
template <class Memory>
constexpr void free_slot(Lane& lane, Number number) {
  Memory::store_release(lane.released.value, number);
}

// Looks again and again, `budget` times at most, until `ready()` or until somebody raises the abort
// word: a peer that is lost is an error for the waiter, never a hang.
enum class Waited { ready, aborted, out_of_budget };

template <class Memory, class Ready>
constexpr Waited spin(Ready ready, const Flag& aborted, std::uint64_t budget) {
  for (std::uint64_t i = 0; i <= budget; ++i) {
    if (ready()) return Waited::ready;
    if (Memory::load_acquire(aborted.value) != 0) return Waited::aborted;
    Memory::pause();
  }
  return Waited::out_of_budget;
}

// The bell: how a rank that has looked long enough goes to sleep without missing the message that
// comes just then. (Host only: there is no sleep on a GPU.) Sleeper and waker each write, fence,
// and look at what the other writes, so one of the two must see the other (Dekker, 1965); if both
// do, the sleeper is woken for nothing.
//
//          sleeper                                waker
//     asleep = 1                             publish(n), or free_slot(n)
//     fence                                  fence
//     has_come(n)? then do not sleep         asleep? then asleep = 0 and wake
//     sleep while asleep is 1
struct Bell {
  Flag asleep;
};

template <class Memory>
constexpr void about_to_sleep(Bell& bell) {
  Memory::store_relaxed(bell.asleep.value, 1);
  Memory::fence();
}

template <class Memory>
constexpr void woken(Bell& bell) {
  Memory::store_relaxed(bell.asleep.value, 0);
}

// Whether the waker has to wake the sleeper (futex(2) on bell.asleep, which is 0 by then). To be
// asked after each publish and free_slot.
template <class Memory>
constexpr bool must_wake(Bell& bell) {
  Memory::fence();
  if (Memory::load_relaxed(bell.asleep.value) == 0) return false;
  Memory::store_relaxed(bell.asleep.value, 0);
  return true;
}

}  // namespace ringside::collectives::one_sided
