// How large should a bucket be? A model of two parameters, fitted to all-reduces on this machine.
//
// Gradients of s bytes are sent in n buckets. Each call costs o seconds, and the network reduces w
// bytes per second. If backward computes a bucket as fast as the network reduces one, every bucket
// but the last is hidden behind the computation of the next:
//
//     compute   | bucket 1 | bucket 2 | bucket 3 |
//     network              | bucket 1 | bucket 2 | bucket 3 |
//                                                 '- s/(w n) -'
//
//     exposed communication   T(n) = s / (w n)  +  n o
//                                    the last      all
//                                    bucket        calls
//
// Few buckets expose a long last bucket; many buckets pay for many calls. The derivative of T is
// zero at n = sqrt(s / (w o)), so the best bucket has s / n = sqrt(s w o) bytes.
#pragma once

#include <utility>
#include <vector>

namespace ringside::ddp {

struct BucketModel {
  double overhead = 0;   // o, seconds
  double bandwidth = 0;  // w, bytes of the buffer per second

  double call_seconds(double bytes) const { return overhead + bytes / bandwidth; }
  double exposed_seconds(double total_bytes, double buckets) const {
    return total_bytes / (bandwidth * buckets) + buckets * overhead;
  }
  double best_bucket_bytes(double total_bytes) const;  // at most total_bytes
};

// Fits o and w to measured all-reduces, each as (bytes, seconds), by least squares of the relative
// errors, so that small calls count as much as large ones. o is at least 0. Throws Error unless
// there are two different sizes.
BucketModel fit_bucket_model(const std::vector<std::pair<double, double>>& all_reduces);

}  // namespace ringside::ddp
