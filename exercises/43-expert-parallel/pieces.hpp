// What the functions of expert parallel pass to each other, and two functions that move rows.
// Students get this file whole.
//
// Tables of numbers are vectors, one row after the other. Letters: N tokens of this rank, K experts
// for each, E experts in all, n ranks. Expert e is on rank e / (E/n). A choice is a token and one
// of its experts: choice c = t K + j is the j-th expert of token t.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ringside::experts {

// The experts of each token, the largest logit first, and their weights.
struct Routing {
  std::vector<int> chosen;     // [N K], by choice
  std::vector<float> weights;  // [N K], the K of a token add up to 1
};

// Which rows travel where. A row is sent for each choice.
struct Plan {
  int per_token = 1;             // K
  std::vector<std::int64_t> to;  // [E]: rows that this rank has for expert e
  std::vector<std::int64_t>
      from;  // [E]: element r E/n + l: rows of rank r for expert l of this one
  // Yours: the judge does not read them.
  std::vector<int> order;   // the choices, in the order in which their rows are sent
  std::vector<int> places;  // row i of what arrives is row places[i] in the order of experts
};

// What combine() returns.
struct Combined {
  std::vector<float> y;     // [N, width]
  std::vector<float> kept;  // yours: whatever combine_backward() needs
};

struct CombineGradients {
  std::vector<float> outputs;  // of the rows that combine() got
  std::vector<float> weights;  // [N K]
};

// Row i of the result is row index[i] of `rows`.
inline std::vector<float> gather_rows(std::span<const float> rows, const std::vector<int>& index,
                                      int width) {
  std::vector<float> result(index.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < index.size(); ++i)
    std::copy_n(rows.begin() + index[i] * width, width,
                result.begin() + static_cast<std::ptrdiff_t>(i) * width);
  return result;
}

// The inverse: row index[i] of the result is row i of `rows`. Each row stands in `index` once.
inline std::vector<float> scatter_rows(std::span<const float> rows, const std::vector<int>& index,
                                       int width) {
  std::vector<float> result(index.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < index.size(); ++i)
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i) * width, width,
                result.begin() + index[i] * width);
  return result;
}

}  // namespace ringside::experts

namespace student::experts {
using namespace ringside::experts;
}
