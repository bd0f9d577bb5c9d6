// What a reader of one_sided.hpp should see once: the same protocol with one word changed, and ThreadSanitizer's answer.
//
//   weakened_protocol none | publish | free_slot
//
// `publish` stores the flag `published` relaxed instead of with release; `free_slot` does so with `released`. On x86, where every
// store is a release to the processor, both go well whatever is tried, and would until the day of another compiler or processor.
// Built with RINGSIDE_SANITIZE=thread only, where its tests expect that both are reported as data races, and the protocol as it is,
// is not.
#include <cstdio>
#include <string_view>

#include "tests/collectives/one_sided_world.hpp"

namespace {

using namespace ringside::tests;

struct RelaxedMemory : one_sided::HostMemory {
  static void store_release(Number& word, Number value) { store_relaxed(word, value); }
};

template <class SenderMemory, class ReceiverMemory>
std::size_t run() {
  OneLane world(4, 64, 0);
  std::thread sender([&] { send_messages<SenderMemory>(world, 1000, 1); });
  const std::size_t wrong = receive_messages<ReceiverMemory>(world, 1000, 1);
  sender.join();
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view weak = argc > 1 ? argv[1] : "none";
  const std::size_t wrong = weak == "publish"     ? run<RelaxedMemory, one_sided::HostMemory>()
                            : weak == "free_slot" ? run<one_sided::HostMemory, RelaxedMemory>()
                                                  : run<one_sided::HostMemory, one_sided::HostMemory>();
  std::printf("weakened: %.*s; wrong words: %zu\n", static_cast<int>(weak.size()), weak.data(), wrong);
  return wrong == 0 ? 0 : 1;
}
