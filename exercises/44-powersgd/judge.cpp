// Judges PowerSGD by what its results must be, whatever numbers Q begins with. With M the mean over
// ranks of gradients and errors, and P Q^T the result:
//
//     P Q^T is a projection of M      onto its own columns, so it is M itself if M has no more
//                                     than r independent columns
//     P spans M Q                     with the Q of the step before, which spans the rows of the
//                                     result of the step before
//     mean of the errors              is all that gradients had and results did not
//
// So the order of additions, the basis and the errors of single ranks are free.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "autograd/nn/module.hpp"
#include "collectives/execution/traffic.hpp"
#include "exercises/44-powersgd/gradients.hpp"
#include "exercises/44-powersgd/interface.hpp"
#include "exercises/44-powersgd/matrices.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/ddp/data_parallel.hpp"

namespace ringside::exercises::power_sgd {
namespace {

// ---- Steps ----

using Steps = std::vector<Step>;

const Steps one_thin_step = {{Mean::thin}}, one_full_step = {Step()},
            many_steps = {{}, {}, {Mean::full, true}, {}, {}, {}},
            after_zeros = {{Mean::zero}, {Mean::thin}};

// Of each step: gradients, their bits, errors, calls and the bytes sent.
Json take(World& world, const Steps& steps, const std::string& name) {
  const std::vector<Entry> entries = entries_of(world.seed());
  const Parameters parameters(entries);
  const auto method = student_power_sgd(parameters, world.group(), static_cast<int>(r));
  Json seen = Json::array();
  for (std::size_t number = 0; number < steps.size(); ++number) {
    world.doing(fmt::format("finish() of step {}, {}", number, name));
    parameters.zero_grad();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i == first && steps[number].lacks_first) continue;
      const Matrix gradient =
          gradient_of(i, steps[number], number, world.rank(), world.size(), world.seed());
      parameters.tensors[i].set_grad(Tensor::from(gradient.numbers, entries[i].shape));
    }
    world.calls().clear();
    const std::uint64_t before = world.group().traffic().payload_bytes_sent;
    method->finish();
    world.group().barrier();  // calls that finish() did not wait for
    Json step = {{"sent", world.group().traffic().payload_bytes_sent - before},
                 {"calls", Json::array()},
                 {"gradients", Json::object()},
                 {"errors", Json::object()}};
    for (const ObservedCall& each : world.calls().calls())
      step["calls"].push_back(
          {{"call", collectives::name_of(each.call.collective)}, {"count", each.call.count}});
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Tensor& gradient = parameters.tensors[i].grad();
      step["gradients"][entries[i].name] = json_of(gradient);
      if (gradient.defined())
        step["bits"][entries[i].name] = fingerprint(gradient.detach().contiguous());
    }
    for (const auto& [matrix, error] : method->errors()) step["errors"][matrix] = json_of(error);
    seen.push_back(std::move(step));
  }
  return seen;
}

// Numbers that json_of() wrote; nothing where there are none, or too few.
std::optional<Matrix> matrix_of(const Json& seen, const Entry& entry) {
  if (seen.is_null() || seen.at("values").size() != entry.rows() * entry.columns())
    return std::nullopt;
  Matrix found(entry.rows(), entry.columns());
  for (std::size_t i = 0; i < found.numbers.size(); ++i)
    found.numbers[i] = number_of(seen.at("values")[i]);
  return found;
}

// What all ranks together made in steps that each of them collected under this name.
class Seen {
 public:
  Seen(const Run& run, std::string name) : run_(run), name_(std::move(name)) {}

  const Json& step(int rank, std::size_t number) const {
    return run_.ranks[static_cast<std::size_t>(rank)].at(name_).at(number);
  }
  std::optional<Matrix> result(const Entry& entry, std::size_t number) const {
    return matrix_of(step(0, number).at("gradients").at(entry.name), entry);
  }
  std::optional<Matrix> mean_error(const Entry& entry, std::size_t number) const {
    Matrix mean(entry.rows(), entry.columns());
    for (int rank = 0; rank < run_.world; ++rank) {
      const Json& errors = step(rank, number).at("errors");
      const auto error = matrix_of(errors.value(entry.name, Json()), entry);
      if (!error) return std::nullopt;
      mean = sum(mean, *error, 1.0 / run_.world);
    }
    return mean;
  }

