// The picture of a pipeline schedule as SVG: a row for each rank, time to the right, a box for each
// computation with its micro-batch. Readable on a light and a dark background.
#pragma once

#include <string>

#include "cli/pictures/pipeline/pipeline_picture.hpp"

namespace ringside::cli {

// A file of its own. Forward is blue, backward or I orange, W green; a rank's stages are in turn
// strong and pale. `title` is for screen readers.
std::string svg_of_pipeline(const TimedSchedule& timed, const std::string& title);

}  // namespace ringside::cli
