// `ringside tokenize`: encodes text as tokens, decodes tokens, and trains tokenizers.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/text/printable.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/numbers.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/data/token_file.hpp"
#include "transformer/tokenizer/bpe_trainer.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

namespace ringside::cli {
namespace {

namespace fs = std::filesystem;
using transformer::Tokenizer;

struct TokenizeArguments {
  std::optional<std::int64_t> train;
  std::vector<std::string> texts;
  std::vector<fs::path> data;
  std::string save, tokenizer, file, out, json;
  std::vector<std::int32_t> decode;
  transformer::BpeTrainerOptions options;
  bool plain = false, skip_special = false;
};

std::string_view as_text(const transformer::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

double per(std::size_t a, std::size_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

// The bytes on one line, in quotes, safe for a terminal.
std::string quoted(const std::string& bytes) {
  return fmt::format("\"{}\"", printable_line(bytes));
}

void train(const TokenizeArguments& args) {
  std::FILE* const out = file_beside(args.json);
  const auto start = Clock::now();
  transformer::BpeTrainerOptions options = args.options;
  options.vocabulary = *args.train;
  const auto text = transformer::read_text(
      args.data.empty() ? std::vector{transformer::default_corpus()} : args.data);
  const Tokenizer tokenizer = transformer::train_bpe(as_text(text.bytes), options);
  const double seconds = seconds_since(start);
  const fs::path saved = transformer::save_tokenizer(args.save, tokenizer);
  const std::size_t tokens = tokenizer.encode(as_text(text.bytes)).size();
  fmt::print(out,
             "{} tokens learnt from {}, {} bytes, in {:.1f} s\n"
             "the text is {} tokens: {:.2f} bytes per token\n"
             "saved    {}\n",
             tokenizer.vocabulary(), counted(text.files, "file"), text.bytes.size(), seconds,
             tokens, per(text.bytes.size(), tokens), saved.string());
  if (tokenizer.vocabulary() < *args.train)
    fmt::print(out, "These are all: no other pair occurs {} times or more (--min-frequency).\n",
               options.min_frequency);
  if (args.json.empty()) return;
  write_json_file(args.json, {{"vocabulary", tokenizer.vocabulary()},
                              {"files", text.files},
                              {"bytes", text.bytes.size()},
                              {"tokens", tokens},
                              {"bytes_per_token", per(text.bytes.size(), tokens)},
                              {"train_s", seconds}});
}

// Encodes the bytes. A short text (`each`) is printed token by token, a file only counted.
void encode(const TokenizeArguments& args, const Tokenizer& tokenizer, std::string_view bytes,
            bool each) {
  const auto start = Clock::now();
  transformer::Tokens ids = tokenizer.encode(bytes);
  if (!args.plain) ids = tokenizer.with_special_tokens(ids);
  const double seconds = seconds_since(start);
  if (!args.out.empty()) transformer::write_tokens(args.out, ids);
  std::FILE* const out = file_beside(args.json);
  if (each)
    for (const std::int32_t id : ids)
      fmt::print(out, "{:>8}  {}\n", id, quoted(tokenizer.bytes_of(id)));
  fmt::print(out, "{} for {}, {:.2f} bytes per token", counted(std::ssize(ids), "token"),
             counted(std::ssize(bytes), "byte"), per(bytes.size(), ids.size()));
  fmt::print(
      out, "{}\n",
      each ? "" : fmt::format("; {:.1f} MB/s", static_cast<double>(bytes.size()) / 1e6 / seconds));
  if (args.json.empty()) return;
  Json figures = {{"vocabulary", tokenizer.vocabulary()},
                  {"bytes", bytes.size()},
                  {"tokens", ids.size()},
                  {"bytes_per_token", per(bytes.size(), ids.size())}};
  if (each) figures["ids"] = ids;
  write_json_file(args.json, figures);
}

void decode(const TokenizeArguments& args, const Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.decode(args.decode, args.skip_special);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  if (isatty(STDOUT_FILENO)) std::fputc('\n', stdout);
}

void tokenize(const TokenizeArguments& args) {
  if (args.train) {
    refuse_if(!args.tokenizer.empty() || !args.texts.empty() || !args.file.empty() ||
                  !args.decode.empty(),
              "--train makes a tokenizer: leave out --tokenizer, the text, --file and --decode");
    refuse_if(args.save.empty(), "--train needs a place for the tokenizer: name it with --save");
    return train(args);
  }
  refuse_if(args.tokenizer.empty(),
            "choose a tokenizer (--tokenizer FILE), or train one (--train N --save DIR)");
  refuse_if(!args.data.empty() || !args.save.empty(), "--data and --save belong to --train");
  const int tasks = !args.texts.empty() + !args.file.empty() + !args.decode.empty();
  refuse_if(!args.out.empty() && !transformer::is_token_file(args.out),
            "the name of {} must end in .u16, .u32 or .json, which determines the format",
            args.out);
  refuse_if(tasks != 1, "choose one task: a text, --file FILE or --decode IDS");
  const Tokenizer tokenizer = transformer::load_tokenizer(args.tokenizer);
  if (!args.texts.empty())
    return encode(args, tokenizer, fmt::format("{}", fmt::join(args.texts, " ")), true);
  if (!args.decode.empty()) return decode(args, tokenizer);
  encode(args, tokenizer, as_text(transformer::read_text({args.file}).bytes), false);
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "tokenize", "Encode text as tokens, decode tokens, or train a tokenizer", tokenize);
  option("text TEXT", args.texts, "Text to encode; several texts are joined by spaces");
  add_json_option(option, args.json);
  option.group("Use a tokenizer");
  option("--tokenizer PATH", args.tokenizer, "A tokenizer.json, or a folder with one");
  option("--file FILE", args.file, "Encode a file, or all files of a folder, as one text");
  option("--decode IDS", args.decode, "Print the bytes of these ids, for example 464,262,1001")
      .separated_by(',');
  option("--out FILE", args.out, "Write the ids to this file; formats: see below");
  option.flag("--plain", args.plain,
              "Leave out the tokens that the tokenizer adds around every text");
  option.flag("--skip-special", args.skip_special, "Leave out special tokens in --decode");
  option.group("Train a tokenizer");
  option("--train N", args.train,
         "Learn N tokens, which include the 256 bytes and the special tokens");
  option("--data PATH", args.data,
         "Text files and directories of text files [the C++ standard library headers]");
  option("--save PATH", args.save,
         "Where to save: a file NAME.json, or a folder for tokenizer.json");
  option("--special TOKEN", args.options.special_tokens,
         "Special tokens, with ids from 0 [<|endoftext|>]");
  option("--min-frequency N", args.options.min_frequency,
         "Least number of occurrences of a pair to become a token [2]", at_least_one("occurrence"));
  option("--pattern REGEX", args.options.expression,
         "Regular expression of a word, in Hugging Face's syntax (Oniguruma) [GPT-2's]");
}

}  // namespace ringside::cli
