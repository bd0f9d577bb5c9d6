#include "cli/pictures/account/account_questions.hpp"

#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/pictures/account/account.hpp"
#include "cli/pictures/wrap.hpp"
#include "planning/formulas/activations.hpp"
#include "planning/formulas/bounds.hpp"
#include "planning/formulas/devices.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/state.hpp"

namespace ringside::cli {
namespace {

using namespace planning;

constexpr double gib = 1024.0 * 1024 * 1024;

std::string paragraph(const std::string& text) {
  return wrap(text, 80) + "\n";
}

// "  41   why this is wrong"
std::string wrong_answer(const std::string& value, const std::string& why) {
  return fmt::format("  {:>7}  {}\n", value, wrap(why, 80, 11));
}

// "80 GB", "71.87 GB", "3,518 GB".
std::string in_gb(double bytes) {
  const double gb = bytes / 1e9;
  return (gb >= 1000 ? table_number(gb) : number_text(gb)) + " GB";
}

Term state_of(const QuestionInput& input, Answer& answer) {
  answer.derivation.push_back({"Parameters and their state", parameter_count(input.model)});
  auto& terms = answer.derivation.back().terms;
  const Term state = state_of_model(terms.back(), input.plan.types);
  terms.push_back(state);
  return state;
}

Answer devices(const QuestionInput& input) {
  Answer answer;
  const Term state = state_of(input, answer);
  const double memory = input.machine.memory;
  const Term count = devices_for_state(state, Quantity("M_device", memory));
  answer.derivation.back().terms.push_back(count);
  const double exact = state.value() / memory, in_gib = state.value() / gib,
               twice = state.value() / input.plan.types.state() * (input.plan.types.state() + 8);
  answer.text =
      paragraph(fmt::format("{:.0f} devices of {} hold the state of {}: {} / {} = {:.2f}, rounded "
                            "up.",
                            count.value(), in_gb(memory), input.model.name, in_gb(state.value()),
                            in_gb(memory), exact)) +
      "\nWrong answers that were published, and where they come from:\n" +
      wrong_answer(fmt::format("{:.0f}", std::ceil(in_gib / (memory / 1e9))),
                   fmt::format("GiB for GB: the state is {:.0f} GiB (2^30 bytes), and that was "
                               "divided by {:.0f}, which are GB (10^9 bytes)",
                               in_gib, memory / 1e9)) +
      wrong_answer(fmt::format("{:.0f}", std::ceil(twice / memory)),
                   fmt::format("the moments counted twice: {:.0f} bytes per parameter already "
                               "contain the 8 bytes of AdamW",
                               input.plan.types.state())) +
      wrong_answer(fmt::format("{:.2f}", exact), "there are no fractions of a device");
  answer.figures = {{"devices", count.value()}, {"state_bytes", state.value()}};
  return answer;
}

Answer fsdp_question(const QuestionInput& input) {
  Answer answer;
  require(input.model.has_blocks(), "the activations of {} are not known", input.model.name);
  const Term state = state_of(input, answer);
  Plan one_token = input.plan;
  one_token.mesh = {}, one_token.sequence_parallel = false;
  one_token.sequence = one_token.micro_batch = 1;
  const Term block = block_activations(input.model, one_token);
  const Term token{"A_token", "activations of one token, all blocks",
                   Quantity("L", input.model.layers) * block, Unit::bytes, block.source};
  const Term kept{"A", "activations of a device's tokens", Quantity("tokens", input.tokens) * token,
                  Unit::bytes, block.source};
  answer.derivation.push_back({"Activations", {block, token, kept}});
  const Quantity memory("M_device", input.machine.memory);
  require(kept.value() / 2 < memory.value(),
          "half of the activations of {:.0f} tokens take {}, more than the {} of a device: choose "
          "fewer --tokens",
          input.tokens, in_gb(kept.value() / 2), in_gb(memory.value()));
  const Term without = fsdp_devices(state, 0, memory), count = fsdp_devices(state, kept, memory);
  answer.derivation.push_back(
      {"Devices", {without, count, fsdp_bytes(state, kept, Quantity("N", count.value()))}});
  answer.text =
      paragraph(fmt::format("FSDP needs {:.0f} devices of {} with {:.0f} tokens a device, if the "
                            "state and half of the activations are divided by N, and the other "
                            "half is not. Without activations it needs {:.0f}.",
                            count.value(), in_gb(memory.value()), input.tokens, without.value())) +
      paragraph(fmt::format("One token keeps {} bytes; those of a device keep {}.",
                            text_with_unit(token.value(), Unit::number), in_gb(kept.value()))) +
      "\nA wrong answer that was published:\n" +
      wrong_answer(
          fmt::format("{:.0f}", std::ceil((state.value() + kept.value()) / memory.value())),
          "all activations divided by N: half of them are whole on every device");
  answer.figures = {{"devices", count.value()},
                    {"devices_without_activations", without.value()},
                    {"activation_bytes_per_token", token.value()}};
  return answer;
}

SplitInput split_of(const QuestionInput& input) {
  require(input.machine.levels.size() >= 1 && input.model.d_ff > 0,
          "the width of the feed-forward part of {} is not known", input.model.name);
  return {.width = static_cast<double>(input.model.d_model),
          .inner = static_cast<double>(input.model.d_ff),
          .fsdp = static_cast<double>(input.plan.mesh.size(parallel::Axis::fsdp)),
          .tensor = static_cast<double>(input.plan.mesh.size(parallel::Axis::tp)),
          .peak = input.machine.peak,
          .bandwidth = input.machine.levels.front().bytes_per_second *
                       input.machine.levels.front().efficiency,
          .torus_fsdp = input.plan.torus_fsdp,
          .torus_tensor = input.plan.torus_tp};
}

Answer tokens_question(const QuestionInput& input) {
  Answer answer;
  const SplitInput split = split_of(input);
  const double devices = split.fsdp * split.tensor;
  const Term overlapped = tokens_if_overlapped(split), added = tokens_if_added(split),
             best = tokens_at_best_split(split), x = best_fsdp(split), y = largest_tensor(split);
  const double batch = std::isfinite(overlapped.value()) ? overlapped.value() * devices : 1;
  answer.derivation.push_back({"The three times of a block's forward, at the first bound",
                               {split_compute_seconds(split, batch), split_fsdp_seconds(split),
                                split_tensor_seconds(split, batch)}});
  answer.derivation.push_back({"The bounds", {overlapped, added, best, x, y}});
  const auto row = [&](const Term& bound, const std::string& what) {
    return fmt::format("  {:>9} a device {:>8} in all   {}\n",
                       std::isfinite(bound.value()) ? fmt::format("{:.2f}", bound.value()) : "none",
                       std::isfinite(bound.value())
                           ? text_with_unit(std::round(bound.value() * devices), Unit::number)
                           : "-",
                       wrap(what, 80, 41));
  };
  answer.text =
      paragraph(fmt::format("Least batch, in tokens, that is bound by computing on {:.0f} "
                            "devices (FSDP X = {:.0f}, tensor parallel Y = {:.0f}):",
                            devices, split.fsdp, split.tensor)) +
      row(overlapped,
          "this X and Y, where the two axes' communication overlaps: the "
          "larger counts") +
      row(added, "this X and Y, where their times add up") +
      row(best, fmt::format("the best split of these devices, X = {:.2f}", x.value()));
  answer.text += "\n";
  answer.text += paragraph(fmt::format(
      "The third is no bound for X = {:.0f}: it chooses X, and X is given. A published answer took "
      "its {:.0f} tokens for the bound at X = {:.0f}, Y = {:.0f}. Tensor parallel alone is hidden "
      "as long as Y is below {:.1f}, whatever the batch.",
      split.fsdp, best.value(), split.fsdp, split.tensor, y.value()));
  answer.figures = {{"tokens_if_overlapped", overlapped.value()},
                    {"tokens_if_added", added.value()},
                    {"tokens_at_best_split", best.value()},
                    {"best_fsdp", x.value()},
                    {"largest_tensor", y.value()}};
  return answer;
}

Answer splits_question(const QuestionInput& input) {
  Answer answer;
  SplitInput split = split_of(input);
  const auto devices = static_cast<std::int64_t>(split.fsdp * split.tensor);
  answer.text =
      paragraph(fmt::format("Least batch, in tokens of a device, that is bound by "
                            "computing, for each split of {} devices:",
                            devices));
  const Show bound = [](double count) {
    return std::isfinite(count) ? fmt::format("{:.1f}", count) : "none";
  };
  Table table{{number("FSDP X", "fsdp"), number("TP Y", "tensor"),
               number("overlapped", "tokens_if_overlapped", bound),
               number("added", "tokens_if_added", bound)}};
  for (std::int64_t y = 1; y <= devices; ++y) {
    if (devices % y != 0) continue;
    split.fsdp = static_cast<double>(devices / y), split.tensor = static_cast<double>(y);
    table.rows.push_back(
        {devices / y, y, tokens_if_overlapped(split).value(), tokens_if_added(split).value()});
  }
  answer.text += table.text();
  answer.figures["splits"] = table.json();
  const Term best = tokens_at_best_split(split), x = best_fsdp(split), y = largest_tensor(split);
  answer.derivation.push_back({"The best split", {best, x, y}});
  answer.text += "\n";
  answer.text += paragraph(fmt::format(
      "A smaller batch needs a better split: more tensor parallel divides the weights that FSDP "
      "gathers, up to Y = {:.1f}, where tensor parallel itself takes as long as computing. If X "
      "need not be an integer the best is X = {:.2f}, with {:.2f} tokens a device.",
      y.value(), x.value(), best.value()));
  answer.text += paragraph(
      "Other ways: overlap the two axes (the column `overlapped`); give FSDP more axes of the "
      "torus (--torus); pipeline parallel, "
      "which sends activations only. Smaller types do not help where computing gets faster by "
      "the same factor.");
  return answer;
}

}  // namespace

const std::vector<std::string>& question_names() {
  static const std::vector<std::string> names = {"devices", "fsdp-devices", "tokens", "splits"};
  return names;
}

Answer answer_to(const std::string& question, const QuestionInput& input) {
  if (question == "devices") return devices(input);
  if (question == "fsdp-devices") return fsdp_question(input);
  if (question == "tokens") return tokens_question(input);
  require(question == "splits", "there is no question '{}'; the questions are {}", question,
          fmt::join(question_names(), ", "));
  return splits_question(input);
}

}  // namespace ringside::cli
