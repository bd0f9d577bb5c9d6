#include "cli/pictures/schedule/order_report.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "collectives/proof/order.hpp"
#include "collectives/proof/verify_algorithm.hpp"

namespace ringside::cli {

namespace {

using collectives::Algorithm;
using Orders = std::vector<std::string>;

// One order if all chunks have it.
Orders joined(Orders orders) {
  if (std::ranges::all_of(orders, [&](const auto& order) { return order == orders[0]; }))
    orders.resize(1);
  return orders;
}

// Without the outermost brackets.
std::string shown(const std::string& sum) {
  return sum.front() == '(' ? sum.substr(1, sum.size() - 2) : sum;
}

std::string name_of_chunk(const Orders& orders, std::size_t chunk) {
  return orders.size() == 1 ? "every chunk" : fmt::format("chunk {}", chunk);
}

// The share of each rank of `few`, alike in every chunk.
std::optional<Orders> shares_of_all(const Orders& few, const Orders& many) {
  std::optional<Orders> shares;
  for (std::size_t chunk = 0; chunk < few.size(); ++chunk) {
    const auto of_chunk = collectives::shares_of(few[chunk], many[chunk]);
    if (!of_chunk || (shares && *shares != *of_chunk)) return std::nullopt;
    shares = of_chunk;
  }
  return shares;
}

}  // namespace

CommandResult report_order(const Algorithm& algorithm, int size) {
  const Orders of_chunks = orders_of_additions(algorithm, size), orders = joined(of_chunks);
  std::string text = collectives::case_in_words(algorithm, size, 0) + "\n";
  for (std::size_t chunk = 0; chunk < orders.size(); ++chunk)
    text += fmt::format("  {:<8}  {}\n", name_of_chunk(orders, chunk), shown(orders[chunk]));
  Json json = Json::array();
  for (const std::string& order : of_chunks) json.push_back(shown(order));
  return {text,
          {{"algorithm", algorithm.name},
           {"collective", name_of(algorithm.collective)},
           {"ranks", size},
           {"orders", json}}};
}

CommandResult report_same_order(const Algorithm& a, int size_a, const Algorithm& b, int size_b) {
  if (size_a > size_b) return report_same_order(b, size_b, a, size_a);
  const Orders few = joined(orders_of_additions(a, size_a)),
               many = joined(orders_of_additions(b, size_b));
  // Chunks of another number begin at other elements.
  const bool comparable = few.size() == many.size();
  const std::optional<Orders> shares = comparable ? shares_of_all(few, many) : std::nullopt;
  const std::string first = collectives::case_in_words(a, size_a, 0),
                    second = collectives::case_in_words(b, size_b, 0);
  std::string text;
  if (shares && size_a == size_b) text = fmt::format("{}, and {}: the same order\n", first, second);
  if (shares && size_a < size_b) {
    text = fmt::format("{}, and {}: the same order, if the ranks of the first bring these sums\n",
                       first, second);
    for (std::size_t rank = 0; rank < shares->size(); ++rank)
      text += fmt::format("  rank {:<3}  {}\n", rank, shown((*shares)[rank]));
  }
  if (!shares) {
    std::size_t chunk = 0;
    while (comparable && collectives::shares_of(few[chunk], many[chunk]) && chunk + 1 < few.size())
      ++chunk;
    text = fmt::format("{}, and {}: not the same order\n  {:<11}  {}\n  {:<11}  {}\n", first,
                       second, name_of_chunk(few, chunk), shown(few[chunk]),
                       name_of_chunk(many, chunk), shown(many[chunk]));
  }
  Json json{{"algorithms", {a.title(), b.title()}},
            {"ranks", {size_a, size_b}},
            {"same", shares.has_value()}};
  if (shares && size_a < size_b)
    for (const std::string& share : *shares) json["shares"].push_back(shown(share));
  return {text, json};
}

}  // namespace ringside::cli
