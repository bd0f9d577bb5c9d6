#include "transformer/sample.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/kernels/copy.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace ringside::transformer {

using autograd::Tensor;

namespace {

constexpr std::uint64_t sample_stream = 0x73616d706c65;  // "sample"

std::vector<double> values_of(const Tensor& row) {
  std::vector<double> values;
  autograd::dispatch(row.dtype(), "generate", [&](auto zero) {
    const auto numbers = row.values<decltype(zero)>();
    values.assign(numbers.begin(), numbers.end());
  });
  return values;
}

// A text that a model reads as it grows.
class Reader {
 public:
  explicit Reader(const Model& model)
      : model_(model),
        past_(model.empty_past()),
        window_(static_cast<std::size_t>(model.config().sequence)) {}

  // The logits for what comes after the last of `tokens`, which are those of the last call and
  // more.
  std::vector<double> next_logits(const std::vector<std::int32_t>& tokens) {
    if (tokens.size() - begin_ > window_) start_anew(tokens.size());
    const auto seen = begin_ + static_cast<std::size_t>(past_.front().seen);
    const std::vector<std::int32_t> unseen(tokens.begin() + static_cast<std::ptrdiff_t>(seen),
                                           tokens.end());
    const auto count = static_cast<std::int64_t>(unseen.size());
    const Tensor hidden = model_.hidden(Tensor::from(unseen, {1, count}), &past_);
    return values_of(
        autograd::to_compute_dtype(model_.head(hidden.narrow(1, count - 1, 1)).contiguous())
            .to(autograd::Device::cpu));
  }

 private:
  void start_anew(std::size_t length) {
    const bool has_seen = past_.front().seen > 0;
    begin_ = length - (has_seen ? std::max<std::size_t>(window_ / 2, 1) : window_);
    for (Past& past : past_) past.seen = 0;
  }

  const Model& model_;
  std::vector<Past> past_;
  std::size_t window_, begin_ = 0;  // the first token that is seen
};

}  // namespace

std::int32_t pick_token(std::span<const double> logits, const SampleOptions& options,
                        double uniform) {
  require(!logits.empty(), "there are no logits to draw a token from");
  require(std::isfinite(options.temperature) && options.temperature >= 0,
          "the temperature is {}, but it must be 0 or more", options.temperature);
  require(options.top_k >= 0, "top_k is {}, but it must be 0 (all tokens) or more", options.top_k);
  require(
      std::none_of(logits.begin(), logits.end(), [](double logit) { return std::isnan(logit); }),
      "the model's logits are not numbers: its training has diverged");

  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(order.size()))
    order.resize(static_cast<std::size_t>(options.top_k));

  std::vector<double> odds;  // of each token in `order`, relative to the likeliest
  for (const std::int32_t token : order)
    odds.push_back(std::exp((logits[token] - logits[order[0]]) / options.temperature));
  double left = uniform * std::accumulate(odds.begin(), odds.end(), 0.0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    left -= odds[i];
    if (left < 0) return order[i];
  }
  return order.back();  // rounding has eaten the rest
}

std::vector<std::int32_t> generate(const Model& model, std::vector<std::int32_t> tokens,
                                   std::int64_t count, const SampleOptions& options) {
  require(!tokens.empty(), "a text needs a beginning of at least one token");
  const autograd::NoGrad no_history;
  const std::size_t start = tokens.size();
  Reader reader(model);
  for (std::int64_t i = 0; i < count; ++i) {
    const double uniform =
        random_uniform(options.seed, sample_stream, static_cast<std::uint64_t>(i));
    tokens.push_back(pick_token(reader.next_logits(tokens), options, uniform));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(start), tokens.end()};
}

}  // namespace ringside::transformer
