#include "exercises/judge/planning/quantity.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ringside::planning {

// An input, or an operation on one or two quantities.
struct Quantity::Node {
  std::string symbol = {};
  const char* operation = nullptr;
  std::vector<Quantity> operands = {};

  // How tightly the text holds together: a sum needs parentheses within a product.
  int strength() const {
    const std::string_view op = operation == nullptr ? "" : operation;
    return op == "+" || op == "-" ? 1 : op == "*" || op == "/" ? 2 : 3;
  }
};

Quantity::Quantity(double number) : value_(number) {}

Quantity::Quantity(std::string symbol, double value)
    : value_(value), node_(std::make_shared<const Node>(Node{.symbol = std::move(symbol)})) {}

Quantity::Quantity(const char* operation, double value, const Quantity& a, const Quantity* b)
    : value_(value) {
  Node node{.operation = operation, .operands = {a}};
  if (b != nullptr) node.operands.push_back(*b);
  node_ = std::make_shared<const Node>(std::move(node));
}

std::string Quantity::text(bool with_numbers) const {
  if (node_ == nullptr) return number_text(value_);
  if (node_->operation == nullptr)
    return with_numbers || node_->symbol.empty() ? number_text(value_) : node_->symbol;
  const std::string_view op = node_->operation;
  const int strength = node_->strength();
  const Quantity &a = node_->operands.front(), &b = node_->operands.back();
  if (strength == 3) {
    const std::string second =
        node_->operands.size() == 1 ? "" : fmt::format(", {}", b.text(with_numbers));
    return fmt::format("{}({}{})", op, a.text(with_numbers), second);
  }
  const char* sign = op == "*" ? with_numbers ? " x " : " " : op == "/" ? " / " : nullptr;
  const std::string between = sign != nullptr ? sign : fmt::format(" {} ", op);
  // What follows - or / is computed first: a - (b + c), a / (b c). A quotient before a product is
  // enclosed, because a / b c reads as a / (b c).
  const bool quotient = a.node_ != nullptr && a.node_->operation != nullptr &&
                        std::string_view(a.node_->operation) == "/";
  const int left_strength = strength + (op == "*" && quotient ? 1 : 0),
            right_strength = strength + (op == "-" || op == "/" ? 1 : 0);
  return fmt::format("{}{}{}", a.enclosed(left_strength, with_numbers), between,
                     b.enclosed(right_strength, with_numbers));
}

std::string Quantity::enclosed(int at_least, bool with_numbers) const {
  const std::string inner = text(with_numbers);
  return node_ != nullptr && node_->strength() < at_least ? fmt::format("({})", inner) : inner;
}

std::string Quantity::symbols() const {
  return text(false);
}

std::string Quantity::numbers() const {
  return text(true);
}

Quantity operator+(const Quantity& a, const Quantity& b) {
  return {"+", a.value() + b.value(), a, &b};
}

Quantity operator-(const Quantity& a, const Quantity& b) {
  return {"-", a.value() - b.value(), a, &b};
}

Quantity operator*(const Quantity& a, const Quantity& b) {
  return {"*", a.value() * b.value(), a, &b};
}

Quantity operator/(const Quantity& a, const Quantity& b) {
  return {"/", a.value() / b.value(), a, &b};
}

Quantity max(const Quantity& a, const Quantity& b) {
  return {"max", std::max(a.value(), b.value()), a, &b};
}

Quantity min(const Quantity& a, const Quantity& b) {
  return {"min", std::min(a.value(), b.value()), a, &b};
}

Quantity ceil(const Quantity& a) {
  return {"ceil", std::ceil(a.value()), a};
}

Quantity sqrt(const Quantity& a) {
  return {"sqrt", std::sqrt(a.value()), a};
}

namespace {

// "219,848,638,464".
std::string with_commas(double integer) {
  std::string digits = fmt::format("{:.0f}", std::abs(integer));
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return fmt::format("{}{}", integer < 0 ? "-" : "", digits);
}

// Four digits, with commas where there are more before the point: "3,518", "59.25", "0.1234".
std::string four_digits(double value) {
  if (std::abs(value) >= 999.95) return with_commas(std::round(value));
  return fmt::format("{:.4g}", value);
}

}  // namespace

std::string number_text(double number) {
  const bool integer = number == std::floor(number) && std::abs(number) < 1e15;
  std::string brief = fmt::format("{:.4g}", number);
  if (const auto plus = brief.find("e+"); plus != std::string::npos) brief.erase(plus + 1, 1);
  if (const auto zero = brief.find("e0"); zero != std::string::npos) brief.erase(zero + 1, 1);
  if (const auto zero = brief.find("e-0"); zero != std::string::npos) brief.erase(zero + 2, 1);
  const bool round = std::abs(number) >= 1e9 && std::stod(brief) == number;
  return integer && !round ? with_commas(number) : brief;
}

std::string text_with_unit(double value, Unit unit) {
  switch (unit) {
    case Unit::bytes:
      if (std::abs(value) < 1e6) return with_commas(std::round(value)) + " B";
      return fmt::format("{} B = {} GB", with_commas(std::round(value)), four_digits(value / 1e9));
    case Unit::seconds:
      if (value != 0 && std::abs(value) < 1e-3) return four_digits(value * 1e6) + " us";
      if (value != 0 && std::abs(value) < 1) return four_digits(value * 1e3) + " ms";
      return four_digits(value) + " s";
    case Unit::flops:
      return number_text(value) + " FLOPs";
    case Unit::devices:
      return with_commas(value) + (value == 1 ? " device" : " devices");
    case Unit::tokens:
      return four_digits(value) + " tokens";
    case Unit::share:
      return four_digits(value * 100) + " %";
    case Unit::number:
      break;
  }
  return value == std::floor(value) ? with_commas(value) : four_digits(value);
}

}  // namespace ringside::planning
