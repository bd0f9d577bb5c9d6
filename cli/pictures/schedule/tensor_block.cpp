#include "cli/pictures/schedule/tensor_block.hpp"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/table.hpp"

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
  const char* name;                           // as in BlockCall
  const char* norm;                           // before f
  const char* between;                        // the matrices
  const char* alone;                          // what each rank has of that
  std::vector<std::vector<Matrix>> matrices;  // those of one line have one shape; the last is
                                              // divided by columns, the others by rows
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
  Part attention{"attention",
                 "input_layernorm",
                 "attention",
                 "each rank its heads, no call",
                 {{q, k, v}, {o}}};
  if (kv != d) attention.matrices = {{q}, {k, v}, {o}};
  return {attention,
          {"mlp",
           "post_attention_layernorm",
           "silu(gate) * up",
           "each rank its columns, no call",
           {{gate, up}, {down}}}};
}

struct Range {
  std::int64_t first, last;
};

// Rank r's part of `whole` elements.
Range range_of(std::int64_t whole, int ranks, int r) {
  return {whole * r / ranks, whole * (r + 1) / ranks - 1};
}

// "heads 4-7", or "head 4".
std::string text_of(const char* thing, Range range) {
  return range.first == range.last ? fmt::format("{} {}", thing, range.first)
                                   : fmt::format("{}s {}-{}", thing, range.first, range.last);
}

// A line: pictures, then what they mean.
std::string line(const std::string& pictures, const std::string& meaning) {
  return fmt::format("  {:<38}{}\n", pictures, meaning);
}

// A row of matrices, with a line of each picture for each rank: the digit of the rank that holds
// each part.
std::string picture_of(const std::vector<Matrix>& row, int ranks) {
  const Matrix& first = row.front();
  const bool by_rows = first.divided == Divided::by_rows;
  std::string names = "│   ";
  for (const Matrix& matrix : row) names += fmt::format("{:<11}", matrix.name);
  std::string text = line(names, fmt::format("[{}, {}]{}, by {}", first.rows, first.columns,
                                             row.size() > 1 ? " each" : "",
                                             by_rows ? "rows: outputs" : "columns: inputs"));
  for (int rank = 0; rank < ranks; ++rank) {
    std::string digits;
    for (int column = 0; column < 8; ++column)
      digits += fmt::to_string(by_rows ? rank : column * ranks / 8);
    std::string pictures = "│   ";
    for (std::size_t i = 0; i < row.size(); ++i) pictures += fmt::format("{:<11}", digits);
    std::string holds = fmt::format(
        "rank {}: {}", rank,
        text_of(by_rows ? "row" : "column", range_of(first.divided_size(), ranks, rank)));
    if (first.heads > 0) holds += ", " + text_of("head", range_of(first.heads, ranks, rank));
    text += line(pictures, holds);
  }
  return text;
}

std::string bytes_text(double bytes) {
  return with_unit(bytes) + "B";
}

// The calls at one end of a part: "─f─ backward: all-reduce of dx, 524kB". `tensor` is x at f, y at
// g.
std::string calls_at(const char* end, const TensorBlock& block, const Part& part, char tensor) {
  std::vector<std::string> texts;
  for (const BlockCall& call : calls_of(block)) {
    if (call.part != part.name || call.tensor.back() != tensor) continue;
    std::string name = call.collective;
    std::ranges::replace(name, '_', '-');
    texts.push_back(fmt::format("{}: {} of {}, {}", call.forward ? "forward" : "backward", name,
                                call.tensor, bytes_text(static_cast<double>(call.bytes))));
  }
  return fmt::format("  ─{}─ {}\n", end, fmt::join(texts, "; "));
}

std::string part_text(const TensorBlock& block, const Part& part) {
  const bool tokens = block.sequence_parallel;
  std::string text =
      line(part.norm, tokens ? "whole weight; each rank its tokens" : "whole on every rank") +
      calls_at("f", block, part, 'x');
  for (const std::vector<Matrix>& row : part.matrices) {
    if (row.front().divided == Divided::by_columns)
      text += line(fmt::format("│   {}", part.between), part.alone);
    text += picture_of(row, block.ranks);
  }
  return text + calls_at("g", block, part, 'y') +
         line("+ x", tokens ? "each rank its tokens" : "whole on every rank");
}

