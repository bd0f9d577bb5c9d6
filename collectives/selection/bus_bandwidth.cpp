#include "collectives/selection/bus_bandwidth.hpp"

namespace ringside::collectives {

// The bytes of the whole buffer per second, times the part of the buffer that crosses a link:
//
//     all_reduce           2 (ranks-1)/ranks
//     broadcast, reduce    1, along a chain
//     barrier              0
//     all others           (ranks-1)/ranks
double bus_bandwidth(const Call& call, int ranks, double seconds) {
  if (seconds <= 0) return 0;
  const double bytes = static_cast<double>(call.count * size_of(call.type));
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (call.collective) {
    case Collective::all_reduce:
      return 2 * others * bytes / seconds;
    case Collective::broadcast:
    case Collective::reduce:
      return bytes / seconds;
    case Collective::barrier:
      return 0;
    default:
      return others * bytes / seconds;
  }
}

}  // namespace ringside::collectives
