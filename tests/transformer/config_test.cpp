#include "transformer/config.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace ringside;
using namespace ringside::transformer;

TEST_CASE("every named config is valid and has the expected number of parameters") {
  // embedding + head + layers x (4 d d + 3 d d_ff + 2 d) + d
  const std::pair<std::string, std::int64_t> expected[] = {
      {"tiny", 857'216},      {"moe-tiny", 2'446'464}, {"lab", 22'696'448},
      {"small", 128'625'408}, {"medium", 423'183'360}, {"large", 969'411'840},
      {"xl", 1'998'235'200},
  };
  // moe-tiny: 8 experts of half the width, and a router of 8 x 128, in each of four layers.
  CHECK(active_parameter_count(named_config("moe-tiny")) == 857'216 + 4 * 8 * 128);
  CHECK(active_parameter_count(named_config("tiny")) == 857'216);
  CHECK(config_names().size() == std::size(expected));
  for (const auto& [name, count] : expected) {
    CAPTURE(name);
    CHECK_NOTHROW(validate(named_config(name)));
    CHECK(parameter_count(named_config(name)) == count);
  }
}

TEST_CASE("a tied head and shared key and value heads reduce the number of parameters") {
  Config config = named_config("tiny");
  const auto whole = parameter_count(config);
  config.tied_head = true;
  CHECK(parameter_count(config) == whole - 256 * 128);
  config.kv_heads = 1;  // three quarters of k and of v, in each of four layers
  CHECK(parameter_count(config) == whole - 256 * 128 - 4 * 2 * 96 * 128);
}

TEST_CASE("an unknown name is refused with a list of the known ones") {
  CHECK_THROWS_WITH_AS(named_config("huge"),
                       "there is no model size named 'huge'; the sizes are tiny, moe-tiny, lab, "
                       "small, medium, large, xl",
                       Error);
}

TEST_CASE("inconsistent sizes are refused with the reason") {
  const auto refusal = [](auto change) {
    Config config = named_config("tiny");
    change(config);
    try {
      validate(config);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(refusal([](Config& c) { c.heads = c.kv_heads = 3; }) ==
        "d_model 128 does not divide into 3 heads: choose a width that is a multiple of the number "
        "of heads");
  CHECK(refusal([](Config& c) { c.experts = 2, c.experts_per_token = 3; }) ==
        "experts_per_token is 3, but a token can use 1 to 2 of 2 experts");
  CHECK(refusal([](Config& c) { c.balance = -1; }) ==
        "balance is -1, but the weight of the balance loss is a number of at least 0");
  CHECK(refusal([](Config& c) { c.d_model = 12; }) ==
        "a head is 3 wide (d_model 12 / 4 heads), but RoPE rotates pairs and needs an even width");
  CHECK(refusal([](Config& c) { c.kv_heads = 3; }) ==
        "4 heads cannot share 3 key and value heads evenly: choose kv_heads that divides heads");
  CHECK(refusal([](Config& c) { c.kv_heads = 8; }) ==
        "4 heads cannot share 8 key and value heads evenly: choose kv_heads that divides heads");
  CHECK(refusal([](Config& c) { c.layers = 0; }) == "layers is 0, but a model needs at least 1");
  CHECK(refusal([](Config& c) { c.d_ff = -1; }) == "d_ff is -1, but a model needs at least 1");
  CHECK(refusal([](Config& c) { c.vocabulary = 5'000'000'000; }) ==
        "vocabulary is 5000000000, but at most 1000000000 is possible");
  CHECK(refusal([](Config& c) { c.rope_theta = 0; }) ==
        "rope_theta is 0, but it must be a positive number");
  CHECK(refusal([](Config& c) { c.norm_epsilon = -1; }) ==
        "norm_epsilon is -1, but it must be a positive number");
}
