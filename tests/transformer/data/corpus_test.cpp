#include "transformer/data/corpus.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "tests/transformer/encoded_text.hpp"
#include "tests/transformer/temporary_directory.hpp"

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

std::string corpus_refusal(const std::vector<std::filesystem::path>& paths) {
  try {
    read_corpus(paths);
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

TEST_CASE("a corpus of an encoded text is that of its bytes, in fewer tokens") {
  const TemporaryDirectory directory;
  const tests::PairTokenizer tokenizer(280);
  const Bytes text = tests::small_text();
  tokenizer.write(directory.path() / "text.u16", text);
  directory.write("text.txt", std::string(text.begin(), text.end()));
  const Corpus bytes = read_corpus({directory.path() / "text.txt"}),
               tokens = read_corpus({directory.path() / "text.u16"});
  CHECK(bytes.vocabulary().is_bytes());
  CHECK_FALSE(tokens.vocabulary().is_bytes());
  CHECK(tokens.vocabulary().size() == 280);
  CHECK(tokens.vocabulary().fingerprint() == tokenizer.vocabulary().fingerprint());
  CHECK(tokens.files() == bytes.files());
  CHECK(tokens.bytes() == text.size());
  CHECK(tokens.held_out_bytes() == bytes.held_out_bytes());
  CHECK(tokens.fingerprint() == bytes.fingerprint());
  CHECK(tokens.training().bytes_per_id() == 2);
  for (const auto& [part, of_bytes] : {std::pair(&tokens.training(), &bytes.training()),
                                       std::pair(&tokens.validation(), &bytes.validation())}) {
    CHECK(part->all() == tokenizer.encode(of_bytes->all()));
    CHECK(tokens.vocabulary().bytes_of(part->all()) == static_cast<std::int64_t>(of_bytes->size()));
    CHECK(bytes.vocabulary().bytes_of(of_bytes->all()) ==
          static_cast<std::int64_t>(of_bytes->size()));
  }
}

TEST_CASE("several encoded texts are one corpus, if their tokenizer is one") {
  const TemporaryDirectory directory;
  const auto at = [&](const char* name) { return directory.path() / name; };
  tests::PairTokenizer(280).write(at("a.u16"), tests::small_text(3000));
  tests::PairTokenizer(280).write(at("b.u32"), tests::small_text(5000));
  tests::PairTokenizer(270).write(at("other.u16"), tests::small_text(5000));
  const Corpus a = read_corpus({at("a.u16")}), b = read_corpus({at("b.u32")}),
               both = read_corpus({at("a.u16"), at("b.u32")});
  CHECK(both.files() == 2);
  CHECK(both.bytes() == 8000);
  CHECK(both.training().size() == a.training().size() + b.training().size());
  CHECK(both.validation().size() == a.validation().size() + b.validation().size());
  CHECK(both.fingerprint() != a.fingerprint());
  CHECK(both.fingerprint() != read_corpus({at("b.u32"), at("a.u16")}).fingerprint());
  CHECK(corpus_refusal({at("a.u16"), at("other.u16")}) ==
        at("a.u16").string() + " and " + at("other.u16").string() +
            " are of different tokenizers: encode both texts with one");
  CHECK(corpus_refusal({at("a.u16"), directory.write("text.txt", "text")}) ==
        "--data has text and files of tokens: encode the text, too, with `ringside tokenize`");
}

TEST_CASE("tokens without their description, or with another's, are refused") {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "text.u16",
                              description = directory.path() / "text.corpus.json";
  tests::PairTokenizer(280).write(file, tests::small_text(3000));
  const std::string json = read_file(description);
  write_tokens(file, {1, 2, 3});
  CHECK(corpus_refusal({file}).starts_with(file.string() +
                                           " has 3 tokens, but the corpus.json beside it is for "));
  tests::PairTokenizer(280).write(file, tests::small_text(3000));
  Tokens ids = read_tokens(file, 1 << 20).front();
  ids[7] = 280;
  write_tokens(file, ids);
  CHECK(corpus_refusal({file}) == "the tokens in " + file.string() +
                                      " cannot be used: the token 280 is not in a vocabulary of "
                                      "280");
  for (const char* damaged : {"", "[]", "{}", "{\"files\": 1", "\xff"}) {
    CAPTURE(damaged);
    directory.write("text.corpus.json", damaged);
    CHECK(corpus_refusal({file}).starts_with("the corpus " + description.string() +
                                             " cannot be used: "));
  }
  directory.write("text.corpus.json", json + '\0' + json);
  CHECK(corpus_refusal({file}).ends_with("unexpected NUL byte; expected end of input"));
  std::filesystem::remove(description);
  CHECK(corpus_refusal({file}) ==
        description.string() + " is missing, which says what the tokens in " + file.string() +
            " are: make both with ringside tokenize --tokenizer PATH --data TEXT --out " +
            file.string());
}

TEST_CASE("the default corpus is several megabytes of C++") {
  const Text text = read_text({default_corpus()});
  CHECK(text.bytes.size() > 3'000'000);
  CHECK(text.files > 100);
  const std::string_view word = "namespace std";
  CHECK(std::search(text.bytes.begin(), text.bytes.end(), word.begin(), word.end()) !=
        text.bytes.end());
}
