#include "cli/bench/training/ddp_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/report/numbers.hpp"
#include "cli/report/wrap.hpp"
#include "cli/training/device_option.hpp"

namespace ringside::cli {
namespace {

std::string ms(double seconds) {
  return fmt::format("{:.1f}", seconds * 1e3);
}

std::string shown(const StrategyRow& row) {
  return row.strategy == "none" ? "no communication" : row.strategy;
}

std::string bucket_of(const StrategyRow& row) {
  return row.bucket_mb ? fmt::format("{:g}", *row.bucket_mb) : "";
}

std::string behind(const DdpFigures& f) {
  return f.link.empty() ? "" : fmt::format(", each behind a link of {}", f.link);
}

Table table_of(const DdpFigures& f) {
  Table table{{"strategy", "bucket (MB)", "step (ms)", "network (ms)", "exposed (ms)", "calls",
               "sent (MB)", "ratio"},
              {}};
  for (const auto& row : f.rows)
    table.rows.push_back({shown(row), bucket_of(row), ms(row.step_seconds), ms(row.network_seconds),
                          ms(row.exposed_seconds), fmt::to_string(row.calls),
                          fmt::format("{:.2f}", static_cast<double>(row.bytes_sent) / 1e6),
                          fmt::format("{:.3f}", row.ratio)});
  return table;
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
  std::string text =
      wrap(fmt::format("{}: {} parameters, {:.1f} MB of gradients; {} ranks over {}{}", f.model,
                       with_unit(static_cast<double>(f.parameters)), f.gradient_bytes() / 1e6,
                       f.ranks, f.backend, behind(f)),
           80);
  text += fmt::format("\n{} sequences of {} and {} each, {}, AdamW; medians of {} steps{}\n",
                      f.batch, f.sequence, counted(f.threads, "thread"), name_of(f.dtype), f.steps,
                      on_device_text(f.device));
  constexpr const char* line = "  {:<17}{:>8}{:>9}{:>10}{:>10}{:>7}{:>9}{:>8}\n";
  text += fmt::format(line, "strategy", "bucket", "step", "network", "exposed", "calls", "sent",
                      "ratio");
  text += fmt::format(line, "", "(MB)", "(ms)", "(ms)", "(ms)", "", "(MB)", "");
  for (const auto& row : table_of(f).rows)
    text += fmt::format(line, row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]);
  return text + predictions(f);
}

Json to_json(const DdpFigures& f) {
  Json rows = Json::array();
  for (const auto& row : f.rows) {
    Json one{{"model", f.model},
             {"ranks", f.ranks},
             {"backend", f.backend},
             {"device", f.device},
             {"type", name_of(f.dtype)},
             {"link", f.link.empty() ? Json() : Json(f.link)},
             {"threads", f.threads},
             {"batch", f.batch},
             {"sequence", f.sequence},
             {"strategy", row.strategy},
             {"bucket_mb", row.bucket_mb ? Json(*row.bucket_mb) : Json()},
             {"step_ms", row.step_seconds * 1e3},
             {"communication_ms", row.network_seconds * 1e3},
             {"exposed_ms", row.exposed_seconds * 1e3},
             {"calls", row.calls},
             {"bytes_sent", row.bytes_sent},
             {"ratio", row.ratio}};
    if (row.bucket_mb) {
      one["model_exposed_ms"] =
          1e3 * f.buckets.exposed_seconds(f.gradient_bytes(), static_cast<double>(row.calls));
      one["followed_exposed_ms"] = 1e3 * followed_seconds(f, *row.bucket_mb);
    }
    rows.push_back(std::move(one));
  }
  Json fitted = Json::array();
  for (const auto& [bytes, seconds] : f.all_reduces)
    fitted.push_back({{"bytes", static_cast<std::int64_t>(bytes)},
                      {"time_us", seconds * 1e6},
                      {"model_us", f.buckets.call_seconds(bytes) * 1e6}});
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
  Report report{fmt::format("Data parallelism on {} ranks: {}", f.ranks, f.model), {}, {}};
  report.facts = {{"model", fmt::format("{}, {} parameters, {:.1f} MB of gradients", f.model,
                                        with_unit(static_cast<double>(f.parameters)),
                                        f.gradient_bytes() / 1e6)},
                  {"ranks", fmt::format("{} over {}{}; {} each", f.ranks, f.backend, behind(f),
                                        counted(f.threads, "thread"))},
                  {"batch", fmt::format("{} sequences of {} on each rank", f.batch, f.sequence)},
                  {"steps", fmt::format("{}, the strategies in turn; medians", f.steps)}};
  Figure table{"The strategies side by side", "", "", table_of(f)};
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
