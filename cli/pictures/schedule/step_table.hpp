// Draws a collective step by step: one row per rank, one column per chunk. Each cell
// names the ranks whose contributions the chunk holds.
//
//     step 0: what arrives is added
//               chunk 0   chunk 1   chunk 2   chunk 3
//     rank 0    0         0         [0+3]     0           ─3─▶ rank 1
//     rank 1    1         1         1         [0+1]       ─0─▶ rank 2
//
// In an all-to-all a cell names the chunk, too: "2.1" is chunk 1 of rank 2's input.
//
// Each step is drawn as soon as it has run (lockstep.hpp), so that you can read along in a
// debugger.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/proof/lockstep.hpp"

namespace ringside::cli {

// How a cell names the contributions that it holds. It takes the most detailed notation
// that fits the width.
enum class CellNotation {
  names,   // "0+1+2+3+6"
  spans,   // "0-3+6"
  counts,  // "5"
};

class StepTable {
 public:
  // Writes to `out`, which must outlive this object, in lines of at most `width` columns. If
  // even counts do not fit, it draws the chunks in several panels, one below the other. `colour`
  // shows chunks that have just arrived in green (added) or yellow (overwritten).
  StepTable(std::ostream& out, const collectives::Algorithm& algorithm, int size, int width,
            bool colour);

  void draw_title(int root, int steps, int chunks) const;
  void draw_start(const std::vector<collectives::RankState>& states) const;
  // Draws the states after step `step`, with its messages.
  void draw_step(const std::vector<collectives::Schedule>& schedules, int step,
                 const std::vector<collectives::RankState>& states) const;

 private:
  struct Row;

  void draw_rows(const std::vector<Row>& rows) const;
  void draw_panel(const std::vector<Row>& rows, int first, int last, bool with_messages) const;
  void draw_messages_below(const std::vector<Row>& rows) const;
  std::string painted(const std::string& text, const char* code) const;

  std::ostream& out_;
  collectives::Algorithm algorithm_;
  int size_;
  int width_;
  bool colour_;
  CellNotation notation_;
  int cell_width_;  // columns of a cell, with its brackets and the space after it
};

// The text of a cell. `held[r]` is how often the chunk contains rank r's contribution. {1, 1, 1, 0,
// 2} is "0+1+2+4+4", "0-2+4+4" or "5".
std::string cell_text(const std::vector<double>& held, CellNotation notation);

// [rank][chunk]: the texts of all cells. A barrier has one for each rank. In an all-to-all a cell
// names the chunk too, in any notation: "2.1".
std::vector<std::vector<std::string>> cell_names(collectives::Collective collective,
                                                 const std::vector<collectives::RankState>& states,
                                                 CellNotation notation = CellNotation::names);

// A barrier shows a row of whom a rank has heard from, other collectives a cell for each chunk.
int cells_of_rank(collectives::Collective collective, int chunks);

// A sentence, without the point at its end.
std::string meaning_of_cell(collectives::Collective collective,
                            CellNotation notation = CellNotation::names);

// What the receivers do with the messages of a step: "what arrives is added".
std::string what_arrives(const std::vector<collectives::Schedule>& schedules, int step);

// "3", "4-7", and "" for no chunks.
std::string range_text(collectives::ChunkRange range);

}  // namespace ringside::cli
