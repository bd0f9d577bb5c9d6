// The one-sided protocol: how two ranks that see the same memory pass messages without a system
// call and without a third party.
//
// The sender writes the data and then a flag; the receiver sees the flag and then reads the data.
// Two memory orders guarantee that the data are complete when the flag is seen: the flag is stored
// with RELEASE (no earlier write becomes visible after it) and loaded with ACQUIRE (no later read
// happens before it).
//
//            sender                       channel                       receiver
//     slot_is_free(n)?  <-- acquire --  [ released  ]  <-- release --  free_slot(n)
//     write slot n      ------------->  [ slots ... ]  ------------->  read slot n
//     publish(n)        -- release -->  [ published ]  -- acquire -->  has_arrived(n)?
//
// The messages of a channel have sequence numbers 1, 2, 3, ... that never restart. So a flag needs
// no reset, and a message of one round cannot be taken for one of the next. Message n lies in slot
// (n-1) mod slots, which may be written once message n-slots has been read. Numbers have 32 bits,
// the size that futex(2) waits for and that a GPU stores at once. They wrap around; reached()
// accounts for it.
//
// The same code serves processes, threads and GPUs. The steps are templates over MEMORY, which says
// how a word is loaded and stored: HostMemory below, ld.acquire.sys and st.release.sys on a device,
// and a weaker one in the test that lets ThreadSanitizer find the missing order. The steps are
// constexpr, which nvcc compiles as `__host__ __device__` (--expt-relaxed-constexpr; a device's
// Memory must be marked as both), and which lets a test run them at compile time. So no macro is
// needed, but a step may call only Memory and other steps.
#pragma once

#include <cstdint>

namespace ringside::collectives::one_sided {

using Number = std::uint32_t;

// One word that one side writes and the other reads. It has a cache line to itself, so that writes
// next to it do not slow it down. 128 bytes: CPUs fetch lines of 64 bytes in pairs, and a GPU moves
// 128.
struct alignas(128) Flag {
  Number value = 0;
};

// The flags of messages from one rank to another.
struct Channel {
  Flag published;  // the last message that the sender has put into its slot
  Flag released;   // the last message whose slot the receiver has freed
};

// Four bytes of data and the number of their message in one word of eight. One store writes both,
// so a receiver that sees the number has the data: no flag, no fence, and no order between two
// words is needed. The price is twice the bytes, so packets are for short messages. The idea is
// that of NCCL's protocol LL (src/device/prims_ll.h) and of MSCCL++'s LL8Packet
// (packet_device.hpp).
//
//     63            32 31             0
//     [   number      |    data       ]        number 0: nothing has been sent
using Packet = std::uint64_t;

constexpr Packet packet_of(std::uint32_t data, Number number) {
  return (Packet{number} << 32) | data;
}
constexpr std::uint32_t data_in(Packet packet) {
  return static_cast<std::uint32_t>(packet);
}
constexpr Number number_in(Packet packet) {
  return static_cast<Number>(packet >> 32);
}

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
  static Packet load_packet(const Packet& packet) {
    return __atomic_load_n(&packet, __ATOMIC_RELAXED);
  }
  static void store_packet(Packet& packet, Packet value) {
    __atomic_store_n(&packet, value, __ATOMIC_RELAXED);
  }
  static void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
  static void pause() {  // a hint to the processor in a loop that spins
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
};

// Whether a counter with value `count` has reached `number`. The counter may have wrapped around:
// the two are never 2^31 or more apart.
constexpr bool reached(Number count, Number number) {
  return static_cast<std::int32_t>(count - number) >= 0;
}

// `slots` must be a power of two, so that the order of slots survives the wrap-around.
constexpr Number slot_of(Number number, Number slots) {
  return (number - 1) & (slots - 1);
}

// Sender: whether the slot of message `number` may be written.
template <class Memory>
constexpr bool slot_is_free(const Channel& channel, Number number, Number slots) {
  return reached(Memory::load_acquire(channel.released.value), number - slots);
}

// Sender: message `number` is complete in its slot.
template <class Memory>
constexpr void publish(Channel& channel, Number number) {
  Memory::store_release(channel.published.value, number);
}

// Receiver: whether message `number` may be read.
template <class Memory>
constexpr bool has_arrived(const Channel& channel, Number number) {
  return reached(Memory::load_acquire(channel.published.value), number);
}

// Receiver: message `number`, and all before it, have been read.
template <class Memory>
constexpr void free_slot(Channel& channel, Number number) {
  Memory::store_release(channel.released.value, number);
}

// An announcement: data that one side writes once in each round, and all others read
// (transport/shm/announcement.hpp). `number` lies beside the data, and is written after them.
template <class Memory>
constexpr void announce(Number& number, Number round) {
  Memory::store_release(number, round);
}

// Reader: whether the data of that round are complete.
template <class Memory>
constexpr bool is_announced(const Number& number, Number round) {
  return Memory::load_acquire(number) == round;
}

// Polls until ready() or until the abort flag is raised, `budget` times at most. So a lost peer is
// an error for the rank that waits, never a hang.
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

// The doorbell: how a rank goes to sleep without missing a message that arrives at that moment.
// (Host only: a GPU thread cannot sleep.) Sleeper and waker each write, fence, and read what the
// other writes, so at least one of the two sees the other (Dekker, 1965). If both do, the sleeper
// wakes up once for nothing.
//
//          sleeper                                waker
//     asleep = 1                             publish(n), or free_slot(n)
//     fence                                  fence
//     has_arrived(n)? then do not sleep      asleep? then asleep = 0 and wake
//     sleep while asleep is 1
struct Doorbell {
  Flag asleep;
};

template <class Memory>
constexpr void about_to_sleep(Doorbell& doorbell) {
  Memory::store_relaxed(doorbell.asleep.value, 1);
  Memory::fence();
}

template <class Memory>
constexpr void woken(Doorbell& doorbell) {
  Memory::store_relaxed(doorbell.asleep.value, 0);
}

// Call it after each publish() and free_slot(). If it returns true, the caller must wake the
// sleeper with futex(2) on doorbell.asleep, which is now 0.
template <class Memory>
constexpr bool must_wake(Doorbell& doorbell) {
  Memory::fence();
  if (Memory::load_relaxed(doorbell.asleep.value) == 0) return false;
  Memory::store_relaxed(doorbell.asleep.value, 0);
  return true;
}

}  // namespace ringside::collectives::one_sided
