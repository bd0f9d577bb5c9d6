// The reference files, which make_tokenizer_reference.py wrote with Hugging Face's tokenizers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/text.hpp"

namespace ringside::testing {

inline constexpr const char* reference_names[] = {"gpt2",
                                                  "llama3",
                                                  "digits",
                                                  "prefix_space",
                                                  "split_removed",
                                                  "split_isolated",
                                                  "split_contiguous",
                                                  "split_merged_with_previous",
                                                  "split_merged_with_next"};

inline std::filesystem::path reference(const std::string& name) {
  return std::filesystem::path(RINGSIDE_TOKENIZER_REFERENCE) / name;
}

inline std::vector<std::string> reference_texts() {
  return Json::parse(read_file(reference("texts.json"))).get<std::vector<std::string>>();
}

}  // namespace ringside::testing