double sum_of_sent(const TensorBlock& block) {
  double sum = 0;
  for (const BlockCall& call : calls_of(block)) sum += call.sent_bytes;
  return sum;
}

std::string sums_text(const TensorBlock& block) {
  const int t = block.ranks;
  const double sent = sum_of_sent(block), ring = 2.0 * (t - 1) / t,
               logits = static_cast<double>(block.batch * block.tokens) *
                        (block.dtype == autograd::DType::fp64 ? 8 : 4);
  Table table{{words(""), number("", "", bytes_text), words("")}};
  table.rows = {
      {"one block", sent,
       fmt::format("{} calls; 8 (t-1)/t B T d e, t = {}, e = {} bytes", calls_of(block).size(), t,
                   autograd::size_of(block.dtype))},
      {counted(block.config.layers, "block"), static_cast<double>(block.config.layers) * sent, ""},
      {"embedding, head", 2 * ring * static_cast<double>(block.bytes_of_x()),
       "2 (t-1)/t B T d e each"},
      {"loss", 3 * ring * logits, "three numbers a token, never logits"}};
  return "\nA rank sends in a ring, for one micro-batch\n" + table.text();
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
  std::vector<int> fitting;
  for (int n = 2; n <= 8; ++n)
    if (divides(n)) fitting.push_back(n);
  require(divides(block.ranks),
          "{} ranks cannot divide the {} heads, {} key-value heads and d_ff {} of {}: take -n {}",
          block.ranks, config.heads, config.kv_heads, config.d_ff, block.model,
          fmt::join(fitting, ", "));
  require(!block.sequence_parallel || block.tokens % block.ranks == 0,
          "--sequence-parallel: {} ranks cannot divide {} tokens: take a --sequence that is a "
          "multiple of {}",
          block.ranks, block.tokens, block.ranks);
}

void draw_block(std::ostream& out, const TensorBlock& block) {
  const transformer::Config& config = block.config;
  out << fmt::format(
      "One block of {} on {}: {} heads of {}, d_ff {}, {}\n"
      "A matrix is drawn with the number of the rank that holds each part.\n\n",
      block.model, counted(block.ranks, "rank"), config.heads, config.head_size(), config.d_ff,
      autograd::name_of(block.dtype));
  const bool tokens = block.sequence_parallel;
  out << line(fmt::format("x [{}, {}, {}]", block.batch,
                          tokens ? block.tokens / block.ranks : block.tokens, config.d_model),
              tokens ? "each rank its tokens" : "whole on every rank");
  for (const Part& part : parts_of(config)) out << part_text(block, part);
  out << sums_text(block)
      << (tokens ? "\nThe gradients of the norms are sums over the ranks' tokens: one all-reduce\n"
                   "at the end of the step adds them up.\n"
                 : "\nThe norms see the same x on all ranks, so their gradients need no call.\n");
}

Json json_of(const TensorBlock& block) {
  Json matrices = Json::array(), calls = Json::array();
  for (const Part& part : parts_of(block.config))
    for (const std::vector<Matrix>& row : part.matrices)
      for (const Matrix& matrix : row) {
        Json of_rank = Json::array();
        for (int rank = 0; rank < block.ranks; ++rank) {
          const auto [first, last] = range_of(matrix.divided_size(), block.ranks, rank);
          of_rank.push_back({{"first", first}, {"count", last - first + 1}});
        }
        matrices.push_back({{"name", matrix.name},
                            {"shape", {matrix.rows, matrix.columns}},
                            {"divided", matrix.divided == Divided::by_rows ? "rows" : "columns"},
                            {"of_rank", of_rank}});
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
          {"sent_bytes", sum_of_sent(block)}};
}

}  // namespace ringside::cli
