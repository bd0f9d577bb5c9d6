#include "cli/pictures/schedule/tensor_block.hpp"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"

namespace ringside::cli {

namespace {

enum class Divided { by_rows, by_columns };

// A weight [rows, columns] = [outputs, inputs] of the block.
struct Matrix {
  const char* name;
  std::int64_t rows, columns;
  Divided divided;
  std::int64_t heads = 0;  // if its divided dimension consists of heads: how many

  std::int64_t divided_size() const { return divided == Divided::by_rows ? rows : columns; }
};

// One of the two parts of a block, from f to g.
struct Part {
  const char* name;                        // as in BlockCall
  const char* norm;                        // before f
  const char* between;                     // the matrices
  const char* alone;                       // what each rank has of that
  std::vector<std::vector<Matrix>> outer;  // divided by rows; those of one line have one shape
  Matrix inner;                            // divided by columns
};

std::vector<Part> parts_of(const transformer::Config& config) {
  const std::int64_t d = config.d_model, kv = config.kv_heads * config.head_size(),
                     ff = config.d_ff;
  const Matrix q{"q_proj", d, d, Divided::by_rows, config.heads},
      k{"k_proj", kv, d, Divided::by_rows, config.kv_heads},
      v{"v_proj", kv, d, Divided::by_rows, config.kv_heads},
      o{"o_proj", d, d, Divided::by_columns, config.heads},
      gate{"gate_proj", ff, d, Divided::by_rows}, up{"up_proj", ff, d, Divided::by_rows},
      down{"down_proj", d, ff, Divided::by_columns};
  Part attention{
      "attention", "input_layernorm", "attention", "each rank its heads, no call", {{q, k, v}}, o};
  if (kv != d) attention.outer = {{q}, {k, v}};
  return {attention,
          {"mlp",
           "post_attention_layernorm",
           "silu(gate) * up",
           "each rank its columns, no call",
           {{gate, up}},
           down}};
}

struct Range {
  std::int64_t first, last;
};
// Rank r's part of `whole` elements; the first ranks have one more if they do not divide evenly.
Range range_of(std::int64_t whole, int ranks, int r) {
  const std::int64_t each = whole / ranks, more = whole % ranks;
  const std::int64_t first = r * each + std::min<std::int64_t>(r, more);
  return {first, first + each + (r < more ? 1 : 0) - 1};
}
// "heads 4-7", or "head 4".
std::string text_of(const char* things, Range range) {
  const std::string name = things;
  if (range.first == range.last)
    return fmt::format("{} {}", name.substr(0, name.size() - 1), range.first);
  return fmt::format("{} {}-{}", name, range.first, range.last);
}

// One line of a matrix's picture, 8 columns: the digit of the rank that holds each part.
std::string picture_line(const Matrix& matrix, int ranks, int line) {
  std::string text;
  for (int column = 0; column < 8; ++column)
    text +=
        static_cast<char>('0' + (matrix.divided == Divided::by_rows ? line : column * ranks / 8));
  return text;
}

std::string bytes_text(double bytes) {
  return with_unit(bytes) + "B";
}

// Lines with what happens on the left, and what that means on the right.
class Page {
 public:
  explicit Page(std::ostream& out) : out_(out) {}

  void line(const std::string& left, const std::string& right) const {
    out_ << fmt::format("{:<40}{}\n", "  " + left, right);
  }
  void call(const char* name, const std::string& text) const {
    out_ << fmt::format("  ─{}─ {}\n", name, text);
  }
  void text(const std::string& text) const { out_ << text; }

  // A row of matrices, with a line of each picture for each rank.
  void matrices(const std::vector<Matrix>& row, int ranks) const {
    const Matrix& first = row.front();
    const bool by_rows = first.divided == Divided::by_rows;
    std::string names;
    for (const Matrix& matrix : row) names += fmt::format("{:<11}", matrix.name);
    line("│   " + names,
         fmt::format("[{}, {}]{}, by {}", first.rows, first.columns, row.size() > 1 ? " each" : "",
                     by_rows ? "rows: outputs" : "columns: inputs"));
    for (int rank = 0; rank < ranks; ++rank) {
      std::string pictures;
      for (const Matrix& matrix : row)
        pictures += fmt::format("{:<11}", picture_line(matrix, ranks, rank));
      std::string holds = fmt::format(
          "rank {}: {}", rank,
          text_of(by_rows ? "rows" : "columns", range_of(first.divided_size(), ranks, rank)));
      if (first.heads > 0) holds += ", " + text_of("heads", range_of(first.heads, ranks, rank));
      line("│   " + pictures, holds);
    }
  }

