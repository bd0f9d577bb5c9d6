// What the literature promises of each schedule: its bubble, and how many activations it keeps.
//
// p ranks, m micro-batches, v stages per rank, rank r counted from 0; F, B, I and W are the
// durations of one stage. Idle is what a step takes beyond the computations of one rank, which are
// v m (F+B) on every rank. The bubble is idle / (idle + v m (F+B)).
//
//     schedule         idle             bubble             activations on rank r
//     gpipe            (p-1) (F+B)      (p-1) / (m+p-1)    m
//     1f1b             (p-1) (F+B)      (p-1) / (m+p-1)    min(m, p-r)
//     interleaved      (p-1) (F+B)      (p-1) / (vm+p-1)   min(vm, (v+1)p - 1 - 2r)
//     looped_bfs       (p-1) (F+B)      (p-1) / (vm+p-1)   vm
//     zb_h1            (p-1) (F+I-W)                       min(m, p)
//     zb_v             (p-1) F                             2p
//     interleaved_zb   (p-1) (F+I-W)                       vp
//     dualpipe_v       (p-1) F                             2p + 1
//
// Narayanan et al. 2021 divide by the computations alone, so (p-1)/m stands there for 1F1B. Here
// the bubble is a part of the whole step, as torch and Huang et al. 2019 count it.
//
// Messages take no time. looped_bfs needs m >= p, zb_h1 and interleaved_zb also W <= I. zb_v needs
// F = I = W and m >= 2p-1, dualpipe_v the same and m >= 2p; what remains, (p-1) F, is the time
// until the first micro-batch reaches the last rank, which no schedule avoids if all ranks end
// together. Qi et al. measure each rank from its first action to its last, so they have 0.
//
// Sources: Huang et al. 2019 (gpipe.hpp); Narayanan et al. 2021, section 2.2 (one_f_one_b.hpp,
// interleaved.hpp), and its implementation for the warm-up, on which (v+1)p - 1 depends; Qi et al.
// 2024, table 1 and section 6 (zb_h1.hpp, zb_v.hpp); Lamy-Poirier 2023 (looped_bfs.hpp). DeepSeek
// (dualpipe_v.hpp) publishes (p-1) (F&B + B - 3W) for DualPipeV, where F&B is an overlapped pair:
// here pairs do not overlap, and the formula is counted on the schedule, as that of interleaved_zb.
#pragma once

#include <optional>
#include <string_view>

#include "parallel/pipeline/proof/timing.hpp"

namespace ringside::pipeline_parallel {

struct Setting {
  std::string_view schedule;  // a name of the catalogue
  int ranks;
  int micro_batches;
  int stages_per_rank;
};

// None if the formula does not hold for this setting, or if there is none.
std::optional<double> bubble_by_formula(const Setting& setting, const Durations& durations);
std::optional<int> in_flight_by_formula(const Setting& setting, int rank);

// As in the table above; "" if there is none.
std::string_view bubble_formula(std::string_view schedule);
std::string_view in_flight_formula(std::string_view schedule);

}  // namespace ringside::pipeline_parallel
