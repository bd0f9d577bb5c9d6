#include "transformer/data/corpus.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "transformer/data/corpus_file.hpp"
#include "transformer/data/fingerprint.hpp"

namespace ringside::transformer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_block = 64 * 1024;
constexpr std::size_t blocks_per_held_out = 20;

// Appends the file's bytes to `into` and returns 0. If the file cannot be read, appends nothing and
// returns an errno. It reads to the end instead of asking for the size, so a pipe works too.
int append_file(const fs::path& path, Bytes& into) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return errno != 0 ? errno : EIO;
  const std::size_t before = into.size();
  constexpr std::size_t piece = 64 * 1024;
  std::size_t end = before;
  while (file) {
    into.resize(end + piece);
    file.read(reinterpret_cast<char*>(into.data()) + end, piece);
    end += static_cast<std::size_t>(file.gcount());
  }
  into.resize(file.bad() ? before : end);
  if (!file.bad()) return 0;
  return errno != 0 ? errno : EIO;
}

// The test that git uses: text has no NUL byte near its beginning.
bool looks_like_text(std::span<const std::uint8_t> bytes) {
  const auto head = bytes.first(std::min<std::size_t>(bytes.size(), 8 * 1024));
  return std::find(head.begin(), head.end(), 0) == head.end();
}

// Sorted by path, because the order of a directory differs between machines.
std::vector<fs::path> regular_files_below(const fs::path& directory, int& skipped) {
  std::vector<fs::path> files;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(
      directory, fs::directory_options::skip_permission_denied, error);
  require(!error, "cannot read the directory {}: {}", directory.string(), error.message());
  while (entry != fs::recursive_directory_iterator()) {
    std::error_code unreadable;
    if (entry->is_regular_file(unreadable))
      files.push_back(entry->path());
    else if (!entry->is_directory(unreadable))
      ++skipped;
    entry.increment(error);
    require(!error, "cannot continue reading the directory {}: {}", directory.string(),
            error.message());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void append_directory(const fs::path& directory, Text& text) {
  const std::size_t before = text.bytes.size();
  for (const fs::path& path : regular_files_below(directory, text.skipped)) {
    const std::size_t start = text.bytes.size();
    const bool read = append_file(path, text.bytes) == 0;
    if (read && looks_like_text(std::span(text.bytes).subspan(start))) {
      ++text.files;
      continue;
    }
    text.bytes.resize(start);
    ++text.skipped;
  }
  require(text.bytes.size() > before, "the directory {} holds no readable text",
          directory.string());
}

}  // namespace

Corpus::Corpus(const Bytes& text, int files) : files_(files), bytes_(text.size()) {
  Bytes training, validation;
  const std::size_t block =
      std::clamp<std::size_t>(text.size() / blocks_per_held_out, 1, largest_block);
  for (std::size_t start = 0, number = 0; start < text.size(); start += block, ++number) {
    Bytes& part = number % blocks_per_held_out == blocks_per_held_out - 1 ? validation : training;
    const std::size_t end = std::min(start + block, text.size());
    part.insert(part.end(), text.begin() + static_cast<std::ptrdiff_t>(start),
                text.begin() + static_cast<std::ptrdiff_t>(end));
  }
  held_out_bytes_ = validation.size();
  Fingerprint fingerprint;
  for (const Bytes* part : {&training, &validation}) fingerprint.add(*part);
  fingerprint_ = fingerprint.value();
  training_ = PackedTokens(std::move(training));
  validation_ = PackedTokens(std::move(validation));
}

Corpus Corpus::of_files(const std::vector<fs::path>& token_files) {
  Corpus corpus;
  Tokens training, held_out;
  Fingerprint of_texts;
  for (const fs::path& path : token_files) {
    CorpusFile file = read_corpus_file(path);
    const Tokens ids = read_corpus_tokens(path, file);
    const auto end = ids.begin() + static_cast<std::ptrdiff_t>(file.training_tokens);
    training.insert(training.end(), ids.begin(), end);
    held_out.insert(held_out.end(), end, ids.end());
    corpus.files_ += file.files;
    corpus.bytes_ += file.bytes;
    corpus.held_out_bytes_ += file.held_out_bytes;
    of_texts.add(std::to_string(file.text) + ' ');
    corpus.fingerprint_ = token_files.size() == 1 ? file.text : of_texts.value();
    if (path == token_files.front()) corpus.vocabulary_ = std::move(file.vocabulary);
    require(path == token_files.front() ||
                file.vocabulary.fingerprint() == corpus.vocabulary_.fingerprint(),
            "{} and {} are of different tokenizers: encode both texts with one",
            token_files.front().string(), path.string());
  }
  try {
    corpus.training_ = PackedTokens(training, corpus.vocabulary_.size());
    corpus.validation_ = PackedTokens(held_out, corpus.vocabulary_.size());
  } catch (const Error& problem) {
    fail("the tokens in {} cannot be used: {}", token_files.front().string(), problem.what());
  }
  return corpus;
}

Corpus read_corpus(const std::vector<fs::path>& paths) {
  const auto encoded = std::ranges::count_if(paths, is_corpus_file);
  require(encoded == 0 || encoded == std::ssize(paths),
          "--data has text and files of tokens: encode the text, too, with `ringside tokenize`");
  if (encoded > 0) return Corpus::of_files(paths);
  const Text text = read_text(paths);
  return Corpus(text.bytes, text.files);
}

Text read_text(const std::vector<fs::path>& paths) {
  Text text;
  for (const fs::path& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    require(fs::exists(status), "there is no file or directory {}{}", path.string(),
            error && error != std::errc::no_such_file_or_directory ? ": " + error.message() : "");
    if (fs::is_directory(status)) {
      append_directory(path, text);
      continue;
    }
    const std::size_t before = text.bytes.size();
    const int failure = append_file(path, text.bytes);
    require(failure == 0, "cannot read {}: {}", path.string(), std::strerror(failure));
    require(text.bytes.size() > before, "{} is empty: there is nothing to learn from it",
            path.string());
    ++text.files;
  }
  require(!text.bytes.empty(), "no text was given");
  return text;
}

fs::path default_corpus() {
  constexpr std::string_view place = RINGSIDE_STANDARD_LIBRARY_HEADERS;
  require(!place.empty(),
          "the C++ standard library headers were not found when this program was built: name a "
          "text with --data");
  // A wheel brings them along, and says where they are from the folder of its programs.
  const fs::path programs = fs::read_symlink("/proc/self/exe").parent_path(),
                 headers = (programs / place).lexically_normal();
  std::error_code error;
  if (fs::is_directory(headers, error)) return headers;
  fs::path others;  // an exported course runs on other releases, which have other versions
  for (const auto& version : fs::directory_iterator("/usr/include/c++", error))
    others = std::max(others, version.path());
  require(
      !others.empty(),
      "the C++ standard library headers at {}, which this program was built with, are gone, and "
      "/usr/include/c++ has no others: name a text with --data",
      headers.string());
  return others;
}

}  // namespace ringside::transformer
