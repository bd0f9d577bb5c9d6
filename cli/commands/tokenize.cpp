// `ringside tokenize`: encodes text as tokens, decodes tokens, and trains tokenizers.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/atomic_file.hpp"
#include "base/clock.hpp"
#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/report/json_file.hpp"
#include "cli/report/numbers.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/tokenizer/bpe_trainer.hpp"
#include "transformer/tokenizer/tokenizer_file.hpp"

namespace ringside::cli {
namespace {

namespace fs = std::filesystem;
using transformer::Tokenizer;
using Ids = std::vector<std::int32_t>;

constexpr const char* more = R"(
Byte-level byte-pair encoding, as in GPT-2, Llama 3 and many others. A
tokenizer is Hugging Face's tokenizer.json or a folder with one: the ids are
the same there, and Hugging Face opens what Ringside trains. Any bytes can be
encoded, UTF-8 or not.

Files of ids, recognised by their names; `ringside eval --tokens` reads them
too:
  NAME.u16    one stream of little-endian two-byte ids; for vocabularies up to
              65536
  NAME.u32    the same with four bytes
  NAME.json   a list, [464, 262, 1001]

Examples:
  ringside tokenize --train 10000 --save tokenizer/
      learn 10000 tokens from the C++ standard library
  ringside tokenize --tokenizer tokenizer/ "const char* text"
      print the ids and the bytes of each
  ringside tokenize --tokenizer tokenizer/ --decode 464,262,1001
  ringside tokenize --tokenizer tokenizer/ --file book.txt --out book.u16)";

struct Arguments {
  std::optional<std::int64_t> train;
  std::vector<std::string> data, texts;
  std::string save, tokenizer, file, out, json;
  std::vector<std::int32_t> decode;
  transformer::BpeTrainerOptions options;
  bool plain = false, skip_special = false;
};

std::string_view as_text(const transformer::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

double per(double a, std::size_t b) {
  return b == 0 ? 0 : a / static_cast<double>(b);
}

// The bytes on one line, in quotes, safe for a terminal.
std::string quoted(const std::string& bytes) {
  return fmt::format("\"{}\"", printable_line(bytes));
}

void train(const Arguments& args) {
  const auto start = Clock::now();
  transformer::BpeTrainerOptions options = args.options;
  options.vocabulary = *args.train;
  const auto text = transformer::read_text(
      args.data.empty() ? std::vector{transformer::default_corpus()}
                        : std::vector<fs::path>(args.data.begin(), args.data.end()));
  const Tokenizer tokenizer = transformer::train_bpe(as_text(text.bytes), options);
  const double seconds = seconds_since(start);
  const fs::path saved = transformer::save_tokenizer(args.save, tokenizer);
  const std::size_t tokens = tokenizer.encode(as_text(text.bytes)).size();
  fmt::print(file_beside(args.json), "{} tokens learnt from {} files, {} bytes, in {:.1f} s\n",
             tokenizer.vocabulary(), text.files, text.bytes.size(), seconds);
  fmt::print(file_beside(args.json), "the text is {} tokens: {:.2f} bytes per token\n", tokens,
             per(static_cast<double>(text.bytes.size()), tokens));
  fmt::print(file_beside(args.json), "saved    {}\n", saved.string());
  if (tokenizer.vocabulary() < *args.train)
    fmt::print(file_beside(args.json),
               "These are all: no other pair occurs {} times or more (--min-frequency).\n",
               options.min_frequency);
  if (!args.json.empty()) {
    write_json_file(args.json,
                    {{"vocabulary", tokenizer.vocabulary()},
                     {"files", text.files},
                     {"bytes", text.bytes.size()},
                     {"tokens", tokens},
                     {"bytes_per_token", per(static_cast<double>(text.bytes.size()), tokens)},
                     {"train_s", seconds}});
  }
}

template <class Id>
void write_stream(const std::string& path, const Ids& ids) {
  std::vector<Id> stream;
  for (const std::int32_t id : ids) {
    require(std::in_range<Id>(id), "the id {} does not fit into {} bytes: write to a file NAME.u32",
            id, sizeof(Id));
    stream.push_back(static_cast<Id>(id));
  }
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(stream)));
  file.commit();
}

void write_ids(const std::string& path, const Ids& ids) {
  const std::string kind = fs::path(path).extension();
  if (kind == ".u16") return write_stream<std::uint16_t>(path, ids);
  if (kind == ".u32") return write_stream<std::uint32_t>(path, ids);
  if (kind != ".json")
    throw UsageError(fmt::format(
        "the name of {} must end in .u16, .u32 or .json, which determines the format", path));
  AtomicFile file(path);
  file.write(Json(ids).dump() + "\n");
  file.commit();
}

void write_figures(const Arguments& args, const Tokenizer& tokenizer, std::size_t bytes,
                   const Ids& ids, bool each) {
  if (args.json.empty()) return;
  Json figures = {{"vocabulary", tokenizer.vocabulary()},
                  {"bytes", bytes},
                  {"tokens", ids.size()},
                  {"bytes_per_token", per(static_cast<double>(bytes), ids.size())}};
  if (each) figures["ids"] = ids;
  write_json_file(args.json, figures);
}

