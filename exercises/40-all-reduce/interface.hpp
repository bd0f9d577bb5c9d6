// What the judge calls: the student's all-reduces, on emulated GPUs.
#pragma once

#include "exercises/judge/gpu/peers.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

inline Student<gpu::PeersSeen(const gpu::PeersRun&run)> student_two_shot, student_one_shot;
constexpr float scale_of_sums = 0.5f;  // to see that it is used

}  // namespace ringside::exercises
