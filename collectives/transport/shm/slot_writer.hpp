// Copies a long payload into shared memory, by the kind of stores that is faster at the moment.
//
// A plain store takes its line away from the caches that hold it. Where the reader runs on a core
// of another cache that is a round trip for each line, and few of them are under way at once. A
// streaming store writes past the caches; the reader then loads from memory, which takes longer
// than from a near cache. Which is faster changes while the ranks run, since the system moves them:
//
//     exchange of 128 KB on an EPYC (Zen 4), us      plain      streaming
//     two cores of one cache                             9             16
//     two cores of different caches                     58             14
//
// So the writer looks how long its plain copies take. After a few slow ones it streams for a while,
// and then tries again.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

namespace ringside::collectives {

class SlotWriter {
 public:
  // `slow`: seconds for a byte from which on a plain copy is slow. The default lies between the
  // 0.05 ns of near caches and the 0.5 ns of far ones.
  explicit SlotWriter(double slow = 0.125e-9) : slow_(slow) {}
  static SlotWriter never_streams() { return SlotWriter(std::numeric_limits<double>::infinity()); }

  // `into` must be aligned to 16 bytes, and the payload long enough for its time to tell something:
  // some kilobytes. A store with release that follows publishes it.
  void write(std::byte* into, std::span<const std::byte> payload);

  // Whether it streams the next payload. Always false on a processor without SSE2.
  bool streams() const { return to_stream_ > 0; }

 private:
  double slow_;
  int slow_in_a_row_ = 0;  // plain copies
  int to_stream_ = 0;      // payloads, before the next plain copy
};

}  // namespace ringside::collectives
