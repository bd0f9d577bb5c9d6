#include "transformer/inference/generation.hpp"

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
  autograd::dispatch(row.dtype(), "generate", [&]<class T>(T) {
    const std::span<T> numbers = row.values<T>();
    values.assign(numbers.begin(), numbers.end());
  });
  return values;
}

// Feeds a growing text to a model and caches what the model has read.
class IncrementalReader {
 public:
  explicit IncrementalReader(const Model& model)
      : model_(model),
        caches_(model.empty_kv_cache()),
        window_(static_cast<std::size_t>(model.config().sequence)) {}

  // The logits of the token after the last of `tokens`. `tokens` are those of the previous call
  // followed by at least one more.
  std::vector<double> next_logits(const std::vector<std::int32_t>& tokens) {
    if (tokens.size() - begin_ > window_) move_window(tokens.size());
    const auto cached = begin_ + static_cast<std::size_t>(caches_.front().length);
    const std::vector<std::int32_t> uncached(tokens.begin() + static_cast<std::ptrdiff_t>(cached),
                                             tokens.end());
    const auto count = static_cast<std::int64_t>(uncached.size());
    const Tensor hidden = model_.hidden(Tensor::from(uncached, {1, count}), &caches_);
    return values_of(
        autograd::to_compute_dtype(model_.head(hidden.narrow(1, count - 1, 1)).contiguous())
            .to(autograd::Device::cpu));
  }

 private:
  // The window is full: keeps its last half, or the end of a prompt that is too long. Cached keys
  // are rotated by their old positions, so the caches are emptied.
  void move_window(std::size_t length) {
    const bool has_read = caches_.front().length > 0;
    begin_ = length - (has_read ? std::max<std::size_t>(window_ / 2, 1) : window_);
    for (KvCache& cache : caches_) cache.length = 0;
  }

  const Model& model_;
  std::vector<KvCache> caches_;
  std::size_t window_;     // most tokens that the model sees
  std::size_t begin_ = 0;  // index of the first token that it sees
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

  // Probabilities of the tokens in `order`, relative to the likeliest.
  std::vector<double> probabilities;
  for (const std::int32_t token : order)
    probabilities.push_back(std::exp((logits[token] - logits[order[0]]) / options.temperature));
  double left = uniform * std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    left -= probabilities[i];
    if (left < 0) return order[i];
  }
  return order.back();  // rounding errors can leave a remainder
}

std::vector<std::int32_t> generate(const Model& model, std::vector<std::int32_t> tokens,
                                   std::int64_t count, const SampleOptions& options) {
  require(!tokens.empty(), "a prompt needs at least one token");
  const autograd::NoGrad no_grad;
  const std::size_t start = tokens.size();
  IncrementalReader reader(model);
  for (std::int64_t i = 0; i < count; ++i) {
    const double uniform =
        random_uniform(options.seed, sample_stream, static_cast<std::uint64_t>(i));
    tokens.push_back(pick_token(reader.next_logits(tokens), options, uniform));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(start), tokens.end()};
}

}  // namespace ringside::transformer
