#include "cli/pictures/schedule/schedule_picture.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/schedule/step_table.hpp"
#include "cli/pictures/svg.hpp"
#include "cli/pictures/wrap.hpp"
#include "collectives/proof/lockstep.hpp"

namespace ringside::cli {

using namespace collectives;

namespace {

// In pixels; the left column has the names of the steps.
constexpr double cell = 30, left = 172, rank_gap = 40, header = 52, row_gap = 48, margin = 14;

// In seconds: the start, each step with the flight of its messages, and the end.
constexpr double start_lasts = 1, step_lasts = 2, flight_lasts = 1.3, end_lasts = 4;

const std::string style = R"(
svg { font: 14px system-ui, sans-serif; fill: var(--ink); }
.soft { fill: var(--soft); font-size: 12px; }
.name { font-weight: 600; } .on { fill: var(--paper); text-anchor: middle; font-weight: 600; }
.box { fill: none; stroke: var(--soft); stroke-width: 0.75; } .new { stroke-width: 2.5; }
line { stroke-width: 1.5; } .fly { opacity: 0; } .fly .paper { stroke: var(--ink); }
)";

struct Place {
  double x, y;
};

std::string rect(Place place, double width, double height, const std::string& attributes) {
  return fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" {} />\n", place.x,
                     place.y, width, height, attributes);
}

std::string fill_of(std::size_t rank) {
  return fmt::format("fill=\"var(--c{})\"", rank);
}

class Picture {
 public:
  Picture(const Algorithm& algorithm, int ranks, int root)
      : algorithm_(algorithm),
        schedules_(make_schedules(algorithm, ranks, root)),
        steps_(static_cast<int>(schedules_[0].steps.size())),
        columns_(cells_of_rank(algorithm.collective, schedules_[0].chunks)) {}

  std::string draw() {
    const int ranks = static_cast<int>(schedules_.size());
    std::vector<RankState> states =
        start_with_contributions(ranks, schedules_[0].chunks, names_chunks(algorithm_.collective));
    std::string rows = ranks_at_the_top() + row_of(0, "start", "", states);
    for (int step = 0; step < steps_; ++step) {
      rows += flight_of(step, states);
      run_step(schedules_, step, states);
      rows +=
          row_of(step + 1, fmt::format("step {}", step), what_arrives(schedules_, step), states);
    }
    const double width = at(ranks, 0, 0).x - rank_gap + margin;
    const double height = at(0, 0, steps_).y + cell + 2 * margin;
    const std::string title =
        fmt::format("{} {} on {}: at the end {}", algorithm_.name, name_of(algorithm_.collective),
                    counted(ranks, "rank"), promise_of(algorithm_.collective));
    return svg_file(title, width, height, style + motion(), arrow_heads() + rows);
  }

 private:
  bool is_barrier() const { return algorithm_.collective == Collective::barrier; }

  // The upper left corner of a chunk in a row.
  Place at(int rank, int chunk, int row) const {
    return {left + rank * (columns_ * cell + rank_gap) + chunk * cell,
            header + row * (cell + row_gap)};
  }

  std::string ranks_at_the_top() const {
    std::string svg;
    for (int rank = 0; rank < static_cast<int>(schedules_.size()); ++rank) {
      const double x = at(rank, 0, 0).x, width = columns_ * cell;
      svg += rect({x, 14}, width, 26, "rx=\"6\" " + fill_of(rank)) +
             fmt::format("<text class=\"on\" x=\"{:g}\" y=\"32\">{}{}</text>\n", x + width / 2,
                         width < 60 ? "" : "rank ", rank);
    }
    return svg;
  }

  // Which ranks' contributions a chunk holds: held[r] is not 0.
  std::vector<double> held(const RankState& state, int chunk) const {
    if (is_barrier()) return {state.heard_from.begin(), state.heard_from.end()};
    return state.chunks[chunk];
  }

