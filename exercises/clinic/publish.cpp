// Two threads and one channel of the one-sided protocol: the program of the bug relaxed-publish.
// ThreadSanitizer sees whether a message is complete when its flag says so.
#include <array>
#include <cstdio>
#include <thread>

#include "collectives/one_sided/protocol.hpp"

using namespace ringside::collectives::one_sided;

int main() {
  constexpr Number messages = 20'000, slots = 4;
  Channel channel;
  std::array<std::uint64_t, slots> data{};
  std::uint64_t sum = 0;
  std::thread receiver([&] {
    for (Number n = 1; n <= messages; ++n) {
      while (!has_arrived<HostMemory>(channel, n)) std::this_thread::yield();
      sum += data[slot_of(n, slots)];
      free_slot<HostMemory>(channel, n);
    }
  });
  for (Number n = 1; n <= messages; ++n) {
    while (!slot_is_free<HostMemory>(channel, n, slots)) std::this_thread::yield();
    data[slot_of(n, slots)] = n;
    publish<HostMemory>(channel, n);
  }
  receiver.join();
  std::printf("the sum of %u messages is %llu\n", messages, static_cast<unsigned long long>(sum));
}
