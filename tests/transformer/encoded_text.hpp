// Text as tokens, for tests: what `ringside tokenize --data` writes, without a tokenizer. The most
// frequent pairs of bytes are tokens, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "tests/transformer/small_model.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/data/corpus_file.hpp"

namespace ringside::tests {

class PairTokenizer {
 public:
  // Has `size` tokens: the 256 bytes, and pairs of small_text().
  explicit PairTokenizer(std::int32_t size) : size_(size) {
    std::map<std::string, int> counts;
    const transformer::Bytes text = small_text();
    for (std::size_t i = 0; i + 1 < text.size(); ++i)
      ++counts[{static_cast<char>(text[i]), static_cast<char>(text[i + 1])}];
    std::vector<std::pair<int, std::string>> frequent;
    for (const auto& [pair, count] : counts) frequent.emplace_back(-count, pair);
    std::sort(frequent.begin(), frequent.end());
    for (std::int32_t id = 256; id < size; ++id)
      ids_[frequent.at(static_cast<std::size_t>(id) - 256).second] = id;
  }

  transformer::Tokens encode(const std::vector<std::int32_t>& bytes) const {
    transformer::Tokens ids;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto found =
          i + 1 == bytes.size()
              ? ids_.end()
              : ids_.find({static_cast<char>(bytes[i]), static_cast<char>(bytes[i + 1])});
      ids.push_back(found == ids_.end() ? bytes[i] : found->second);
      if (found != ids_.end()) ++i;
    }
    return ids;
  }

  // The text of its tokenizer.json, which nobody reads.
  std::string json() const { return "{\"pairs\": " + std::to_string(size_ - 256) + "}\n"; }

  Json vocabulary_json() const {
    std::vector<std::uint32_t> counts(static_cast<std::size_t>(size_), 2);
    std::fill_n(counts.begin(), 256, 1);
    return {{"fingerprint", 1000 + size_},
            {"beginning", std::vector<std::int32_t>{'\n'}},
            {"byte_counts", counts}};
  }

  transformer::Vocabulary vocabulary() const { return {vocabulary_json(), json(), "mine"}; }

  // Writes `file`, which is NAME.u16, and NAME.corpus.json.
  void write(const std::filesystem::path& file, const transformer::Bytes& text) const {
    const transformer::Corpus bytes(text);
    transformer::Tokens ids = encode(bytes.training().all());
    const transformer::Tokens held_out = encode(bytes.validation().all());
    const Json json = {{"files", 1},
                       {"bytes", text.size()},
                       {"held_out_bytes", bytes.held_out_bytes()},
                       {"training_tokens", ids.size()},
                       {"held_out_tokens", held_out.size()},
                       {"text", bytes.fingerprint()},
                       {"vocabulary", vocabulary_json()},
                       {"tokenizer", this->json()}};
    std::ofstream(std::filesystem::path(file).replace_extension(".corpus.json")) << json.dump();
    ids.insert(ids.end(), held_out.begin(), held_out.end());
    transformer::write_tokens(file, ids);
  }

 private:
  std::int32_t size_;
  std::map<std::string, std::int32_t> ids_;
};

}  // namespace ringside::tests
