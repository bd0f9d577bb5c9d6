#include "cli/bench/training/train_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/numbers.hpp"

namespace ringside::cli {
namespace {

std::string title(const BenchRun& run) {
  const std::string where = run.device == "cpu" ? "" : run.device + ", ";
  return fmt::format("{}: {}; batch {} x {}, {}, AdamW, {}{}", run.model, run.parameters_text(),
                     run.batch, run.sequence, run.dtype, where, counted(run.threads, "thread"));
}

// The ops, the longest first; then the rest of the step.
std::vector<autograd::OpTime> by_time(const TrainFigures& figures) {
  auto ops = figures.ops;
  double known = 0;
  for (const auto& op : ops) known += op.forward + op.backward;
  std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
    return a.forward + a.backward > b.forward + b.backward;
  });
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

std::string train_table(const TrainFigures& f) {
  std::string text = title(f.run) + "\n";
  if (f.run.device == "cpu") text += "  " + in_words(f.libraries) + "\n";
  text += ops_of(f).text();
  text +=
      fmt::format("  step {:.0f} ms, {} tokens/s, {:.1f} GFLOP/s in all\n", f.step_seconds * 1e3,
                  with_unit(f.tokens_per_second()), f.flops / f.step_seconds * 1e-9);
  if (f.gemm_seconds > 0)
    text += fmt::format("  of it gemm {:.0f} ms: {:.1f} GFLOP at {:.1f} GFLOP/s\n",
                        f.gemm_seconds * 1e3, f.flops * 1e-9, f.flops / f.gemm_seconds * 1e-9);
  text += fmt::format("  the same products alone {:.0f} ms, {:.1f} GFLOP/s; ratio {:.2f}\n",
                      f.alone_seconds * 1e3, f.flops / f.alone_seconds * 1e-9, f.ratio());
  const std::string resident =
      f.resident_bytes > 0 ? fmt::format(", {:.0f} MB resident", f.resident_bytes * 1e-6) : "";
  return text +
         fmt::format("  peak memory {:.0f} MB in tensors{}\n", f.tensor_bytes * 1e-6, resident);
}

Json to_json(const std::vector<TrainFigures>& all) {
  Json rows = Json::array();
  for (const auto& f : all) {
    Facts facts =
        f.run.facts({"model", "parameters", "batch", "sequence", "type", "device", "threads"});
    const auto if_known = [](double value) { return value > 0 ? Cell(value) : Cell(); };
    const Facts measured = {
        {"blas", f.libraries.blas},
        {"blas_kernel", f.libraries.blas_kernel},
        {"vector_bits", f.libraries.vector_bits},
        {"fp32_products", f.libraries.fp32_by_onednn ? "BLAS and oneDNN" : "BLAS"},
        {"bf16_products", f.libraries.bf16.empty() ? "oneDNN" : "none"},
        {"step_ms", f.step_seconds * 1e3},
        {"tokens_per_second", f.tokens_per_second()},
        {"gflop", f.flops * 1e-9},
        {"gflops", f.flops / f.step_seconds * 1e-9},
        {"gemm_alone_ms", f.alone_seconds * 1e3},
        {"gemm_alone_gflops", f.flops / f.alone_seconds * 1e-9},
        {"ratio", f.ratio()},
        {"peak_tensor_bytes", f.tensor_bytes},
        {"peak_resident_bytes", if_known(f.resident_bytes)},
        {"gemm_ms", if_known(f.gemm_seconds * 1e3)}};
    facts.insert(facts.end(), measured.begin(), measured.end());
    rows.push_back(to_json(facts));
    rows.back()["ops"] = ops_of(f).json();
  }
  return rows;
}

std::string train_plot(const std::vector<TrainFigures>& all) {
  constexpr double left = 130, bar_width = 440, row = 20, head = 62, foot = 34, width = 680;
  double height = 10, longest = 0;
  for (const auto& f : all) {
    height += head + row * static_cast<double>(f.ops.size() + 1) + foot;
    for (const auto& op : f.ops) longest = std::max(longest, op.forward + op.backward);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<style>\n.paper {{ fill: #ffffff; }} text {{ "
      "fill: #333333; }}\n"
      ".forward {{ fill: #2f7ed8; }} .backward {{ fill: #e0662f; }}\n"
      "@media (prefers-color-scheme: dark) {{ .paper {{ fill: #16191d; }} text {{ fill: #d8dce0; "
      "}} }}\n</style>\n"
      "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
      width, height);
  const auto text = [&](double x, double y, const std::string& words, const char* more = "") {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, words);
  };
  const auto bar = [&](double x, double y, double w, const char* kind) {
    svg += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"13\"/>\n", kind, x,
        y - 10.5, w);
  };
  double y = 26;
  for (const auto& f : all) {
    text(16, y, title(f.run), " font-size=\"14\"");
    y += 22;
    bar(left, y, 13, "forward"), text(left + 19, y, "forward");
    bar(left + 84, y, 13, "backward"), text(left + 103, y, "backward");
    y += 24;
    for (const auto& op : by_time(f)) {
      const double forward = op.forward / longest * bar_width,
                   backward = op.backward / longest * bar_width;
      text(left - 8, y, op.name, " text-anchor=\"end\"");
      bar(left, y, forward, "forward"), bar(left + forward, y, backward, "backward");
      text(left + forward + backward + 6, y,
           fmt::format("{:.1f} ms", (op.forward + op.backward) * 1e3));
      y += row;
    }
    text(16, y + 6,
         fmt::format("step {:.0f} ms; its matrix products alone {:.0f} ms; ratio {:.2f}",
                     f.step_seconds * 1e3, f.alone_seconds * 1e3, f.ratio()));
    y += foot + 16;
  }
  return svg + "</svg>\n";
}

}  // namespace ringside::cli
