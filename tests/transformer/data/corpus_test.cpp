#include "transformer/data/corpus.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/tokenizer/bpe_trainer.hpp"

using namespace ringside;
using namespace ringside::transformer;

namespace {

std::string read(const std::vector<std::filesystem::path>& paths) {
  const Bytes bytes = read_text(paths).bytes;
  return {bytes.begin(), bytes.end()};
}

std::string refusal(const std::vector<std::filesystem::path>& paths) {
  try {
    read_text(paths);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("files are read in the order given and directories in sorted order") {
  TemporaryDirectory directory;
  directory.write("text/b.txt", "B");
  directory.write("text/a/z.txt", "Z");
  directory.write("text/c", "C");
  const auto first = directory.write("first.txt", "1");
  CHECK(read({first, directory.path() / "text", first}) == "1ZBC1");
}

TEST_CASE("a directory's files that are not text are skipped and counted") {
  TemporaryDirectory directory;
  directory.write("a.txt", "text");
  directory.write("b.bin", std::string("\x7f"
                                       "ELF\0\0",
                                       6));
  std::filesystem::create_symlink(directory.path() / "nowhere", directory.path() / "dangling");
  const Text text = read_text({directory.path()});
  CHECK(text.bytes.size() == 4);
  CHECK(text.files == 1);
  CHECK(text.skipped == 2);
}

TEST_CASE("a missing, empty or unreadable text is refused with its path") {
  TemporaryDirectory directory;
  const std::string base = directory.path().string();
  CHECK(refusal({directory.path() / "nowhere.txt"}) ==
        "there is no file or directory " + base + "/nowhere.txt");
  CHECK(refusal({directory.write("empty.txt", "")}) ==
        base + "/empty.txt is empty: there is nothing to learn from it");
  std::filesystem::create_directory(directory.path() / "bare");
  CHECK(refusal({directory.path() / "bare"}) ==
        "the directory " + base + "/bare holds no readable text");
  CHECK(refusal({}) == "no text was given");
#ifdef __linux__
  CHECK(refusal({"/proc/self/mem"}) ==
        "cannot read /proc/self/mem: Input/output error");  // fails for root too
#endif
}

TEST_CASE("training and validation text share no byte and leave none out") {
  for (const std::size_t size : {1u, 19u, 20u, 21u, 399u, 40'000u, 3'000'001u}) {
    CAPTURE(size);
    Bytes text(size);
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<std::uint8_t>(i * 7919 >> 3);
    const Corpus corpus(text);
    CHECK(corpus.bytes() == size);
    auto both = corpus.training().all();
    corpus.validation().append_to(both, 0, corpus.validation().size());
    CHECK(std::is_permutation(both.begin(), both.end(), text.begin(),
                              [](int a, int b) { return a == b; }));
    if (size >= 20) {
      const double held_out =
          static_cast<double>(corpus.validation().size()) / static_cast<double>(size);
      CHECK((held_out > 0.02 && held_out < 0.06));
    }
  }
}

TEST_CASE("every twentieth block of 64 KiB is held out") {
  Bytes text(41 * 65536);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i / 65536);
  const Corpus corpus(text);
  REQUIRE(corpus.validation().size() == 2 * 65536);
  const auto training = corpus.training().all(), held_out = corpus.validation().all();
  CHECK(held_out.front() == 19);
  CHECK(held_out.back() == 39);
  CHECK(std::count(training.begin(), training.end(), 19) == 0);
}

TEST_CASE("a corpus with a tokenizer holds out the same bytes as one of bytes") {
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "word " + std::to_string(i * i % 997) + ", ";
  const Bytes text(words.begin(), words.end());
  const Vocabulary vocabulary(train_bpe(words, {.vocabulary = 400}));
  const Corpus bytes(text), tokens(text, vocabulary);
  CHECK(bytes.tokens_are_bytes());
  CHECK_FALSE(tokens.tokens_are_bytes());
  CHECK(bytes.vocabulary() == 256);
  CHECK(tokens.vocabulary() == vocabulary.size());
  CHECK(tokens.bytes() == text.size());
  CHECK(tokens.held_out_bytes() == bytes.held_out_bytes());
  CHECK(tokens.fingerprint() == bytes.fingerprint());
  CHECK(tokens.vocabulary_fingerprint() == vocabulary.fingerprint());
  CHECK(bytes.vocabulary_fingerprint() == 0);
  CHECK(tokens.training().bytes_per_id() == 2);
  for (const auto& [part, of_bytes] : {std::pair(&tokens.training(), &bytes.training()),
                                       std::pair(&tokens.validation(), &bytes.validation())}) {
    CHECK(part->size() * 2 < of_bytes->size());
    const auto decoded = vocabulary.bytes_of(part->all());
    CHECK((std::vector<std::int32_t>(decoded.begin(), decoded.end()) == of_bytes->all()));
    CHECK(tokens.bytes_of(part->all()) == static_cast<std::int64_t>(of_bytes->size()));
    CHECK(bytes.bytes_of(of_bytes->all()) == static_cast<std::int64_t>(of_bytes->size()));
  }
}

TEST_CASE("the default corpus is several megabytes of C++") {
  const Text text = read_text({default_corpus()});
  CHECK(text.bytes.size() > 3'000'000);
  CHECK(text.files > 100);
  const std::string_view word = "namespace std";
  CHECK(std::search(text.bytes.begin(), text.bytes.end(), word.begin(), word.end()) !=
        text.bytes.end());
}
