// The one-sided protocol with one memory order weakened, to show what ThreadSanitizer reports.
//
//   weakened_protocol none | publish | free_slot | announce | two_shot | ring | staged_two_shot
//                     | staged_ring | packet
//
// `publish` stores the flag `published` relaxed instead of with release; `free_slot` does the same
// with `released`, and `announce` with the number of an announcement. `packet` sends data and
// number of a packet in two words. The others run the collectives of one_sided/ with all flags
// relaxed. On x86 every store is a release for the processor, so the weakened protocol seems to
// work, and would fail with another compiler or processor. This program is built with
// RINGSIDE_SANITIZE=thread only. Its tests expect a data race for each weakened flag, and none for
// `none`.
#include <atomic>
#include <cstdio>
#include <string_view>

#include "tests/collectives/one_sided/blocks.hpp"

namespace {

using namespace ringside::tests;

template <class Side>
struct Relaxed : Side {
  static void store_release(Number& word, Number value) { Side::store_relaxed(word, value); }
};
using RelaxedMemory = Relaxed<one_sided::HostMemory>;

// The data of a packet are a plain word, and only the number is atomic.
struct Halves {
  std::uint32_t data;
  Number number;
};
struct TwoWords : Yielding<one_sided::HostSide> {
  static one_sided::Packet load_packet(const one_sided::Packet& packet) {
    const auto& halves = reinterpret_cast<const Halves&>(packet);
    const Number number = load_relaxed(halves.number);
    return one_sided::packet_of(number == 0 ? 0 : halves.data, number);
  }
  static void store_packet(one_sided::Packet& packet, one_sided::Packet value) {
    auto& halves = reinterpret_cast<Halves&>(packet);
    halves.data = one_sided::data_in(value);
    store_relaxed(halves.number, one_sided::number_in(value));
  }
};

template <class SenderMemory, class ReceiverMemory>
std::size_t run() {
  OneChannel world(4, 64, 0);
  std::thread sender([&] { send_messages<SenderMemory>(world, 1000, 1); });
  const std::size_t wrong = receive_messages<ReceiverMemory>(world, 1000, 1);
  sender.join();
  return wrong;
}

// Two blocks on each of three ranks, four rounds of three calls: write new inputs, as an earlier
// kernel would; all-reduce; check the result.
template <class Side>
std::size_t run_blocks(std::string_view kind) {
  constexpr int ranks = 3;
  const BlockWorld world(ranks, 2);
  const Boxes boxes(ranks);
  const Areas<float> areas(ranks, 200);
  const BlockData<float> data(ranks, 1000, false, true);
  std::atomic<std::size_t> wrong = 0;
  world.run(12, 1, [&](const SlowThread& thread, const one_sided::BlockContext& context, int call) {
    const one_sided::Range part =
        one_sided::stripe<float>({0, data.elements}, context.block, context.blocks);
    const auto& buffers = data.buffers;
    float* const input = const_cast<float*>(buffers.input[context.rank]);
    const float more = static_cast<float>(call / 3);
    if (call % 3 == 0)
      for (std::size_t i = part.begin; i < part.end; ++i)
        input[i] = BlockData<float>::number(context.rank, i) + more;
    if (call % 3 == 2)
      for (std::size_t i = part.begin; i < part.end; ++i)
        wrong += buffers.output[context.rank][i] !=
                 BlockData<float>::sum(ranks, i) + static_cast<float>(ranks) * more;
    if (call % 3 != 1) return;
    float* const output = buffers.output[context.rank];
    const one_sided::Staging<float> staging{input, output, areas.room};
    const auto all_reduce = [&](const auto& windows, one_sided::Range range) {
      if (kind.ends_with("two_shot"))
        return one_sided::two_shot_all_reduce<Side>(thread, context, windows, range, 1.0f);
      return one_sided::pull_all_reduce<Side>(thread, context, windows, range,
                                              ring_plan(ranks, context.rank), 1.0f);
    };
    if (kind == "packet")
      one_sided::one_shot_all_reduce<Side>(thread, context, input, output, data.elements,
                                           boxes.of.data(), static_cast<Number>(call), 1.0f);
    else if (kind.starts_with("staged"))
      one_sided::staged_all_reduce<Side>(
          thread, context, staging, areas.buffers, data.elements,
          [&](one_sided::Range range) { return all_reduce(areas.buffers, range); });
    else
      all_reduce(buffers, part);
  });
  return wrong;
}

std::size_t run_all_of_it() {
  using Side = Yielding<one_sided::HostSide>;
  return run<one_sided::HostMemory, one_sided::HostMemory>() +
         announce_rounds<one_sided::HostMemory>(3, 0, 1000, 1) + run_blocks<Side>("two_shot") +
         run_blocks<Side>("ring") + run_blocks<Side>("staged_two_shot") +
         run_blocks<Side>("staged_ring") + run_blocks<Side>("packet");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view weak = argc > 1 ? argv[1] : "none";
  const std::size_t wrong = weak == "publish"     ? run<RelaxedMemory, one_sided::HostMemory>()
                            : weak == "free_slot" ? run<one_sided::HostMemory, RelaxedMemory>()
                            : weak == "announce"  ? announce_rounds<RelaxedMemory>(3, 0, 1000, 1)
                            : weak == "packet"    ? run_blocks<TwoWords>(weak)
                            : weak == "none"
                                ? run_all_of_it()
                                : run_blocks<Relaxed<Yielding<one_sided::HostSide>>>(weak);
  std::printf("weakened: %.*s; wrong words: %zu\n", static_cast<int>(weak.size()), weak.data(),
              wrong);
  return wrong == 0 ? 0 : 1;
}