  // Whether each gradient is there where it must be, and has the same bits on all ranks.
  std::string disagreement(const Steps& steps) const {
    for (std::size_t number = 0; number < steps.size(); ++number)
      for (int rank = 0; rank < run_.world; ++rank)
        for (const Entry& entry : entries_of(run_.seed)) {
          const bool lacks = entry.name == "first" && steps[number].lacks_first;
          const Json& here = step(rank, number);
          if (here.at("gradients").at(entry.name).is_null() != lacks)
            return fmt::format("step {}, rank {}: {} has {} gradient, {}", number, rank, entry.name,
                               lacks ? "a" : "no",
                               lacks ? "but no rank had one" : "but all ranks had one");
          if (!lacks && here.at("bits").at(entry.name) != step(0, number)["bits"][entry.name])
            return fmt::format("step {}: {} has other bits on rank {} than on rank 0", number,
                               entry.name, rank);
        }
    return "";
  }

 private:
  const Run& run_;
  std::string name_;
};

// Whether P Q^T is a projection of `m`, onto the columns of P.
std::string fault_of_projection(const Entry& entry, const Matrix& result, const Matrix& m,
                                const std::string& of) {
  const Matrix basis = basis_of(result, entry.factors() + 1);
  if (basis.columns != entry.factors())
    return fmt::format("{} has {} columns that depend on no others, expected {}, those of P",
                       entry.name, basis.columns, entry.factors());
  return difference_from(entry.name, result, fmt::format("the projection of {} onto P", of),
                         projected(basis, m));
}

// ---- The cases ----

Json collect_projection(World& world) {
  return {{"thin", take(world, one_thin_step, "a mean of rank 1 or 2")},
          {"full", take(world, one_full_step, "a mean of full rank")}};
}

Verdict judge_projection(const Run& run) {
  const std::vector<Entry> entries = entries_of(run.seed);
  for (const auto& [name, steps] :
       {std::pair("thin", one_thin_step), std::pair("full", one_full_step)}) {
    const Seen seen(run, name);
    if (const std::string fault = seen.disagreement(steps); !fault.empty()) return {{fault}};
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Matrix mean = mean_of(i, steps[0], 0, run), result = *seen.result(entries[i], 0);
      const bool whole = !entries[i].is_matrix() || steps[0].mean == Mean::thin;
      std::string fault =
          whole ? difference_from(entries[i].name, result, "the mean of the ranks", mean)
                : fault_of_projection(entries[i], result, mean, "the mean");
      if (fault.empty()) continue;
      if (whole && entries[i].is_matrix())
        fault += fmt::format("; its matrix rank is {}, so P Q^T must be the mean itself",
                             i == second ? 1 : std::min(r, entries[i].factors()));
      return {{fault}};
    }
  }
  return {};
}

Json collect_steps(World& world) {
  return {{"steps", take(world, many_steps, "gradients of full rank")}};
}

Verdict judge_feedback(const Run& run) {
  const std::vector<Entry> entries = entries_of(run.seed);
  const Seen seen(run, "steps");
  if (const std::string fault = seen.disagreement(many_steps); !fault.empty()) return {{fault}};
  std::map<std::string, Matrix> sent, given;
  for (const Entry& entry : entries) {
    sent.emplace(entry.name, Matrix(entry.rows(), entry.columns()));
    given.emplace(entry.name, Matrix(entry.rows(), entry.columns()));
  }
  for (std::size_t number = 0; number < many_steps.size(); ++number)
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      Matrix &applied = sent.at(entry.name), &all = given.at(entry.name);
      const Matrix gradient = mean_of(i, many_steps[number], number, run),
                   m = sum(sum(all, applied, -1), gradient);
      const std::optional<Matrix> result = seen.result(entry, number);
      const auto says = [&](const std::string& fault) {
        return Verdict({fmt::format("step {}: {}", number, fault)});
      };
      all = sum(all, gradient);
      if (result) applied = sum(applied, *result);
      if (!entry.is_matrix()) {
        if (const std::string fault =
                difference_from(entry.name, *result, "the mean of the ranks", gradient);
            !fault.empty())
          return says(fault);
        continue;
      }
      if (result)
        if (const std::string fault =
                fault_of_projection(entry, *result, m, "the mean of gradients and errors");
            !fault.empty())
          return says(number > 0 && fault_of_projection(entry, *result, gradient, "").empty()
                          ? fmt::format("{} is a projection of the mean of this step's gradients "
                                        "alone: the errors of the step before are not in it",
                                        entry.name)
                          : fault);
      const std::optional<Matrix> error = seen.mean_error(entry, number);
      if (!error) return says(fmt::format("errors() has no {}, or not all numbers", entry.name));
      if (const std::string fault = difference_from(entry.name, sum(applied, *error),
                                                    "the sum of the mean gradients", all);
          !fault.empty())
        return says("all results and the mean of the errors together: " + fault);
    }
  return {};
}

