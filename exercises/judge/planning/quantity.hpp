// Quantity: a number that knows how it was computed.
//
// A formula is written once, as plain C++:
//
//     const Quantity s("s", 2048), b("b", 4), h("h", 6144), a("a", 64), t("t", 8);
//     const Quantity bytes = s * b * h * (10 + 24 / t + 5 * a * s / (h * t));
//
//     bytes.value()      1325400064
//     bytes.symbols()    s b h (10 + 24 / t + 5 a s / (h t))
//     bytes.numbers()    2,048 x 4 x 6,144 x (10 + 24 / 8 + 5 x 64 x 2,048 / (6,144 x 8))
//
// So a judge shows the formula that was computed, and no other. `ringside account` has its own
// (python/ringside/planning/quantity.py).
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>

namespace ringside::planning {

class Quantity {
 public:
  Quantity(double number);  // NOLINT(google-explicit-constructor): a constant in a formula
  Quantity(std::string symbol, double value);
  template <std::integral Integer>
  Quantity(std::string symbol, Integer value)
      : Quantity(std::move(symbol), static_cast<double>(value)) {}
  // The result of an operation on one or two others.
  Quantity(const char* operation, double value, const Quantity& a, const Quantity* b = nullptr);

  double value() const { return value_; }
  std::string symbols() const;  // with the names of the inputs
  std::string numbers() const;  // with their values

 private:
  struct Node;
  std::string text(bool with_numbers) const;
  std::string enclosed(int at_least, bool with_numbers) const;

  double value_;
  std::shared_ptr<const Node> node_;  // none for a bare number
};

Quantity operator+(const Quantity& a, const Quantity& b);
Quantity operator-(const Quantity& a, const Quantity& b);
Quantity operator*(const Quantity& a, const Quantity& b);
Quantity operator/(const Quantity& a, const Quantity& b);
Quantity max(const Quantity& a, const Quantity& b);
Quantity min(const Quantity& a, const Quantity& b);
Quantity ceil(const Quantity& a);  // rounded up to an integer
Quantity sqrt(const Quantity& a);

enum class Unit { number, bytes, seconds, flops, devices, tokens, share };

// One line of the derivation: a formula with its result, its unit and its source.
struct Term {
  std::string symbol;  // how later formulas name the result
  std::string what;    // "activations of a block, for one micro-batch"
  Quantity quantity;
  Unit unit = Unit::number;
  std::string source;  // "Korthikanti et al. 2022, equation 2"

  double value() const { return quantity.value(); }
  // The result as an input of another formula: its symbol and its value.
  operator Quantity() const {  // NOLINT(google-explicit-constructor)
    return {symbol, quantity.value()};
  }
};

// "2,048", "4.6e14", "0.75": a number within a formula.
std::string number_text(double number);

// "3,517,578,215,424 B = 3,518 GB", "1.102 s", "31.5 %".
std::string text_with_unit(double value, Unit unit);

}  // namespace ringside::planning