  // A stripe for each contribution, at the height of its rank.
  std::string stripes(const std::vector<double>& contributions, Place place) const {
    std::string svg;
    const double height = (cell - 2) / static_cast<double>(schedules_.size());
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank)
      if (contributions[rank] > 0)
        svg += rect({place.x + 2, place.y + 1 + static_cast<double>(rank) * height}, cell - 4,
                    height, fill_of(rank));
    return svg;
  }

  // Whether the step before this row received into the chunk.
  bool is_new(int rank, int chunk, int row) const {
    if (row == 0) return false;
    const std::optional<Receive>& receive = schedules_[rank].steps[row - 1].receive;
    return receive && (is_barrier() || contains(receive->chunks, chunk));
  }

  std::string row_of(int row, const std::string& name, const std::string& says,
                     const std::vector<RankState>& states) const {
    const double y = at(0, 0, row).y;
    std::string svg =
        fmt::format("<g class=\"row{}\">\n<text class=\"name\" x=\"{:g}\" y=\"{:g}\">{}</text>\n",
                    row, margin, y + 13, name);
    double line_y = y + 29;
    for (const std::string& line : lines_of(wrap(says, 24))) {
      svg += fmt::format("<text class=\"soft\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", margin, line_y,
                         escaped(line));
      line_y += 15;
    }
    for (int rank = 0; rank < static_cast<int>(states.size()); ++rank)
      for (int chunk = 0; chunk < columns_; ++chunk) {
        const Place place = at(rank, chunk, row);
        svg += stripes(held(states[rank], chunk), place);
        svg += rect({place.x + 1, place.y}, cell - 2, cell,
                    is_new(rank, chunk, row) ? "class=\"box new\"" : "class=\"box\"");
      }
    return svg + "</g>\n";
  }

  // The messages of a step: a line for each, and the chunks that travel along it.
  std::string flight_of(int step, const std::vector<RankState>& states) const {
    std::string lines, flying;
    for (int rank = 0; rank < static_cast<int>(states.size()); ++rank) {
      const std::optional<Send>& send = schedules_[rank].steps[step].send;
      if (!send || send->to == rank) continue;
      const ChunkRange taken = is_barrier() ? ChunkRange{} : send->taken(),
                       into = is_barrier() ? ChunkRange{} : send->chunks;
      const int count = taken.piece(0).count;  // the line joins the first piece
      const Place from = at(rank, taken.first, step), to = at(send->to, into.first, step + 1);
      lines += fmt::format(
          "<line x1=\"{:g}\" y1=\"{:g}\" x2=\"{:g}\" y2=\"{:g}\" stroke=\"var(--c{})\" "
          "marker-end=\"url(#head{})\" />\n",
          from.x + count * cell / 2, from.y + cell + 2, to.x + count * cell / 2, to.y - 3, rank,
          rank);
      if (send->chunks.count == 0) continue;
      flying += fmt::format("<g class=\"fly fly{}\" style=\"--x:{:g}px;--y:{:g}px\">", step + 1,
                            from.x - to.x, from.y - to.y);
      for (int i = 0; i < into.pieces(); ++i) {
        const ChunkRange piece = into.piece(i);
        const Place place = at(send->to, piece.first, step + 1);
        flying += rect({place.x + 1, place.y}, piece.count * cell - 2, cell, "class=\"paper\"");
      }
      for (int i = 0; i < into.count; ++i) {
        const auto& source = send->input ? states[rank].input : states[rank].chunks;
        flying += stripes(source[taken.at(i)], at(send->to, into.at(i), step + 1));
      }
      flying += "</g>\n";
    }
    return fmt::format("<g class=\"row{}\">\n{}</g>\n{}", step + 1, lines, flying);
  }

  static std::string arrow_heads() {
    std::string svg = "<defs>";
    for (int rank = 0; rank < most_drawn_ranks; ++rank)
      svg += fmt::format(
          "<marker id=\"head{0}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" "
          "markerHeight=\"7\" orient=\"auto\"><path d=\"M 0 1 L 10 5 L 0 9 z\" "
          "fill=\"var(--c{0})\" /></marker>",
          rank);
    return svg + "</defs>\n";
  }

  // The chunks of a step fly; then the row below, so far pale, is shown.
  std::string motion() const {
    const double all = start_lasts + steps_ * step_lasts + end_lasts;
    std::string css = "@media (prefers-reduced-motion: no-preference) and (update: fast) {\n";
    for (int row = 1; row <= steps_; ++row) {
      const double begin = start_lasts + (row - 1) * step_lasts, end = begin + flight_lasts;
      css += fmt::format(
          ".row{0} {{ animation: row{0} {1:g}s infinite; }} "
          ".fly{0} {{ animation: fly{0} {1:g}s infinite; }}\n"
          "@keyframes row{0} {{ 0%, {2:.2f}% {{ opacity: 0.2; }} {3:.2f}%, 100% {{ opacity: 1; }} "
          "}}\n@keyframes fly{0} {{ 0%, {4:.2f}% {{ opacity: 0; transform: translate(var(--x), "
          "var(--y)); }} {5:.2f}% {{ opacity: 1; transform: translate(var(--x), var(--y)); }} "
          "{2:.2f}% {{ opacity: 1; transform: none; }} {3:.2f}%, 100% {{ opacity: 0; }} }}\n",
          row, all, 100 * end / all, 100 * (end + 0.15) / all, 100 * begin / all,
          100 * (begin + 0.15) / all);
    }
    return css + "}\n";
  }

  const Algorithm& algorithm_;
  std::vector<Schedule> schedules_;  // [rank]
  int steps_;
  int columns_;
};

}  // namespace

std::string svg_of_schedule(const Algorithm& algorithm, int ranks, int root) {
  require(ranks >= 1 && ranks <= most_drawn_ranks,
          "the picture has colours for 1 to {} ranks, but was asked for {}: choose fewer with -n",
          most_drawn_ranks, ranks);
  return Picture(algorithm, ranks, root).draw();
}

}  // namespace ringside::cli
