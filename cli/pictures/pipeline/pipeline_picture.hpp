// The picture of a pipeline schedule, in the terminal and as an SVG file: a row for each rank, time
// to the right, a box for each computation.
//
//     time     0         10        20
//     rank 0   F0F1F2F3            B0──F4B1──
//     rank 1     F0F1F2        B0──F3B1──F4B2
//
// A small letter is the second of a rank's two stages. A rank with more stages names them as a file
// of schedules does: 4F0 is forward of stage 4, micro-batch 0.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "parallel/pipeline/proof/timing.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::cli {

// A schedule that verify() has proved and lower() has completed, with its times.
struct TimedSchedule {
  pipeline_parallel::Schedule schedule;
  pipeline_parallel::Timing timing;
};

// A box of a lane.
struct Computation {
  pipeline_parallel::Action action;
  pipeline_parallel::Span span;
  std::size_t position;  // among the actions of the rank
  bool pale;             // of the second, fourth ... stage of the rank
};

// What a rank computes, in order: its lane in every form of the picture.
std::vector<Computation> lane_of(const TimedSchedule& timed, int rank);

// The least units of time into which each box's label, of `length(action)`, fits: the pixels or
// columns that a unit then needs.
double scale_for(const TimedSchedule& timed,
                 const std::function<double(const pipeline_parallel::Action&)>& length);

// Writes lines of at most `width` columns. A time that does not fit goes on below. `colour` fills
// the boxes: forward blue, backward or I orange, W green; a rank's stages in turn dark and light.
void draw_pipeline(std::ostream& out, const TimedSchedule& timed, int width, bool colour);

// As Python draws it into a file (python_svg.hpp), with the micro-batch of each
// computation in its box. Forward is blue, backward or I orange, W green; a rank's stages are in
// turn strong and pale. `title` is for screen readers.
Json picture_of(const TimedSchedule& timed, const std::string& title);

}  // namespace ringside::cli
