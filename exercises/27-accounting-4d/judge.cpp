// Judges times and bounds of a batch on X times Y devices: on the course's XXL model, and on
// numbers that differ between students.
#include "base/random.hpp"
#include "exercises/27-accounting-4d/interface.hpp"
#include "exercises/judge/planning/formulas.hpp"
#include "exercises/judge/planning/inputs_json.hpp"
#include "exercises/judge/program.hpp"

namespace ringside::exercises {
namespace {

using namespace planning;

struct Problem {
  std::string name;
  SplitInput input;
  double batch;  // tokens over all devices
};

std::vector<Problem> problems(std::uint64_t seed) {
  const SplitInput xxl{.width = 16384,
                       .inner = 53248,
                       .fsdp = 16,
                       .tensor = 4,
                       .peak = 4.6e14,
                       .bandwidth = 1.8e11,
                       .torus_fsdp = 2,
                       .torus_tensor = 1};
  SplitInput wide = xxl;
  wide.tensor = 32;  // more than computing can hide
  std::vector<Problem> all = {{"XXL, X = 16, Y = 4, M_X = 2, M_Y = 1", xxl, 64 * 1024.0},
                              {"XXL, X = 16, Y = 32, M_X = 2, M_Y = 1", wide, 512 * 1024.0}};
  for (std::uint64_t k = 0; k < 6; ++k) {
    const auto number = [&](std::uint64_t low, std::uint64_t high, std::uint64_t which) {
      return static_cast<double>(low + random_below(high - low + 1, seed, k, which));
    };
    const SplitInput input{.width = 1024 * number(1, 16, 0),
                           .inner = 1024 * number(8, 64, 1),
                           .fsdp = number(2, 64, 2),
                           .tensor = number(2, 12, 3),
                           .peak = 1e14 * number(1, 9, 4),
                           .bandwidth = 1e10 * number(5, 90, 5),
                           .torus_fsdp = number(1, 2, 6),
                           .torus_tensor = number(1, 2, 7)};
    all.push_back({fmt::format("D = {}, F = {}, X = {}, Y = {}, C = {:g} FLOP/s, W = {:g} B/s, "
                               "M_X = {}, M_Y = {}",
                               input.width, input.inner, input.fsdp, input.tensor, input.peak,
                               input.bandwidth, input.torus_fsdp, input.torus_tensor),
                   input, 1000 * number(1, 99, 8)});
  }
  return all;
}

using Known = std::vector<std::pair<double, std::string>>;

Question question(const Student<TermOfSplit>& student, TermOfSplit* reference, const char* name,
                  const Problem& of, Known known = {}) {
  return {fmt::format("{}: {}", of.name, name), [&student, of] { return student(of.input); },
          [reference, of] { return reference(of.input); }, std::move(known)};
}

Known by_a_factor(double right) {
  return {{2 * right, "twice as long: with 4 bytes a number, or with half of W"},
          {right / 2, "half as long: with 1 byte a number, or with one of two calls"}};
}

std::vector<Question> time_questions(std::uint64_t seed) {
  std::vector<Question> questions;
  const auto of_batch = [&](const Student<TimeOfBatch>& student, TimeOfBatch* reference,
                            const char* name, const Problem& of, Known known) {
    questions.push_back({fmt::format("{}: {}, B = {} tokens", of.name, name, of.batch),
                         [&student, of] { return student(of.input, of.batch); },
                         [reference, of] { return reference(of.input, of.batch); },
                         std::move(known)});
  };
  for (const Problem& each : problems(seed)) {
    of_batch(student_compute_seconds, split_compute_seconds, "split_compute_seconds", each, {});
    questions.push_back(question(student_fsdp_seconds, split_fsdp_seconds, "split_fsdp_seconds",
                                 each, by_a_factor(split_fsdp_seconds(each.input).value())));
    of_batch(student_tensor_seconds, split_tensor_seconds, "split_tensor_seconds", each,
             by_a_factor(split_tensor_seconds(each.input, each.batch).value()));
  }
  return questions;
}

std::vector<Question> given_split_questions(std::uint64_t seed) {
  std::vector<Question> questions;
  for (const Problem& each : problems(seed)) {
    const double best = tokens_at_best_split(each.input).value(),
                 overlapped = tokens_if_overlapped(each.input).value(),
                 hidden = each.input.peak /
                          (each.input.bandwidth * each.input.tensor * each.input.torus_fsdp);
    const Known known = {
        {best, "the bound at the best X and Y for this N, but here X and Y are given"},
        {overlapped / 4096, "in sequences of 4096; the answer is in tokens"},
        {hidden, "FSDP's bound alone"},
        {2 * overlapped, "with W for one direction only"}};
    questions.push_back(question(student_tokens_if_overlapped, tokens_if_overlapped,
                                 "tokens_if_overlapped", each, known));
    questions.push_back(
        question(student_tokens_if_added, tokens_if_added, "tokens_if_added", each, known));
  }
  return questions;
}

std::vector<Question> best_split_questions(std::uint64_t seed) {
  std::vector<Question> questions;
  for (const Problem& each : problems(seed)) {
    questions.push_back(
        question(student_tokens_at_best_split, tokens_at_best_split, "tokens_at_best_split", each,
                 {{tokens_if_overlapped(each.input).value(), "the bound at the given X and Y"}}));
    questions.push_back(question(student_best_fsdp, best_fsdp, "best_fsdp", each,
                                 {{each.input.fsdp, "the given X"}}));
    questions.push_back(question(student_largest_tensor, largest_tensor, "largest_tensor", each));
  }
  return questions;
}

template <std::vector<Question> (*questions)(std::uint64_t seed)>
Json collect(World& world) {
  return answers_to(questions(world.seed()));
}

template <std::vector<Question> (*questions)(std::uint64_t seed)>
Verdict judge_them(const Run& run) {
  return judge_answers(run.ranks[0], questions(run.seed));
}

void by_program() {
  answer_by_program(student_compute_seconds, "split_compute_seconds");
  answer_by_program(student_fsdp_seconds, "split_fsdp_seconds");
  answer_by_program(student_tensor_seconds, "split_tensor_seconds");
  answer_by_program(student_tokens_if_overlapped, "tokens_if_overlapped");
  answer_by_program(student_tokens_if_added, "tokens_if_added");
  answer_by_program(student_tokens_at_best_split, "tokens_at_best_split");
  answer_by_program(student_best_fsdp, "best_fsdp");
  answer_by_program(student_largest_tensor, "largest_tensor");
}

const Judge judge("27-accounting-4d",
                  {{"times", collect<time_questions>, judge_them<time_questions>},
                   {"given-split", collect<given_split_questions>,
                    judge_them<given_split_questions>},
                   {"best-split", collect<best_split_questions>, judge_them<best_split_questions>}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
