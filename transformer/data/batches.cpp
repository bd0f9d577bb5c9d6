#include "transformer/data/batches.hpp"

#include "base/error.hpp"
#include "base/random.hpp"

namespace ringside::transformer {

Share share_of_batch(std::int64_t batch, int rank, int ranks) {
  require(batch >= 1, "the batch is {} sequences, but a step needs at least 1", batch);
  require(batch % ranks == 0,
          "a batch of {} sequences does not divide by {} ranks: choose a multiple of {}, so that "
          "every rank reads equally much",
          batch, ranks, ranks);
  return {rank * (batch / ranks), batch / ranks};
}

Batches::Batches(const PackedTokens& text, std::int64_t length, std::uint64_t seed)
    : text_(&text), length_(length), seed_(seed) {
  require(length >= 1, "a sequence needs at least 1 token, not {}", length);
  require(text.size() > static_cast<std::uint64_t>(length),
          "a sequence of {0} {2} needs {3} {2} of text, but there are {1}: give more text or a "
          "shorter sequence",
          length, text.size(), text.bytes_per_id() == 1 ? "bytes" : "tokens", length + 1);
}

Batch Batches::empty(Share share, std::span<const TokenRange> tokens) const {
  Batch batch{.sequences = share.count, .length = length_, .input = {}, .target = {}};
  if (tokens.empty()) return batch;
  batch.length = 0;
  for (const TokenRange& range : tokens) batch.length += range.count;
  return batch;
}

Batch Batches::draw(std::int64_t step, Share share, std::span<const TokenRange> tokens) const {
  Batch batch = empty(share, tokens);
  const std::uint64_t starts =
      text_->size() - static_cast<std::uint64_t>(length_);  // 0 .. size - length - 1
  for (std::int64_t i = share.first; i < share.first + share.count; ++i) {
    append(random_below(starts, seed_, static_cast<std::uint64_t>(step),
                        static_cast<std::uint64_t>(i)),
           tokens, batch);
  }
  return batch;
}

std::int64_t Batches::windows() const {
  return static_cast<std::int64_t>(text_->size() - 1) / length_;
}

Batch Batches::consecutive(Share share, std::span<const TokenRange> tokens) const {
  require(share.first >= 0 && share.first + share.count <= windows(),
          "windows {} to {} were asked for, but the text holds {}", share.first,
          share.first + share.count - 1, windows());
  Batch batch = empty(share, tokens);
  for (std::int64_t i = share.first; i < share.first + share.count; ++i)
    append(static_cast<std::uint64_t>(i * length_), tokens, batch);
  return batch;
}

void Batches::append(std::uint64_t start, std::span<const TokenRange> tokens, Batch& batch) const {
  const TokenRange all{0, length_};
  for (const auto& [first, count] : tokens.empty() ? std::span(&all, 1) : tokens) {
    const std::uint64_t from = start + static_cast<std::uint64_t>(first);
    text_->append_to(batch.input, from, static_cast<std::size_t>(count));
    text_->append_to(batch.target, from + 1, static_cast<std::size_t>(count));
  }
}

}  // namespace ringside::transformer