Json collect_warm(World& world) {
  return {{"steps", take(world, many_steps, "gradients of full rank")},
          {"zeros", take(world, after_zeros, "gradients of zeros in step 0")}};
}

Verdict judge_warm(const Run& run) {
  const std::vector<Entry> entries = entries_of(run.seed);
  const Seen seen(run, "steps"), zeros(run, "zeros");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (!entry.is_matrix()) continue;
    Matrix rest(entry.rows(), entry.columns());
    std::optional<Matrix> before;
    for (std::size_t number = 0; number < many_steps.size(); ++number) {
      const Matrix m = sum(rest, mean_of(i, many_steps[number], number, run));
      const std::optional<Matrix> result = seen.result(entry, number);
      rest = m;
      if (!result) continue;
      if (before) {
        const Matrix basis = basis_of(product(m, transposed(*before)), entry.factors());
        if (const std::string fault = difference_from(
                entry.name, *result, "the projection of M onto M Q", projected(basis, m));
            !fault.empty())
          return {{fmt::format("step {}: {}, with the Q of the step before", number, fault)}};
      }
      before = result;
      rest = sum(m, *result, -1);
    }
  }
  for (std::size_t number = 0; number < after_zeros.size(); ++number)
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::optional<Matrix> result = zeros.result(entries[i], number);
      const std::string fault =
          !result ? entries[i].name + " has no gradient"
                  : difference_from(entries[i].name, *result, "the mean of the ranks",
                                    mean_of(i, after_zeros[number], number, run));
      if (!fault.empty())
        return {{fmt::format("{} of zeros: {}", number == 0 ? "a step" : "after a step", fault)}};
    }
  return {};
}

Verdict judge_bytes(const Run& run) {
  std::uint64_t expected = 0;
  for (const Entry& entry : entries_of(run.seed))
    expected +=
        entry.is_matrix() ? entry.factors() * (entry.rows() + entry.columns()) : entry.rows();
  return first_fault(run, [&](int rank, const Json& seen) -> std::string {
    const Json& step = seen.at("full").at(0);
    std::uint64_t numbers = 0, bytes = 0;
    for (const Json& call : step.at("calls")) {
      if (call.at("call") != "all_reduce")
        return fmt::format("a call of {}, expected all_reduce only",
                           call.at("call").get<std::string>());
      numbers += call.at("count").get<std::uint64_t>();
      bytes += ring_bytes(8 * call.at("count").get<std::uint64_t>(), run.world, rank);
    }
    if (numbers != expected)
      return fmt::format(
          "the all-reduces carry {} numbers, expected {}: r (n + m) for each matrix, and the "
          "vectors",
          numbers, expected);
    if (step.at("calls").size() > 3)
      return fmt::format("{} calls, expected 2, or 3 where vectors have one of their own",
                         step.at("calls").size());
    if (const std::uint64_t sent = step.at("sent"); sent != bytes)
      return fmt::format("sent {} bytes, expected {}", sent, bytes);
    return "";
  });
}

// ---- A basis ----

struct Columns {
  std::string name;
  Matrix numbers;
  std::vector<std::int64_t> dependent;
};

