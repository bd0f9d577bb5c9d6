#include "bench/training/train_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/numbers.hpp"

namespace ringside::cli {
namespace {

// The ops, the longest first; then the rest of the step.
std::vector<autograd::OpTime> by_time(const TrainFigures& figures) {
  auto ops = figures.ops;
  double known = 0;
  for (const auto& op : ops) known += op.forward + op.backward;
  std::ranges::stable_sort(ops, std::greater(),
                           [](const auto& op) { return op.forward + op.backward; });
  ops.push_back({"the rest", std::max(0.0, figures.step_seconds - known), 0, 0});
  return ops;
}

Table ops_of(const TrainFigures& f) {
  const Show unless_none = [](double calls) { return calls > 0 ? fmt::format("{}", calls) : ""; };
  Table table{{words("op", "op", 20), number("forward (ms)", "forward_ms", fixed(2)),
               number("backward (ms)", "backward_ms", fixed(2)),
               number("share", "", fixed(1, 100, " %"), 7),
               number("calls", "calls", unless_none, 6)}};
  for (const auto& op : by_time(f))
    table.rows.push_back({op.name, op.forward * 1e3, op.backward * 1e3,
                          (op.forward + op.backward) / f.step_seconds, op.calls});
  return table;
}

}  // namespace

CommandResult result_of(const TrainFigures& f) {
  const auto gflops_in = [&](double seconds) { return f.flops / seconds * 1e-9; };
  const double tokens_per_second = f.tokens / f.step_seconds,
               ratio = f.step_seconds / f.alone_seconds;
  const Table ops = ops_of(f);
  std::string text = f.run.title + "\n";
  Json figures = to_json(f.run.facts);
  figures.update({{"blas", f.libraries.blas},
                  {"blas_kernel", f.libraries.blas_kernel},
                  {"vector_bits", f.libraries.vector_bits},
                  {"fp32_products", f.libraries.fp32_by_onednn ? "BLAS and oneDNN" : "BLAS"},
                  {"bf16_products", f.libraries.bf16.empty() ? "oneDNN" : "none"},
                  {"step_ms", f.step_seconds * 1e3},
                  {"tokens_per_second", tokens_per_second},
                  {"gflop", f.flops * 1e-9},
                  {"gflops", gflops_in(f.step_seconds)},
                  {"gemm_alone_ms", f.alone_seconds * 1e3},
                  {"gemm_alone_gflops", gflops_in(f.alone_seconds)},
                  {"ratio", ratio},
                  {"peak_tensor_bytes", f.tensor_bytes},
                  {"ops", ops.json()}});
  if (figures.at("device") == "cpu") text += "  " + in_words(f.libraries) + "\n";
  text += ops.text();
  text +=
      fmt::format("  step {:.0f} ms, {} tokens/s, {:.1f} GFLOP/s in all\n", f.step_seconds * 1e3,
                  with_unit(tokens_per_second), gflops_in(f.step_seconds));
  if (f.gemm_seconds > 0) {
    text += fmt::format("  of it gemm {:.0f} ms: {:.1f} GFLOP at {:.1f} GFLOP/s\n",
                        f.gemm_seconds * 1e3, f.flops * 1e-9, gflops_in(f.gemm_seconds));
    figures["gemm_ms"] = f.gemm_seconds * 1e3;
  }
  text += fmt::format("  the same products alone {:.0f} ms, {:.1f} GFLOP/s; ratio {:.2f}\n",
                      f.alone_seconds * 1e3, gflops_in(f.alone_seconds), ratio);
  text += fmt::format("  peak memory {:.0f} MB in tensors", f.tensor_bytes * 1e-6);
  if (f.resident_bytes > 0) {
    text += fmt::format(", {:.0f} MB resident", f.resident_bytes * 1e-6);
    figures["peak_resident_bytes"] = f.resident_bytes;
  }
  return {text + "\n", Json::array({figures})};
}

Json train_plot(const std::vector<TrainFigures>& all) {
  const auto in_words = [](double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); };
  Json lanes = Json::array();
  const auto add = [&](const std::string& name, const std::string& says, double end, Json marks) {
    lanes.push_back({{"name", name}, {"says", says}, {"end", end}, {"marks", std::move(marks)}});
  };
  double longest = 0;
  for (const TrainFigures& f : all) {
    add(counted(f.threads, "thread"), f.run.title, 0, Json::array());
    for (const auto& op : by_time(f)) {
      const double end = op.forward + op.backward;
      longest = std::max(longest, end);
      add(op.name, fmt::format("{}: {}", op.name, in_words(end)), end,
          {{"forward", "forward", 0, op.forward, in_words(op.forward)},
           {"backward", "backward", op.forward, end, in_words(op.backward)}});
    }
  }
  return {{"title", all.front().run.title}, {"scale", longest}, {"pixels", 440}, {"lanes", lanes}};
}

}  // namespace ringside::cli
