#include "cli/bench/training/ddp_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/pictures/numbers.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

std::string behind(const DdpFigures& f) {
  return f.run.link.empty() ? "" : fmt::format(", each behind a link of {}", f.run.link);
}

// "857k parameters, 3.4 MB of gradients"
std::string size_text(const DdpFigures& f) {
  return fmt::format("{}, {:.1f} MB of gradients", f.run.parameters_text(),
                     f.gradient_bytes() / 1e6);
}

// What the two predictions say, in lines of at most 80 columns.
std::string predictions(const DdpFigures& f) {
  const double s = f.gradient_bytes(), best = f.buckets.best_bucket_bytes(s);
  std::string text = fmt::format("bucket model: o = {:.1f} us per call, w = {:.3f} GB/s",
                                 f.buckets.overhead * 1e6, f.buckets.bandwidth / 1e9);
  if (best > 0)
    text += fmt::format(
        "; by the formula the best bucket has sqrt(s w o) = {:.2f} MB and exposes "
        "{:.1f} ms",
        best / 1e6, 1e3 * f.buckets.exposed_seconds(s, s / best));
  if (!f.sizes.empty()) {
    const BucketSize& size = best_of(f.sizes, f.buckets, f.backward);
    text += fmt::format("; followed in time, the best limit is {:g} MB and exposes {:.1f} ms",
                        size.mb, 1e3 * ddp::exposed_seconds(f.buckets, size.buckets, f.backward));
  }
  return wrap(text, 80) + "\n";
}

// The prediction for a measured size that followed its buckets in time. A size that was not
// followed divides the gradients like the largest one below it.
double followed_seconds(const DdpFigures& f, double mb) {
  const BucketSize* found = nullptr;
  for (const BucketSize& size : f.sizes)
    if (!found || size.mb <= mb) found = &size;
  return found ? ddp::exposed_seconds(f.buckets, found->buckets, f.backward) : 0;
}

Table table_of(const DdpFigures& f) {
  const Show mb = [](double number) { return fmt::format("{:g}", number); };
  Table table{{words("strategy", "strategy", 16), number("bucket\n(MB)", "bucket_mb", mb),
               number("step\n(ms)", "step_ms", fixed(1)),
               number("network\n(ms)", "communication_ms", fixed(1)),
               number("exposed\n(ms)", "exposed_ms", fixed(1)), number("calls", "calls"),
               number("sent\n(MB)", "bytes_sent", fixed(2, 1e-6)),
               number("ratio", "ratio", fixed(3)), only_in_json("model_exposed_ms"),
               only_in_json("followed_exposed_ms")}};
  for (const StrategyRow& row : f.rows) {
    Cell by_formula, followed;
    if (row.bucket_mb) {
      by_formula =
          1e3 * f.buckets.exposed_seconds(f.gradient_bytes(), static_cast<double>(row.calls));
      followed = 1e3 * followed_seconds(f, *row.bucket_mb);
    }
    table.rows.push_back({row.strategy, row.bucket_mb, row.step_seconds * 1e3,
                          row.network_seconds * 1e3, row.exposed_seconds * 1e3, row.calls,
                          row.bytes_sent, row.ratio, by_formula, followed});
  }
  return table;
}

// As people read it.
Table shown_table(const DdpFigures& f) {
  Table table = table_of(f);
  for (auto& row : table.rows)
    if (row[0] == Cell("none")) row[0] = "no communication";
  return table;
}

// The strategies whose tracks the report shows, from all communication exposed to most of it
// hidden.
std::vector<std::pair<std::string, Window>> shown_windows(const DdpFigures& f) {
  std::vector<std::pair<std::string, Window>> shown;
  const auto take = [&](auto wanted) {
    const auto found = std::find_if(f.windows.begin(), f.windows.end(), wanted);
    if (found != f.windows.end()) shown.push_back(*found);
  };
  take([](const auto& w) { return w.first == "naive"; });
  take([](const auto& w) { return w.first == "overlap"; });
  const StrategyRow* fastest = nullptr;
  for (const auto& row : f.rows)
    if (row.bucket_mb && (!fastest || row.step_seconds < fastest->step_seconds)) fastest = &row;
  if (fastest) take([&](const auto& w) { return w.first == fastest->text(); });
  if (shown.empty() && f.windows.size() > 1) shown.push_back(f.windows[1]);
  return shown;
}

}  // namespace