std::string summary(std::size_t tokens, std::size_t bytes) {
  return fmt::format(
      "{} for {}, {:.2f} bytes per token", counted(static_cast<std::int64_t>(tokens), "token"),
      counted(static_cast<std::int64_t>(bytes), "byte"), per(static_cast<double>(bytes), tokens));
}

void encode(const Arguments& args, const Tokenizer& tokenizer) {
  const std::string text = fmt::format("{}", fmt::join(args.texts, " "));
  Ids ids = tokenizer.encode(text);
  if (!args.plain) ids = tokenizer.with_special_tokens(ids);
  for (const std::int32_t id : ids)
    fmt::print(file_beside(args.json), "{:>8}  {}\n", id, quoted(tokenizer.bytes_of(id)));
  fmt::print(file_beside(args.json), "{}\n", summary(ids.size(), text.size()));
  if (!args.out.empty()) write_ids(args.out, ids);
  write_figures(args, tokenizer, text.size(), ids, true);
}

void encode_file(const Arguments& args, const Tokenizer& tokenizer) {
  const auto text = transformer::read_text({args.file});
  const auto start = Clock::now();
  Ids ids = tokenizer.encode(as_text(text.bytes));
  if (!args.plain) ids = tokenizer.with_special_tokens(ids);
  const double seconds = seconds_since(start);
  if (!args.out.empty()) write_ids(args.out, ids);
  fmt::print(file_beside(args.json), "{}; {:.1f} MB/s\n", summary(ids.size(), text.bytes.size()),
             static_cast<double>(text.bytes.size()) / 1e6 / seconds);
  write_figures(args, tokenizer, text.bytes.size(), ids, false);
}

void decode(const Arguments& args, const Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.decode(args.decode, args.skip_special);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  if (isatty(STDOUT_FILENO)) std::fputc('\n', stdout);
}

void tokenize(const Arguments& args) {
  if (args.train) {
    if (!args.tokenizer.empty() || !args.texts.empty() || !args.file.empty() ||
        !args.decode.empty())
      throw UsageError(
          "--train makes a tokenizer: leave out --tokenizer, the text, --file and --decode");
    if (args.save.empty())
      throw UsageError("--train needs a place for the tokenizer: name it with --save");
    return train(args);
  }
  if (args.tokenizer.empty())
    throw UsageError("choose a tokenizer (--tokenizer FILE), or train one (--train N --save DIR)");
  if (!args.data.empty() || !args.save.empty())
    throw UsageError("--data and --save belong to --train");
  const int tasks = !args.texts.empty() + !args.file.empty() + !args.decode.empty();
  if (tasks != 1) throw UsageError("choose one task: a text, --file FILE or --decode IDS");
  const Tokenizer tokenizer = transformer::load_tokenizer(args.tokenizer);
  if (!args.texts.empty()) return encode(args, tokenizer);
  if (!args.file.empty()) return encode_file(args, tokenizer);
  decode(args, tokenizer);
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  const auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("tokenize", "Encode text as tokens, decode tokens, or train a tokenizer")
          ->footer(more);
  command->add_option("text", args->texts, "Text to encode; several texts are joined by spaces")
      ->type_name("TEXT");
  const auto option = [&](const char* group, const char* name, auto& value, const char* type,
                          const char* text) {
    return command->add_option(name, value, text)->type_name(type)->group(group);
  };
  constexpr const char* use = "Use a tokenizer";
  option(use, "--tokenizer", args->tokenizer, "PATH", "A tokenizer.json, or a folder with one");
  option(use, "--file", args->file, "FILE", "Encode a file, or all files of a folder, as one text");
  option(use, "--decode", args->decode, "IDS",
         "Print the bytes of these ids, for example 464,262,1001")
      ->delimiter(',');
  option(use, "--out", args->out, "FILE", "Write the ids to this file; formats: see below");
  command
      ->add_flag("--plain", args->plain,
                 "Leave out the tokens that the tokenizer adds around every text")
      ->group(use);
  command->add_flag("--skip-special", args->skip_special, "Leave out special tokens in --decode")
      ->group(use);
  constexpr const char* learn = "Train a tokenizer";
  option(learn, "--train", args->train, "N",
         "Learn N tokens, which include the 256 bytes and the special tokens");
  option(learn, "--data", args->data, "PATH",
         "Text files and directories of text files [the C++ standard library headers]");
  option(learn, "--save", args->save, "PATH",
         "Where to save: a file NAME.json, or a folder for tokenizer.json");
  option(learn, "--special", args->options.special_tokens, "TOKEN",
         "Special tokens, with ids from 0 [<|endoftext|>]");
  option(learn, "--min-frequency", args->options.min_frequency, "N",
         "Least number of occurrences of a pair to become a token [2]")
      ->check(at_least_one("occurrence"));
  option(learn, "--pattern", args->options.expression, "REGEX",
         "Regular expression of a word, in Hugging Face's syntax (Oniguruma) [GPT-2's]");
  command->add_option("--json", args->json, "Write the figures to this file")->type_name("FILE");
  command->callback([args] { tokenize(*args); });
}

}  // namespace ringside::cli