 private:
  std::ostream& out_;
};

// "all-reduce of dx, 524.3kB"
std::string in_words(const BlockCall& call) {
  std::string name = call.collective;
  std::ranges::replace(name, '_', '-');
  return fmt::format("{} of {}, {}", name, call.tensor,
                     bytes_text(static_cast<double>(call.bytes)));
}

// The calls at one end of a part: "backward: all-reduce of dx, 524kB". `tensor` is x at f, y at g.
std::string calls_at(const std::vector<BlockCall>& calls, const Part& part, char tensor) {
  std::vector<std::string> texts;
  for (const BlockCall& call : calls)
    if (call.part == part.name && call.tensor.back() == tensor)
      texts.push_back(fmt::format("{}: {}", call.forward ? "forward" : "backward", in_words(call)));
  return fmt::format("{}", fmt::join(texts, "; "));
}

void draw_part(const Page& page, const TensorBlock& block, const Part& part) {
  const std::vector<BlockCall> calls = calls_of(block);
  const bool tokens = block.sequence_parallel;
  page.line(part.norm, tokens ? "whole weight; each rank its tokens" : "whole on every rank");
  page.call("f", calls_at(calls, part, 'x'));
  for (const std::vector<Matrix>& row : part.outer) page.matrices(row, block.ranks);
  page.line(fmt::format("│   {}", part.between), part.alone);
  page.matrices({part.inner}, block.ranks);
  page.call("g", calls_at(calls, part, 'y'));
  page.line("+ x", tokens ? "each rank its tokens" : "whole on every rank");
}

double sum_of_sent(const std::vector<BlockCall>& calls) {
  double sum = 0;
  for (const BlockCall& call : calls) sum += call.sent_bytes;
  return sum;
}

void draw_sums(const Page& page, const TensorBlock& block) {
  const std::vector<BlockCall> calls = calls_of(block);
  const int t = block.ranks;
  const double sent = sum_of_sent(calls), x = static_cast<double>(block.bytes_of_x());
  const auto blocks = static_cast<double>(block.config.layers);
  page.text(fmt::format(
      "\nA rank sends in a ring, for one micro-batch\n"
      "  one block        {:>8}   {} calls; 8 (t-1)/t B T d e, t = {}, e = {} bytes\n"
      "  {:<16} {:>8}\n"
      "  embedding, head  {:>8}   2 (t-1)/t B T d e each\n"
      "  loss             {:>8}   three numbers a token, never logits\n",
      bytes_text(sent), calls.size(), t, autograd::size_of(block.dtype),
      counted(block.config.layers, "block"), bytes_text(blocks * sent),
      bytes_text(4.0 * (t - 1) / t * x),
      bytes_text(2.0 * (t - 1) / t * 3 * static_cast<double>(block.batch * block.tokens) *
                 static_cast<double>(block.dtype == autograd::DType::fp64 ? 8 : 4))));
}

// The numbers of ranks, 2 to 8, for which `fits`.
template <class Fits>
std::string ranks_that_fit(const Fits& fits) {
  std::vector<int> ranks;
  for (int n = 2; n <= 8; ++n)
    if (fits(n)) ranks.push_back(n);
  return fmt::format("{}", fmt::join(ranks, ", "));
}

}  // namespace

std::vector<BlockCall> calls_of(const TensorBlock& block) {
  const std::int64_t bytes = block.bytes_of_x();
  const double half = static_cast<double>(bytes) * (block.ranks - 1) / block.ranks;
  std::vector<BlockCall> calls;
  const auto add = [&](const char* part, bool forward, const char* collective, const char* tensor) {
    const bool whole = std::string_view(collective) == "all_reduce";
    calls.push_back({part, forward, collective, tensor, bytes, whole ? 2 * half : half});
  };
  for (const char* part : {"attention", "mlp"}) {
    if (block.sequence_parallel) add(part, true, "all_gather", "x");
    add(part, true, block.sequence_parallel ? "reduce_scatter" : "all_reduce", "y");
  }
  for (const char* part : {"mlp", "attention"}) {
    if (block.sequence_parallel) add(part, false, "all_gather", "dy");
    add(part, false, block.sequence_parallel ? "reduce_scatter" : "all_reduce", "dx");
  }
  return calls;
}

void require_divisible(const TensorBlock& block) {
  const transformer::Config& config = block.config;
  const auto divides = [&](int n) {
    return config.heads % n == 0 && config.kv_heads % n == 0 && config.d_ff % n == 0;
  };
  require(divides(block.ranks),
          "{} ranks cannot divide the {} heads, {} key-value heads and d_ff {} of {}: take -n {}",
          block.ranks, config.heads, config.kv_heads, config.d_ff, block.model,
          ranks_that_fit(divides));
  require(!block.sequence_parallel || block.tokens % block.ranks == 0,
          "--sequence-parallel: {} ranks cannot divide {} tokens: take a --sequence that is a "
          "multiple of {}",
          block.ranks, block.tokens, block.ranks);
}

void draw_block(std::ostream& out, const TensorBlock& block) {
  const Page page(out);
  const transformer::Config& config = block.config;
  page.text(fmt::format("One block of {} on {}: {} heads of {}, d_ff {}, {}\n", block.model,
                        counted(block.ranks, "rank"), config.heads, config.head_size(), config.d_ff,
                        autograd::name_of(block.dtype)));
  page.text("A matrix is drawn with the number of the rank that holds each part.\n\n");
  const std::string shape = fmt::format(
      "[{}, {}, {}]", block.batch,
      block.sequence_parallel ? block.tokens / block.ranks : block.tokens, config.d_model);
  page.line("x " + shape, block.sequence_parallel ? "each rank its tokens" : "whole on every rank");
  for (const Part& part : parts_of(config)) draw_part(page, block, part);
  draw_sums(page, block);
  page.text(block.sequence_parallel
                ? "\nThe gradients of the norms are sums over the ranks' tokens: one all-reduce\n"
                  "at the end of the step adds them up.\n"
                : "\nThe norms see the same x on all ranks, so their gradients need no call.\n");
}

Json json_of(const TensorBlock& block) {
  const auto range = [&](std::int64_t whole, int rank) {
    const Range part = range_of(whole, block.ranks, rank);
    return Json{{"first", part.first}, {"count", part.last - part.first + 1}};
  };
  Json matrices = Json::array(), calls = Json::array();
  const auto add = [&](const Matrix& matrix) {
    Json of_rank = Json::array();
    for (int rank = 0; rank < block.ranks; ++rank)
      of_rank.push_back(range(matrix.divided_size(), rank));
    matrices.push_back({{"name", matrix.name},
                        {"shape", {matrix.rows, matrix.columns}},
                        {"divided", matrix.divided == Divided::by_rows ? "rows" : "columns"},
                        {"of_rank", of_rank}});
  };
  for (const Part& part : parts_of(block.config)) {
    for (const std::vector<Matrix>& row : part.outer) std::ranges::for_each(row, add);
    add(part.inner);
  }
  for (const BlockCall& call : calls_of(block))
    calls.push_back({{"part", call.part},
                     {"pass", call.forward ? "forward" : "backward"},
                     {"collective", call.collective},
                     {"tensor", call.tensor},
                     {"bytes", call.bytes},
                     {"sent_bytes", call.sent_bytes}});
  return {{"model", block.model},
          {"ranks", block.ranks},
          {"batch", block.batch},
          {"sequence", block.tokens},
          {"dtype", autograd::name_of(block.dtype)},
          {"sequence_parallel", block.sequence_parallel},
          {"matrices", matrices},
          {"calls", calls},
          {"sent_bytes", sum_of_sent(calls_of(block))}};
}

}  // namespace ringside::cli
