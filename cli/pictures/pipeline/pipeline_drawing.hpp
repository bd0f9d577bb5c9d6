// A pipeline schedule as an SVG file and as a table.
#pragma once

#include <iosfwd>
#include <string>

#include "cli/pictures/pipeline/pipeline_picture.hpp"

namespace ringside::cli {

// A file of its own: a row for each rank, time to the right, a box for each computation with its
// micro-batch. Forward is blue, backward or I orange, W green; a rank's stages are in turn strong
// and pale. `title` is for screen readers.
std::string svg_of_pipeline(const TimedSchedule& timed, const std::string& title);

// A table for a terminal, in lines of at most `width` columns: a row for each moment at which a
// computation starts, a column for each rank. "0F0 ▶1" starts then, and its result is sent to rank
// 1; │ is still busy, · is idle. Ranks that do not fit follow in a table below.
void list_pipeline(std::ostream& out, const TimedSchedule& timed, int width);

}  // namespace ringside::cli
