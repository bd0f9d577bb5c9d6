// Quantity: one text of a formula gives its value and its explanation.
#include "planning/quantity.hpp"

#include <doctest/doctest.h>

using namespace ringside::planning;

TEST_CASE("a formula explains itself with symbols and with numbers") {
  const Quantity s("s", 2048), b("b", 4), h("h", 6144), a("a", 64), t("t", 8);
  const Quantity bytes = s * b * h * (10 + 24 / t + 5 * a * s / (h * t));
  CHECK(bytes.value() == 2048.0 * 4 * 6144 * (10 + 24.0 / 8 + 5.0 * 64 * 2048 / (6144 * 8)));
  CHECK(bytes.symbols() == "s b h (10 + 24 / t + 5 a s / (h t))");
  CHECK(bytes.numbers() == "2,048 x 4 x 6,144 x (10 + 24 / 8 + 5 x 64 x 2,048 / (6,144 x 8))");
}

TEST_CASE("parentheses stand where the value needs them, and only there") {
  const Quantity a("a", 7), b("b", 2), c("c", 3);
  CHECK((a - (b + c)).symbols() == "a - (b + c)");
  CHECK((a - b + c).symbols() == "a - b + c");
  CHECK((a / (b / c)).symbols() == "a / (b / c)");
  CHECK((a / b / c).symbols() == "a / b / c");
  CHECK((a * (b - c)).symbols() == "a (b - c)");
  CHECK((a * b + c).symbols() == "a b + c");
  CHECK((a / b * c).symbols() == "(a / b) c");
  CHECK((a * b / c).symbols() == "a b / c");
  CHECK(max(a, b + c).symbols() == "max(a, b + c)");
  CHECK(ceil(a / b).symbols() == "ceil(a / b)");
  CHECK((a - (b + c)).value() == 2);
  CHECK((a / (b / c)).value() == 10.5);
  CHECK(min(a, b).value() == 2);
  CHECK(sqrt(Quantity(9)).value() == 3);
  CHECK(ceil(a / b).value() == 4);
}

TEST_CASE("a formula that is computed for its value alone has the value as its text") {
  const Quantity a("a", 7), before = a * 2;
  {
    const Quantity::ValuesOnly fast;
    const Quantity b("b", 5), product = before * b;
    CHECK(product.value() == 70);
    CHECK(product.symbols() == "70");
    CHECK(before.symbols() == "a 2");
  }
  CHECK((a * 3).numbers() == "7 x 3");
}

TEST_CASE("a term is an input of another formula under its symbol") {
  const Quantity d("d", 4);
  const Term block{"P_block", "a block", 12 * d * d, Unit::number, "somewhere"};
  const Quantity all = 3 * block;
  CHECK(all.value() == 576);
  CHECK(all.symbols() == "3 P_block");
  CHECK(all.numbers() == "3 x 192");
}

TEST_CASE("numbers and units are written as people read them") {
  CHECK(number_text(53248) == "53,248");
  CHECK(number_text(4.6e14) == "4.6e14");
  CHECK(number_text(0.75) == "0.75");
  CHECK(number_text(3e-6) == "3e-6");
  CHECK(number_text(219848638464) == "219,848,638,464");
  CHECK(text_with_unit(3517578215424, Unit::bytes) == "3,517,578,215,424 B = 3,518 GB");
  CHECK(text_with_unit(1500, Unit::bytes) == "1,500 B");
  CHECK(text_with_unit(44, Unit::devices) == "44 devices");
  CHECK(text_with_unit(1.42, Unit::seconds) == "1.42 s");
  CHECK(text_with_unit(0.0203, Unit::seconds) == "20.3 ms");
  CHECK(text_with_unit(12e-6, Unit::seconds) == "12 us");
  CHECK(text_with_unit(0.315, Unit::share) == "31.5 %");
}
