#include "transformer/tokenizer/bpe_trainer.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "transformer/tokenizer/alphabet.hpp"

namespace ringside::transformer {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto key = std::uint64_t{static_cast<std::uint32_t>(pair.first)} << 32 |
                     static_cast<std::uint32_t>(pair.second);
    const std::uint64_t mixed = key * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(mixed ^ mixed >> 32);
  }
};

// A word of the text, as the tokens into which it has been merged so far.
struct Word {
  std::vector<std::int32_t> tokens;
  std::int64_t count = 0;
};

// A pair that could be merged, and the words that contain it. `frequency` is that at the time when
// the candidate entered the queue.
struct Candidate {
  std::int64_t frequency = 0;
  Pair pair;
  std::vector<std::uint32_t> words;
  // The number of merges before it entered the queue. A pair can be queued twice, for words that
  // got it at different times.
  std::size_t since = 0;
  bool operator<(const Candidate& other) const {
    return std::tie(frequency, other.pair, other.since) < std::tie(other.frequency, pair, since);
  }
};

class BpeTrainer {
 public:
  BpeTrainer(std::string_view text, const BpeTrainerOptions& options) : options_(options) {
    add_first_tokens();
    pre_tokenizer_ = byte_level_pre_tokenizer(options.expression);
    count_words(text);
    count_pairs();
  }

  TokenizerParts run() {
    while (static_cast<std::int64_t>(letters_.size()) < options_.vocabulary && !queue_.empty()) {
      Candidate best = take_best();
      const std::int64_t now = frequency_[best.pair];
      if (best.frequency != now) {  // other merges have changed it
        best.frequency = now;
        put_back(std::move(best));
        continue;
      }
      if (now < std::max<std::int64_t>(1, options_.min_frequency)) break;
      merge(best);
    }
    return parts();
  }

 private:
  void add_first_tokens() {
    for (const std::string& special : options_.special_tokens) {
      require(!special.empty(), "a special token is empty");
      require(!ids_.contains(special), "the special token \"{}\" is given twice", special);
      id_of(special);
    }
    for (const std::uint8_t byte : bytes_in_order_of_letters()) {
      const char character = static_cast<char>(byte);
      id_of_byte_[byte] = id_of(to_letters({&character, 1}));
    }
    require(
        options_.vocabulary >= static_cast<std::int64_t>(letters_.size()),
        "a vocabulary of {} has no room for the 256 bytes and {} special {}: it needs at least {}",
        options_.vocabulary, options_.special_tokens.size(),
        options_.special_tokens.size() == 1 ? "token" : "tokens", letters_.size());
  }

  // The id of the token with these letters, which is new if there is none yet. (Two merges may make
  // the same token.)
  std::int32_t id_of(const std::string& letters) {
    const auto [entry, is_new] =
        ids_.try_emplace(letters, static_cast<std::int32_t>(letters_.size()));
    if (is_new) letters_.push_back(letters);
    return entry->second;
  }

  void count_words(std::string_view text) {
    std::unordered_map<std::string_view, std::size_t> known;
    PreTokenizer(pre_tokenizer_).words(text, [&](std::string_view word) {
      const auto [entry, is_new] = known.try_emplace(word, words_.size());
      if (is_new) {
        words_.emplace_back();
        for (const char c : word)
          words_.back().tokens.push_back(id_of_byte_[static_cast<std::uint8_t>(c)]);
      }
      ++words_[entry->second].count;
    });
  }

  void count_pairs() {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const auto& tokens = words_[w].tokens;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) add({tokens[i], tokens[i + 1]}, w);
    }
    queue_new_pairs();
  }

  // Counts one more occurrence of the pair, in word `w`.
  void add(Pair pair, std::uint32_t w) {
    frequency_[pair] += words_[w].count;
    std::vector<std::uint32_t>& where = new_in_[pair];
    if (where.empty() || where.back() != w) where.push_back(w);
  }

  void queue_new_pairs() {
    for (auto& [pair, where] : new_in_) {
      const std::int64_t frequency = frequency_[pair];
      if (frequency > 0) put_back({frequency, pair, std::move(where), merges_.size()});
    }
    new_in_.clear();
  }

  void put_back(Candidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end());
  }

  Candidate take_best() {
    std::pop_heap(queue_.begin(), queue_.end());
    Candidate best = std::move(queue_.back());
    queue_.pop_back();
    return best;
  }

  // The frequency of the merged pair itself is not lowered. If another merge makes the same token,
  // the pair can appear again, and then counts as in Hugging Face's trainer.
  void merge(const Candidate& best) {
    const auto [left, right] = best.pair;
    const std::int32_t merged =
        id_of(letters_[static_cast<std::size_t>(left)] + letters_[static_cast<std::size_t>(right)]);
    merges_.push_back(best.pair);
    for (const std::uint32_t w : best.words) merge_in_word(w, best.pair, merged);
    queue_new_pairs();
  }

  // Merges from left to right, in place. The first `kept` tokens are done, and token i is next.
  //
  //     ... before | left right | after ...     loses (before, left) and (right, after)
  //     ... before |   merged   | after ...     gains (before, merged) and (merged, after)
  void merge_in_word(std::uint32_t w, Pair pair, std::int32_t merged) {
    std::vector<std::int32_t>& tokens = words_[w].tokens;
    const std::int64_t count = words_[w].count;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i + 1 == tokens.size() || tokens[i] != pair.first || tokens[i + 1] != pair.second) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        frequency_[{tokens[kept - 1], pair.first}] -= count;
        add({tokens[kept - 1], merged}, w);
      }
      if (i + 2 < tokens.size()) {
        frequency_[{pair.second, tokens[i + 2]}] -= count;
        add({merged, tokens[i + 2]}, w);
      }
      tokens[kept++] = merged;
      ++i;
    }
    tokens.resize(kept);
  }

  TokenizerParts parts() {
    TokenizerParts parts;
    for (std::size_t id = 0; id < letters_.size(); ++id)
      parts.vocabulary.emplace_back(letters_[id], static_cast<std::int32_t>(id));
    for (const auto& [left, right] : merges_)
      parts.merges.emplace_back(letters_[static_cast<std::size_t>(left)],
                                letters_[static_cast<std::size_t>(right)]);
    for (std::size_t i = 0; i < options_.special_tokens.size(); ++i)
      parts.added.push_back({.content = options_.special_tokens[i],
                             .id = static_cast<std::int32_t>(i),
                             .special = true});
    parts.pre_tokenizer = pre_tokenizer_.dump();
    parts.post_processor = "null";
    parts.decoder =
        R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
    return parts;
  }

  const BpeTrainerOptions& options_;
  Json pre_tokenizer_;
  std::array<std::int32_t, 256> id_of_byte_{};
  std::vector<std::string> letters_;  // by id
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> frequency_;
  // Pairs that have appeared since the queue was last filled, and the words that contain them.
  std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> new_in_;
  std::vector<Candidate> queue_;  // a heap
  std::vector<Pair> merges_;
};

}  // namespace

Tokenizer train_bpe(std::string_view text, const BpeTrainerOptions& options) {
  return Tokenizer(BpeTrainer(text, options).run());
}

}  // namespace ringside::transformer
