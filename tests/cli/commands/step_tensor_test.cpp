// `ringside step tensor`: its picture, its figures, and that the calls it draws are those made.
#include <sstream>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/schedule/tensor_block.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "parallel/differentiable.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/parallel/tensor/divided.hpp"

namespace ringside::cli {
namespace {

using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;

Outcome step_tensor(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ringside_binary, "step", "tensor"});
  return run_program(arguments);
}

TensorBlock block_of(const std::string& model, int ranks, bool sequence_parallel) {
  TensorBlock block{.model = model, .config = transformer::named_config(model), .ranks = ranks};
  block.tokens = block.config.sequence;
  block.sequence_parallel = sequence_parallel;
  return block;
}

// The matrices and the calls of a block with some elementwise product in place of attention.
autograd::Tensor forward(const autograd::Tensor& x, bool tokens, collectives::ProcessGroup& group) {
  using namespace tensor_parallel;
  using tests::drawn;
  const std::int64_t d = x.size(2), ff = 2 * d;
  const auto rows = [&](const char* name, std::int64_t out) {
    return part_of(drawn({out, d}, name, x.dtype()), 0, group);
  };
  const auto columns = [&](const char* name, std::int64_t in) {
    return part_of(drawn({d, in}, name, x.dtype()), 1, group);
  };
  const auto enter = [&](const autograd::Tensor& in, const char* part) {
    return tokens ? parallel::gather_sequence(in, group, part)
                  : parallel::copy_to_group(in, group, part);
  };
  const auto leave = tokens ? row_linear_of_tokens : row_linear;
  const autograd::Tensor in = enter(x, "attention");
  const autograd::Tensor heads =
      linear(in, rows("q", d)) * linear(in, rows("k", d)) * linear(in, rows("v", d));
  const autograd::Tensor y = x + leave(heads, columns("o", d), {}, group, "attention");
  const autograd::Tensor of_y = enter(y, "mlp");
  const autograd::Tensor h = swiglu(linear(of_y, rows("gate", ff)), linear(of_y, rows("up", ff)));
  return y + leave(h, columns("down", ff), {}, group, "mlp");
}

}  // namespace

TEST_CASE("step tensor draws who holds which rows and columns, and where the calls are") {
  const Outcome outcome = step_tensor({"-n", "2"});
  CHECK(outcome.exit_code == 0);
  for (const char* line :
       {"─f─ backward: all-reduce of dx, 524kB\n", "─g─ forward: all-reduce of y, 524kB\n",
        "q_proj     k_proj     v_proj      [512, 512] each, by rows: outputs\n",
        "11111111   11111111   11111111    rank 1: rows 256-511, heads 8-15\n",
        "00001111                          rank 0: columns 0-671\n",
        "one block        2.1MB  4 calls"})
    CHECK_MESSAGE(testing::contains(outcome.out, line), outcome.out);
  const Outcome tokens = step_tensor({"-n", "4", "--sequence-parallel", "--dtype", "bf16"});
  for (const char* line : {"x [1, 64, 512]",
                           "forward: all-gather of x, 262kB; backward: "
                           "reduce-scatter of dx, 262kB\n",
                           "8 calls", "adds them up"})
    CHECK_MESSAGE(testing::contains(tokens.out, line), tokens.out);
}

TEST_CASE("key-value heads that are fewer than heads are drawn apart") {
  TensorBlock block = block_of("lab", 2, false);
  block.config.kv_heads = 4;
  std::ostringstream out;
  draw_block(out, block);
  CHECK_MESSAGE(testing::contains(out.str(), "rank 1: rows 256-511, heads 8-15"), out.str());
  CHECK(testing::contains(out.str(), "[128, 512] each, by rows: outputs"));
  CHECK(testing::contains(out.str(), "rank 1: rows 64-127, heads 2-3"));
}

TEST_CASE("the picture of every model fits 80 columns") {
  for (const std::string& model : transformer::config_names())
    for (const int ranks : {2, 3, 4, 5, 6, 8})
      for (const bool tokens : {false, true}) {
        TensorBlock block = block_of(model, ranks, tokens);
        block.batch = 64;
        std::ostringstream out;
        draw_block(out, block);
        std::istringstream lines(out.str());
        for (std::string line; std::getline(lines, line);) {
          const auto length =
              std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; });
          CHECK_MESSAGE(length <= 80, line);
        }
      }
}

TEST_CASE("step tensor writes matrices, calls and bytes as JSON") {
  for (const bool tokens : {false, true}) {
    std::vector<std::string> arguments{"-n", "4", "--model", "tiny", "--batch", "3", "--json", "-"};
    if (tokens) arguments.push_back("--sequence-parallel");
    const Json json = Json::parse(step_tensor(arguments).out);
    CHECK(json["matrices"].size() == 7);
    CHECK(json["matrices"][0]["of_rank"][3] == Json{{"first", 96}, {"count", 32}});
    CHECK(json["calls"].size() == (tokens ? 8 : 4));
    const double x = 3 * 128 * 128 * 4;  // B T d e
    CHECK(json["sent_bytes"].get<double>() == 8 * x * 3 / 4);
  }
}

TEST_CASE("the calls that are drawn are the calls that are made, with the same bytes") {
  for (const int ranks : {2, 4})
    for (const bool tokens : {false, true}) {
      TensorBlock block = block_of("tiny", ranks, tokens);
      block.batch = 2;
      const std::vector<BlockCall> expected = calls_of(block);
      collectives::GroupOptions options;
      options.algorithms =
          collectives::AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,all_gather=ring");
      collectives::run_threads(
          ranks,
          [&](collectives::ProcessGroup& group) {
            const autograd::Tensor all =
                tests::drawn({2, block.tokens, block.config.d_model}, "x", autograd::DType::fp32);
            const autograd::Tensor x = tests::learned(tokens ? tests::tokens_of(all, group) : all);
            const tests::CountedCalls counted(group);
            backward(sum(forward(x, tokens, group)));
            double sent = 0;
            std::vector<std::string> drawn, made;
            for (const BlockCall& call : expected) {
              drawn.push_back(fmt::format("{} {}{} {}", call.collective,
                                          call.forward ? "" : "gradient of ", call.part,
                                          call.bytes));
              sent += call.sent_bytes;
            }
            for (const Trace::Span& span : counted.in_order())
              made.push_back(fmt::format("{} {} {}", span.name, span.about, span.bytes));
            require(made == drawn, "made {}, drawn {}", made, drawn);
            require(static_cast<double>(counted.bytes()) == sent, "{} bytes instead of {}",
                    counted.bytes(), sent);
          },
          options);
    }
}

TEST_CASE("step tensor refuses what cannot be divided, and says what would fit") {
  const Outcome heads = step_tensor({"-n", "3"});
  CHECK(heads.exit_code == 1);
  CHECK(heads.err ==
        "ringside: 3 ranks cannot divide the 16 heads, 16 key-value heads and d_ff 1344 of lab: "
        "take -n 2, 4, 8\n");
  const Outcome tokens = step_tensor({"-n", "2", "--sequence", "7", "--sequence-parallel"});
  CHECK(tokens.exit_code == 1);
  CHECK(tokens.err ==
        "ringside: --sequence-parallel: 2 ranks cannot divide 7 tokens: take a --sequence that is "
        "a multiple of 2\n");
  CHECK(step_tensor({"-n", "9"}).exit_code == 2);
  CHECK(testing::contains(step_tensor({"--model", "huge"}).err, "there is no model size named"));
}

}  // namespace ringside::cli
