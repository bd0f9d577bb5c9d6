// Learning a vocabulary from a text: which pairs of neighbours to merge, again and again the most
// frequent one.
//
//     words and their counts     low 5   lower 2   newest 6   widest 3      (the example of Sennrich, Haddow, Birch, 2016)
//     pairs                      e s 9   s t 9   w e 8   l o 7 ...
//     merge e s -> es:           pairs "w e" and "d e" lose a neighbour, "w es", "d es" and "es t" are new; nothing else changes
//     merge es t -> est, and so on
//
// The result is that of the BpeTrainer in Hugging Face's tokenizers, token by token: of pairs that
// are equally frequent the one with the smaller ids is merged first; ids go first to special
// tokens, then to the 256 bytes in the order of their letters, then to merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/tokenizer/tokenizer.hpp"

namespace ringside::transformer {

struct BpeTrainerOptions {
  std::int64_t vocabulary = 10000;  // with the special tokens and the 256 bytes
  std::int64_t min_frequency =
      2;  // a pair that is rarer is not merged; the vocabulary is smaller then
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // ids 0, 1, ...
  std::string expression = {};  // cuts the text into words; empty: GPT-2's (pre_tokenizer.hpp)
};

// Learns from `text`, any bytes, taken as one text. Deterministic. Throws Error if the vocabulary
// has no room for the bytes, a special token is empty or named twice, or the expression cannot be
// used.
Tokenizer train_bpe(std::string_view text, const BpeTrainerOptions& options = {});

}  // namespace ringside::transformer