BucketStudy DdpFigures::bucket_study() const {
  BucketStudy study{buckets, gradient_bytes(), {}, 0, {}};
  for (const BucketSize& size : sizes)
    study.followed.emplace_back(size.mean_bytes(),
                                ddp::exposed_seconds(buckets, size.buckets, backward));
  if (!sizes.empty()) study.best_followed_mb = best_of(sizes, buckets, backward).mb;
  for (const auto& row : rows)
    if (row.bucket_mb && row.calls > 0)
      study.measured.push_back({row.text(), static_cast<double>(row.calls),
                                followed_seconds(*this, *row.bucket_mb), row.exposed_seconds,
                                row.step_seconds - rows.front().step_seconds});
  return study;
}

std::string ddp_table(const DdpFigures& f) {
  const std::string title = fmt::format("{}: {}; {} ranks over {}{}", f.run.model, size_text(f),
                                        f.run.ranks, f.run.backend, behind(f));
  return fmt::format("{}\n{} sequences of {} and {} each, {}, AdamW; medians of {} steps{}\n{}{}",
                     wrap(title, 80), f.run.batch, f.run.sequence, counted(f.run.threads, "thread"),
                     f.run.dtype, f.run.steps, f.run.device_text(), shown_table(f).text(),
                     predictions(f));
}

Json to_json(const DdpFigures& f) {
  Json fitted = Json::array();
  for (const auto& [bytes, seconds] : f.all_reduces)
    fitted.push_back({{"bytes", static_cast<std::int64_t>(bytes)},
                      {"time_us", seconds * 1e6},
                      {"model_us", f.buckets.call_seconds(bytes) * 1e6}});
  const Json rows = table_of(f).json(f.run.facts(
      {"model", "ranks", "backend", "device", "type", "link", "threads", "batch", "sequence"}));
  return {{"rows", rows},
          {"bucket_model",
           {{"gradient_bytes", static_cast<std::int64_t>(f.gradient_bytes())},
            {"overhead_us", f.buckets.overhead * 1e6},
            {"bandwidth_gbps", f.buckets.bandwidth / 1e9},
            {"backward_ms", f.backward * 1e3},
            {"best_followed_mb",
             f.sizes.empty() ? Json() : Json(best_of(f.sizes, f.buckets, f.backward).mb)},
            {"best_bucket_mb", f.buckets.best_bucket_bytes(f.gradient_bytes()) / 1e6},
            {"all_reduces", fitted}}}};
}

Report ddp_report(const DdpFigures& f) {
  Report report{fmt::format("Data parallelism on {} ranks: {}", f.run.ranks, f.run.model), {}, {}};
  report.facts = {
      {"model", fmt::format("{}, {}", f.run.model, size_text(f))},
      {"ranks", fmt::format("{} over {}{}; {} each", f.run.ranks, f.run.backend, behind(f),
                            counted(f.run.threads, "thread"))},
      {"batch", fmt::format("{} sequences of {} on each rank", f.run.batch, f.run.sequence)},
      {"steps", fmt::format("{}, the strategies in turn; medians", f.run.steps)}};
  Figure table{"The strategies side by side", "", "", shown_table(f)};
  table.caption =
      "network: time in which calls were running. exposed: time in which the rank waited for them, "
      "including for slower ranks. step, network and exposed are those of the slowest rank. ratio: "
      "step time divided by the step time without communication, in which each rank does the same "
      "work alone.";
  report.figures.push_back(table);
  const auto windows = shown_windows(f);
  double scale = 0;
  for (const auto& [name, window] : windows) scale = std::max(scale, window.seconds());
  for (const auto& [name, window] : windows)
    report.figures.push_back(tracks_figure("One step: " + name, f.traces, window, scale));
  const BucketStudy study = f.bucket_study();
  if (!study.measured.empty()) report.figures.push_back(bucket_figure(study));
  return report;
}

}  // namespace ringside::cli
