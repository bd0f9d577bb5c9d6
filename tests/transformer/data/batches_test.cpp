#include "transformer/data/batches.hpp"

#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "transformer/data/corpus.hpp"

using namespace ringside;
using namespace ringside::transformer;

namespace {

Bytes counting(std::size_t size) {
  Bytes text(size);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  return text;
}

}  // namespace

TEST_CASE("the target is the input shifted by one token") {
  const PackedTokens text = counting(200);
  const Batches batches(text, 7, 1);
  const Batch batch = batches.draw(3, {0, 5});
  REQUIRE(batch.input.size() == 35);
  REQUIRE(batch.target.size() == 35);
  for (std::size_t i = 0; i < 35; ++i) CHECK(batch.target[i] == batch.input[i] + 1);
  for (std::size_t i = 1; i < 7; ++i) CHECK(batch.input[i] == batch.input[0] + static_cast<int>(i));
}

TEST_CASE("the ranks' shares make up the same global batch for every number of ranks") {
  const PackedTokens text = counting(5000);
  const Batches batches(text, 11, 42);
  for (const std::int64_t step : {0, 1, 99}) {
    const Batch whole = batches.draw(step, share_of_batch(12, 0, 1));
    for (const int ranks : {2, 3, 4, 6, 12}) {
      CAPTURE(ranks);
      std::vector<std::int32_t> input, target;
      for (int rank = 0; rank < ranks; ++rank) {
        const Batch part = batches.draw(step, share_of_batch(12, rank, ranks));
        CHECK(part.sequences == 12 / ranks);
        input.insert(input.end(), part.input.begin(), part.input.end());
        target.insert(target.end(), part.target.begin(), part.target.end());
      }
      CHECK(input == whole.input);
      CHECK(target == whole.target);
    }
  }
}

TEST_CASE("steps, seeds and positions in the batch draw different windows") {
  const PackedTokens text = counting(256);
  std::set<std::int32_t> starts;
  const Batches batches(text, 4, 7);
  for (int step = 0; step < 40; ++step) {
    for (const Share share : {Share{0, 1}, Share{1, 1}})
      starts.insert(batches.draw(step, share).input[0]);
  }
  CHECK(starts.size() > 60);  // of 80 draws from 252 starts
  CHECK(batches.draw(0, {0, 8}).input != Batches(text, 4, 8).draw(0, {0, 8}).input);
}

TEST_CASE("the first and the last window of a text are drawn") {
  const PackedTokens text = counting(10);
  const Batches batches(text, 7, 3);  // windows of 8 bytes start at 0, 1 or 2
  std::set<std::int32_t> starts;
  for (int step = 0; step < 50; ++step) starts.insert(batches.draw(step, {0, 1}).input[0]);
  CHECK(starts == std::set<std::int32_t>{0, 1, 2});
}

TEST_CASE("consecutive windows lie end to end and overlap only in the last target") {
  const PackedTokens text = counting(22);
  const Batches batches(text, 7, 0);
  CHECK(batches.windows() == 3);
  const Batch batch = batches.consecutive({1, 2});
  CHECK(batch.input ==
        std::vector<std::int32_t>{7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
  CHECK(batch.target.back() == 21);
  CHECK_THROWS_WITH_AS(batches.consecutive({2, 2}),
                       "windows 2 to 3 were asked for, but the text holds 3", Error);
}

TEST_CASE("a batch that does not divide evenly and a text that is too short are refused") {
  CHECK_THROWS_WITH_AS(share_of_batch(10, 0, 4),
                       "a batch of 10 sequences does not divide by 4 ranks: choose a multiple of "
                       "4, so that every rank reads equally much",
                       Error);
  CHECK_THROWS_WITH_AS(share_of_batch(0, 0, 1),
                       "the batch is 0 sequences, but a step needs at least 1", Error);
  const PackedTokens text = counting(8);
  CHECK_NOTHROW(Batches(text, 7, 0));
  CHECK_THROWS_WITH_AS(Batches(text, 8, 0),
                       "a sequence of 8 bytes needs 9 bytes of text, but there are 8: give more "
                       "text or a shorter sequence",
                       Error);
}
