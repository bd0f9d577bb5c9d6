// How fast an all-reduce and a reduce-scatter are, and what "bandwidth" means.
//
// The formula of the lecture: all n ranks together send 2 (n-1) S bytes in an all-reduce of S
// bytes, and (n-1) S in a reduce-scatter. They have n links for the time t:
//
//     bandwidth = 2 (n-1) S / (n t)
//
// NCCL's tests call the same number bus bandwidth, and write it as S / t times 2 (n-1) / n. It is
// what one link carries in each direction, so it can be compared with the speed of the link, for
// any n. The ring sends exactly so many bytes from each rank; no algorithm sends fewer.
//
//     ringside launch -n 4 -- build/release/bin/bandwidth
//     gdb --args build/release/bin/bandwidth --threads
#include <algorithm>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/ranks/run_ranks.hpp"
#include "collectives/selection/algorithm_selection.hpp"

using namespace ringside;
using namespace ringside::collectives;

constexpr std::size_t numbers = 1'000'000;  // of the whole buffer
constexpr int warm_calls = 5;

// The time of one call in seconds, from when all ranks are ready.
template <class Call>
double seconds_of(ProcessGroup& group, const Call& call) {
  group.barrier();
  const auto start = Clock::now();
  call();
  return seconds_since(start);
}

// Runs the first call, which is cold, and some warm ones. `times_whole` says how often the whole
// buffer of `bytes` bytes is sent, by all ranks together.
template <class Call>
void measure(const char* name, std::size_t bytes, int times_whole, ProcessGroup& group,
             const RankPrinter& print, const Call& call) {
  const double cold = seconds_of(group, call);
  const auto before = group.traffic().payload_bytes_sent;
  std::vector<double> warm;
  for (int i = 0; i < warm_calls; ++i) warm.push_back(seconds_of(group, call));
  const auto sent = (group.traffic().payload_bytes_sent - before) / warm_calls;
  std::ranges::nth_element(warm, warm.begin() + warm_calls / 2);
  const double t = warm[warm_calls / 2], n = group.size(), size = static_cast<double>(bytes);

  const double lecture = times_whole * size / (n * t);
  const double busbw = size / t * times_whole / n;
  print(
      "rank {}  {:<14} cold {:6.2f} ms  warm {:6.2f} ms  lecture {:5.2f} GB/s  busbw {:5.2f} GB/s"
      "  sent {:.1f} MB\n",
      group.rank(), name, cold * 1e3, t * 1e3, lecture / 1e9, busbw / 1e9,
      static_cast<double>(sent) / 1e6);
}

int main(int count, char** arguments) {
  return run_ranks(count, arguments, [](ProcessGroup& group, const RankPrinter& print) {
    group.set_algorithms(AlgorithmSelection("all_reduce=ring,reduce_scatter=ring"));
    const int n = group.size();
    const std::size_t share = numbers / static_cast<std::size_t>(n);
    std::vector<float> data(share * static_cast<std::size_t>(n), 1), part(share);
    const std::size_t bytes = data.size() * sizeof(float);
    if (group.rank() == 0)
      fmt::print("{} ranks over {}, {:.0f} MB\n", n, group.backend_name(),
                 static_cast<double>(bytes) / 1e6);
    measure("all_reduce", bytes, 2 * (n - 1), group, print,
            [&] { group.all_reduce(std::span(data), ReduceOp::avg); });
    measure("reduce_scatter", bytes, n - 1, group, print,
            [&] { group.reduce_scatter(std::span(data), std::span(part), ReduceOp::avg); });
  });
}
