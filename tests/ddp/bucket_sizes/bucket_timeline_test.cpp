// Buckets followed in time.
#include "ddp/bucket_sizes/bucket_timeline.hpp"

#include <doctest/doctest.h>

using namespace ringside::ddp;

namespace {

// s bytes in n equal buckets, which become ready evenly over backward.
std::vector<ReadyBucket> even_buckets(double s, int n, double backward) {
  std::vector<ReadyBucket> buckets;
  for (int i = 1; i <= n; ++i) buckets.push_back({s / n, backward * i / n});
  return buckets;
}

}  // namespace

TEST_CASE("on a link faster than backward only the last bucket is exposed") {
  const BucketModel fast{.overhead = 1e-4, .bandwidth = 1e9};
  const double s = 1e8, backward = 1;  // the link carries s in 0.1 s
  for (const int n : {1, 4, 20})
    CHECK(exposed_seconds(fast, even_buckets(s, n, backward), backward) ==
          doctest::Approx(fast.call_seconds(s / n)));
}

TEST_CASE("on a link slower than backward all but what backward hides is exposed") {
  const BucketModel slow{.overhead = 1e-3, .bandwidth = 1e8};
  const double s = 1e8, backward = 0.2;  // the link carries s in 1 s
  for (const int n : {1, 4, 20}) {
    // The link is busy from the first bucket on.
    const double first = backward / n, all = n * slow.overhead + s / slow.bandwidth;
    CHECK(exposed_seconds(slow, even_buckets(s, n, backward), backward) ==
          doctest::Approx(first + all - backward));
  }
  // The formula for fast links promises far less.
  CHECK(slow.exposed_seconds(s, 20) <
        0.1 * exposed_seconds(slow, even_buckets(s, 20, backward), backward));
}

TEST_CASE("a bucket waits for those before it") {
  const BucketModel link{.overhead = 0, .bandwidth = 1};
  // The second bucket is ready at once, but the first one only at 5 s.
  CHECK(exposed_seconds(link, {{2, 5}, {1, 0}}, 6) == doctest::Approx(2));
  CHECK(exposed_seconds(link, {{1, 0}, {2, 5}}, 6) == doctest::Approx(1));
  CHECK(exposed_seconds(link, {{1, 0}}, 6) == 0);
  CHECK(exposed_seconds(link, {}, 6) == 0);
}
