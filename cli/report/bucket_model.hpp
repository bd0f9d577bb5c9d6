// How large should a bucket be? The model of the course, and its numbers, fitted to all-reduces of
// this machine.
//
// Gradients of s bytes travel in n buckets. A call takes o, whatever it carries, and the network
// reduces w bytes in a second. If backward computes a bucket as fast as the network carries one,
// every bucket but the last hides behind the computation of the next:
//
//     compute   | bucket 1 | bucket 2 | bucket 3 |
//     network              | bucket 1 | bucket 2 | bucket 3 |          exposed:  T(n) = s / (w n)  +  n o
//                                                 '- s/(w n) -'                         the last     all calls
//
// Few buckets expose a long last one; many pay for many calls. The derivative is zero at n = sqrt(s
// / (w o)): buckets of s / n = sqrt(s w o).
#pragma once

#include <utility>
#include <vector>

namespace ringside::cli {

struct BucketModel {
  double overhead = 0;   // o, seconds
  double bandwidth = 0;  // w, bytes of the buffer per second

  double call_seconds(double bytes) const { return overhead + bytes / bandwidth; }
  double exposed_seconds(double total_bytes, double buckets) const {
    return total_bytes / (bandwidth * buckets) + buckets * overhead;
  }
  double best_bucket_bytes(double total_bytes) const;  // never more than all
};

// The o and w that describe these all-reduces, (bytes, seconds) each, best: least squares of the
// relative errors, so that small calls count as much as large ones. o is not below 0. Throws Error
// unless there are two different sizes.
BucketModel fit_bucket_model(const std::vector<std::pair<double, double>>& all_reduces);

}  // namespace ringside::cli
