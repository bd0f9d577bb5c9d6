#include "base/sha256.hpp"

#include <doctest/doctest.h>

using namespace ringside;

TEST_CASE("SHA-256 has the values of FIPS 180-2 in one piece and in several") {
  CHECK(hexadecimal(sha256("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 in_pieces;
  for (const char* piece : {"a", "", "bc"}) in_pieces.add(piece);
  CHECK(in_pieces.digest() == sha256("abc"));
}

TEST_CASE("the keyed hash has the values of RFC 4231") {
  CHECK(hexadecimal(keyed_hash("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(keyed_hash("", "text") != sha256("text"));
}

TEST_CASE("digests are compared to the last bit") {
  const Digest digest = sha256("abc");
  Digest other = digest;
  CHECK(equal_in_constant_time(digest, other));
  other.back() ^= 1;
  CHECK_FALSE(equal_in_constant_time(digest, other));
}

TEST_CASE("random bits differ each time") {
  Digest a{}, b{};
  fill_with_random_bits(a);
  fill_with_random_bits(b);
  CHECK(a != b);
}