std::vector<Columns> all_columns(std::uint64_t seed) {
  const auto random = [&](std::int64_t rows, std::int64_t columns) {
    return random_matrix({"", {rows, columns}}, seed,
                         static_cast<std::uint64_t>(1 << 16 | rows << 4 | columns));
  };
  Matrix lengths = random(8, 3), parallel = random(10, 2), twice = random(7, 3),
         zero = random(6, 3);
  for (std::size_t i = 0; i < lengths.rows; ++i) lengths.at(i, 0) *= 1e8, lengths.at(i, 2) *= 1e-8;
  for (std::size_t i = 0; i < parallel.rows; ++i)
    parallel.at(i, 1) = parallel.at(i, 0) + 1e-3 * parallel.at(i, 1);
  for (std::size_t i = 0; i < twice.rows; ++i) twice.at(i, 1) = 2 * twice.at(i, 0);
  for (std::size_t i = 0; i < zero.rows; ++i) zero.at(i, 0) = 0;
  return {
      {"random numbers", random(9, 4), {}},      {"a square", random(3, 3), {}},
      {"columns of other lengths", lengths, {}}, {"columns that are nearly parallel", parallel, {}},
      {"column 1 twice column 0", twice, {1}},   {"column 0 zero", zero, {0}},
      {"all zero", Matrix(4, 2), {0, 1}}};
}

Json collect_orthonormal(World& world) {
  Json seen = Json::array();
  for (const Columns& each : all_columns(world.seed())) {
    const Matrix& p = each.numbers;
    const Tensor basis = Tensor::from(
        p.numbers, {static_cast<std::int64_t>(p.rows), static_cast<std::int64_t>(p.columns)});
    const std::vector<std::int64_t> dependent = student_make_orthonormal(basis);
    seen.push_back({{"basis", json_of(basis)}, {"dependent", dependent}});
  }
  return seen;
}

std::string fault_of_basis(const Columns& columns, const Matrix& basis,
                           std::vector<std::int64_t> dependent) {
  std::sort(dependent.begin(), dependent.end());
  if (dependent != columns.dependent)
    return fmt::format("returned {}, expected {}: the columns that depend on those before",
                       dependent, columns.dependent);
  for (std::size_t i = 0; i < basis.columns; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      const bool is_zero = std::find(dependent.begin(), dependent.end(),
                                     static_cast<std::int64_t>(i)) != dependent.end();
      const double seen = dot(basis, i, basis, j), expected = i == j && !is_zero ? 1 : 0;
      if (!near(seen, expected))
        return i == j ? fmt::format("the square of column {} is {:.6g}, expected {}", i, seen,
                                    expected)
                      : fmt::format("the product of columns {} and {} is {:.6g}, expected 0", j, i,
                                    seen);
    }
  for (std::size_t j = 0; j < basis.columns; ++j) {
    const Matrix& p = columns.numbers;
    Matrix column(p.rows, 1);
    const double length = std::sqrt(dot(p, j, p, j));
    for (std::size_t i = 0; i < p.rows && length > 0; ++i) column.at(i, 0) = p.at(i, j) / length;
    if (!near(projected(basis, column), column))
      return fmt::format("column {} of p is no sum of the columns of the basis", j);
  }
  return "";
}

Verdict judge_orthonormal(const Run& run) {
  std::size_t at = 0;
  for (const Columns& each : all_columns(run.seed)) {
    const Json& seen = run.ranks[0].at(at++);
    const Entry entry = {each.name,
                         {static_cast<std::int64_t>(each.numbers.rows),
                          static_cast<std::int64_t>(each.numbers.columns)}};
    const std::string fault =
        fault_of_basis(each, *matrix_of(seen.at("basis"), entry), seen.at("dependent"));
    if (!fault.empty())
      return {{fmt::format("{}, {} x {}: {}", each.name, each.numbers.rows, each.numbers.columns,
                           fault)}};
  }
  return {};
}

const Judge judge("44-powersgd", {{"orthonormal", collect_orthonormal, judge_orthonormal},
                                  {"projection", collect_projection, judge_projection},
                                  {"feedback", collect_steps, judge_feedback},
                                  {"warm-start", collect_warm, judge_warm},
                                  {"bytes", collect_projection, judge_bytes}});

}  // namespace
}  // namespace ringside::exercises::power_sgd
