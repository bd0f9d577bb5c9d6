// Judges a one-sided protocol: its numbers, the memory orders that it asks for, and runs between
// threads that delay each other.
#include <algorithm>

#include "exercises/28-one-sided/interface.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

// ---- Numbers, which wrap around after 2^32 ----

struct Comparison {
  Number count, number;
};

std::vector<Comparison> comparisons() {
  std::vector<Comparison> all;
  for (const Number base : {Number(0), Number(1000), Number(0xffffff00), Number(0xffffffff)})
    for (const int count : {0, 1, 3, 300})
      for (const int number : {0, 1, 2, 4, 5, 299, 301})
        all.push_back({base + static_cast<Number>(count), base + static_cast<Number>(number)});
  return all;
}

constexpr Number slots = 4;

Json collect_numbers(World&) {
  Json all = Json::array();
  for (const auto& [count, number] : comparisons())
    all.push_back({student_reached(count, number), student_has_arrived(count, number),
                   student_slot_is_free(count, number, slots)});
  return all;
}

Verdict judge_numbers(const Run& run) {
  const std::vector<Comparison> all = comparisons();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [count, number] = all[i];
    // How far the count is ahead: small, so the sign tells, whatever has wrapped around.
    const auto ahead = static_cast<std::int64_t>(static_cast<std::int32_t>(count - number));
    const std::vector<bool> seen = run.ranks[0].at(i);
    const std::vector<bool> expected = {ahead >= 0, ahead >= 0, ahead + slots >= 0};
    const std::string calls[] = {
        fmt::format("reached({}, {})", count, number),
        fmt::format("has_arrived, where published is {}, of message {}", count, number),
        fmt::format("slot_is_free, where released is {}, for message {} of {} slots", count, number,
                    slots)};
    for (std::size_t k = 0; k < 3; ++k)
      if (seen[k] != expected[k])
        return {
            {fmt::format("{} is {}, expected {}: the two numbers are {} apart, and numbers wrap "
                         "around at 2^32",
                         calls[k], seen[k] != false, expected[k] != false, std::abs(ahead))}};
  }
  return {};
}

// ---- Memory orders ----

Json collect_orders(World&) {
  return student_orders();
}

Verdict judge_orders(const Run& run) {
  const struct {
    const char *step, *order, *why;
  } steps[] = {
      {"slot_is_free", "load_acquire of released", "the slot may be written before it is read"},
      {"publish", "store_release of published",
       "on ARM and on GPUs the flag may be visible before the data"},
      {"has_arrived", "load_acquire of published", "the data may be read before the flag"},
      {"free_slot", "store_release of released",
       "the slot may be free for others before it has been read"}};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::vector<std::string> seen = run.ranks[0].at(i);
    if (seen.size() > 1 && std::find(seen.begin(), seen.end(), steps[i].order) != seen.end())
      return {{fmt::format("{} does: {}; expected: {} and nothing else", steps[i].step,
                           fmt::join(seen, ", "), steps[i].order)}};
    if (seen != std::vector<std::string>{steps[i].order})
      return {{fmt::format(
          "{} does: {}; expected: {}. Otherwise {}", steps[i].step,
          seen.empty() ? "nothing with Memory" : fmt::format("{}", fmt::join(seen, ", ")),
          steps[i].order, steps[i].why)}};
  }
  return {};
}

// ---- Runs ----

// From the beginning, and where the numbers wrap around on the way.
constexpr Number starts[] = {0, 0xffffffff - 500};

Json collect_messages(World& world) {
  Json wrong = Json::array();
  for (const Number start : starts) {
    world.doing(fmt::format("1000 messages over 4 slots, from number {} on", start));
    wrong.push_back(student_wrong_words(world.seed(), start));
  }
  return wrong;
}

Verdict judge_messages(const Run& run) {
  for (std::size_t i = 0; i < 2; ++i)
    if (const std::size_t wrong = run.ranks[0].at(i); wrong > 0)
      return {
          {fmt::format("1000 messages of 16 words over 4 slots, from number {} on: {} words "
                       "came out wrong: was a slot read too early, or written too early?",
                       starts[i], wrong)}};
  return {};
}

Json collect_sums(World& world) {
  Json wrong = Json::array();
  for (const int ranks : {2, 3, 4})
    for (const int blocks : {1, 2}) {
      world.doing(fmt::format("8 all-reduces on {} ranks of {} blocks", ranks, blocks));
      // Numbers wrap around in the second call.
      wrong.push_back({ranks, blocks, student_wrong_sums(ranks, blocks, world.seed(), 0xfffffffd)});
    }
  return wrong;
}

Verdict judge_sums(const Run& run) {
  for (const Json& each : run.ranks[0])
    if (const std::size_t wrong = each.at(2); wrong > 0)
      return {
          {fmt::format("8 all-reduces on {} ranks of {} blocks: {} sums came out wrong: do all "
                       "meet before the first read, and after the last store?",
                       each[0].get<int>(), each[1].get<int>(), wrong)}};
  return {};
}

const Judge judge("28-one-sided", {{"numbers", collect_numbers, judge_numbers},
                                   {"orders", collect_orders, judge_orders},
                                   {"messages", collect_messages, judge_messages},
                                   {"two-shot", collect_sums, judge_sums}});

}  // namespace
}  // namespace ringside::exercises
