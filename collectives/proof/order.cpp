#include "collectives/proof/order.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text/read_number.hpp"
#include "collectives/proof/lockstep.hpp"
#include "collectives/proof/verify_algorithm.hpp"

namespace ringside::collectives {

namespace {

std::ptrdiff_t terms(std::string_view sum) {
  return 1 + std::ranges::count(sum, '+');
}

// Both sides of the outermost addition of "((0+1)+2)"; the second is empty for a single rank.
std::pair<std::string_view, std::string_view> operands(std::string_view sum) {
  if (sum.front() != '(') return {sum, {}};
  sum = sum.substr(1, sum.size() - 2);
  int depth = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    depth += sum[i] == '(' ? 1 : sum[i] == ')' ? -1 : 0;
    if (sum[i] == '+' && depth == 0) return {sum.substr(0, i), sum.substr(i + 1)};
  }
  fail("'{}' is no sum of ranks", sum);
}

// Finds the share of each rank of `few` in `many`. Of two ways to match a+b the first is taken.
bool match(std::string_view few, std::string_view many, std::ptrdiff_t each,
           std::vector<std::string>& shares) {
  const auto [a, b] = operands(few);
  if (b.empty()) {
    if (terms(many) != each || (each == 1 && many != few)) return false;
    shares.at(decimal_number<std::size_t>(a).value()) = many;
    return true;
  }
  const auto [c, d] = operands(many);
  if (d.empty()) return false;
  return (match(a, c, each, shares) && match(b, d, each, shares)) ||
         (match(a, d, each, shares) && match(b, c, each, shares));
}

}  // namespace

std::vector<std::string> orders_of_additions(const Algorithm& algorithm, int size, int root) {
  using enum Collective;
  const Collective collective = algorithm.collective;
  require(collective == all_reduce || collective == reduce_scatter || collective == reduce,
          "{} adds nothing: only all_reduce, reduce_scatter and reduce do", name_of(collective));
  const std::vector<Schedule> schedules = make_schedules(algorithm, size, root);
  for (const std::string& fault : verify(algorithm, size, root)) fail("{}", fault);
  const int chunks = schedules[0].chunks;
  std::vector<RankState> states = start_with_contributions(size, chunks);
  run_all_steps(schedules, states);
  std::vector<std::string> orders;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int owner = collective == reduce_scatter ? chunk / (chunks / size) : root;
    orders.push_back(states[owner].sums[chunk]);
  }
  return orders;
}

std::optional<std::vector<std::string>> shares_of(std::string_view few, std::string_view many) {
  std::vector<std::string> shares(terms(few));
  if (terms(many) % terms(few) != 0 || !match(few, many, terms(many) / terms(few), shares))
    return std::nullopt;
  return shares;
}

}  // namespace ringside::collectives
