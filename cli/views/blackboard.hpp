// The blackboard: a collective drawn step by step, ranks downwards and chunks across, each cell
// naming whose contributions the chunk holds.
//
//     step 0: what arrives is added
//               chunk 0   chunk 1   chunk 2   chunk 3
//     rank 0    0         0         [0+3]     0           ─3─▶ rank 1
//     rank 1    1         1         1         [0+1]       ─0─▶ rank 2
//
// In an all-to-all the chunks change places, and a cell names the chunk, too: "2.1" is chunk 1 of
// rank 2's input.
//
// It is drawn while the steps are taken (lockstep.hpp), so that one who steps through them in a
// debugger reads along.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/proof/lockstep.hpp"

namespace ringside::cli {

// How a cell says whose contributions it holds: the most talkative form that fits the width is
// taken.
enum class CellForm {
  names,   // "0+1+2+3+6"
  spans,   // "0-3+6"
  counts,  // "5"
};

class Blackboard {
 public:
  // Writes to `out`, which must outlive the blackboard, in lines of at most `width` columns; where
  // even counts do not fit, the chunks are drawn in several panels, one below the other. `colour`
  // sets what has just arrived in green (added) or yellow (overwritten).
  Blackboard(std::ostream& out, const collectives::Algorithm& algorithm, int size, int width,
             bool colour);

  void draw_title(int root, int steps, int chunks) const;
  void draw_start(const std::vector<collectives::RankState>& states) const;
  // The states after step `step`, with its messages.
  void draw_step(const std::vector<collectives::Schedule>& schedules, int step,
                 const std::vector<collectives::RankState>& states) const;

 private:
  struct Cell;
  struct Row;

  std::string text_of(const std::vector<double>& held) const;
  std::vector<Row> rows_of(const std::vector<collectives::RankState>& states) const;
  void draw_rows(const std::vector<Row>& rows) const;
  void draw_panel(const std::vector<Row>& rows, int first, int last, bool with_messages) const;
  void draw_messages_below(const std::vector<Row>& rows) const;
  std::string painted(const std::string& text, const char* code) const;

  std::ostream& out_;
  collectives::Algorithm algorithm_;
  int size_;
  int width_;
  bool colour_;
  CellForm form_;
  int cell_width_;  // columns for a cell, with its brackets and the space after it
};

// `held[r]` is how often rank r's contribution is in the chunk. {1, 1, 1, 0, 2} is "0+1+2+4+4",
// "0-2+4+4" or "5".
std::string cell_text(const std::vector<double>& held, CellForm form);

}  // namespace ringside::cli
