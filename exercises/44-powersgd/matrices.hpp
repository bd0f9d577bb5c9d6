// Matrices of the judge, in double precision and without the project's own tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ringside::exercises::power_sgd {

struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> numbers;
  Matrix(std::size_t its_rows, std::size_t its_columns)
      : rows(its_rows), columns(its_columns), numbers(rows * columns) {}
  double& at(std::size_t i, std::size_t j) { return numbers[i * columns + j]; }
  double at(std::size_t i, std::size_t j) const { return numbers[i * columns + j]; }
};

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t k = 0; k < a.columns; ++k)
      for (std::size_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

inline Matrix transposed(const Matrix& a) {
  Matrix b(a.columns, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < a.columns; ++j) b.at(j, i) = a.at(i, j);
  return b;
}

// a + factor b
inline Matrix sum(Matrix a, const Matrix& b, double factor = 1) {
  for (std::size_t i = 0; i < a.numbers.size(); ++i) a.numbers[i] += factor * b.numbers[i];
  return a;
}

inline double dot(const Matrix& a, std::size_t i, const Matrix& b, std::size_t j) {
  double result = 0;
  for (std::size_t row = 0; row < a.rows; ++row) result += a.at(row, i) * b.at(row, j);
  return result;
}

// At most `most` orthonormal columns that span the longest ones of `a`: Gram-Schmidt with pivots.
inline Matrix basis_of(Matrix a, std::size_t most) {
  Matrix found(a.rows, 0);
  double longest = 0;
  while (found.columns < most) {
    std::size_t pivot = 0;
    for (std::size_t j = 1; j < a.columns; ++j)
      if (dot(a, j, a, j) > dot(a, pivot, a, pivot)) pivot = j;
    const double length = std::sqrt(dot(a, pivot, a, pivot));
    longest = std::max(longest, length);
    if (!(length > 1e-10 * longest)) break;
    Matrix more(a.rows, found.columns + 1);
    for (std::size_t i = 0; i < a.rows; ++i) {
      for (std::size_t j = 0; j < found.columns; ++j) more.at(i, j) = found.at(i, j);
      more.at(i, found.columns) = a.at(i, pivot) / length;
    }
    found = std::move(more);
    for (int pass = 0; pass < 2; ++pass)
      a = sum(a, product(found, product(transposed(found), a)), -1);
  }
  return found;
}

inline Matrix projected(const Matrix& basis, const Matrix& m) {
  return product(basis, product(transposed(basis), m));
}

inline bool near(double seen, double expected) {
  return std::abs(seen - expected) <= 1e-8 * (1 + std::abs(expected));
}

inline bool near(const Matrix& seen, const Matrix& expected) {
  return std::equal(seen.numbers.begin(), seen.numbers.end(), expected.numbers.begin(),
                    [](double a, double b) { return near(a, b); });
}

// "first is 3 times the mean", or "first[0, 2] is 0.5, the mean has 1.5"; "" if they agree.
inline std::string difference_from(const std::string& name, const Matrix& seen,
                                   const std::string& what, const Matrix& expected) {
  if (near(seen, expected)) return "";
  const auto largest =
      std::max_element(expected.numbers.begin(), expected.numbers.end(),
                       [](double a, double b) { return std::abs(a) < std::abs(b); });
  const double factor =
      seen.numbers[static_cast<std::size_t>(largest - expected.numbers.begin())] / *largest;
  if (std::isfinite(factor) && factor != 0 && near(seen, sum(expected, expected, factor - 1)))
    return fmt::format("{} is {:.4g} times {}", name, factor, what);
  for (std::size_t i = 0; i < seen.rows; ++i)
    for (std::size_t j = 0; j < seen.columns; ++j)
      if (!near(seen.at(i, j), expected.at(i, j)))
        return fmt::format("{}[{}, {}] is {:.6g}, {} has {:.6g}", name, i, j, seen.at(i, j), what,
                           expected.at(i, j));
  return "";
}

}  // namespace ringside::exercises::power_sgd
