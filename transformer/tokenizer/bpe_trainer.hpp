// The BPE trainer: learns a vocabulary from a text by merging the most frequent pair of
// neighbouring tokens, again and again.
//
//     words with counts       low 5   lower 2   newest 6   widest 3     (the example of Sennrich,
//     pairs with counts       e s 9   s t 9   w e 8   l o 7 ...         Haddow, Birch, 2016)
//     merge e s -> es         counts of "w e", "d e" and "s t" fall; "w es", "d es" and "es t"
//                             are new; no other pair changes
//     merge es t -> est       and so on
//
// The result equals that of BpeTrainer in Hugging Face's tokenizers, token by token. Of equally
// frequent pairs, the one with the smaller ids is merged first. Special tokens get the first ids,
// then the 256 bytes in the order of their letters, then the merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/tokenizer/tokenizer.hpp"

namespace ringside::transformer {

struct BpeTrainerOptions {
  // Number of tokens, including special tokens and the 256 bytes.
  std::int64_t vocabulary = 10000;

  // Rarer pairs are not merged, even if the vocabulary stays smaller.
  std::int64_t min_frequency = 2;

  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // get the ids 0, 1, ...

  // The regular expression whose matches are words; empty: that of GPT-2 (pre_tokenizer.hpp).
  std::string expression = {};
};

// Learns from `text`, which may be any bytes. Deterministic. Throws Error if the vocabulary has no
// room for the bytes, a special token is empty or repeated, or the expression is not supported.
Tokenizer train_bpe(std::string_view text, const BpeTrainerOptions& options = {});

}  // namespace ringside::transformer
