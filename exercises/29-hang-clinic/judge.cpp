// Judges diagnoses of hangs: of flight records that are made from the seed, with a known cause.
#include "base/text/words.hpp"
#include "exercises/29-hang-clinic/interface.hpp"
#include "exercises/judge/collectives/hang_scenes.hpp"
#include "exercises/judge/program.hpp"

template <>
struct ringside::JsonForm<ringside::collectives::Flight> {
  static Json to_json(const collectives::Flight& flight) {
    Json json = {
        {"rank", flight.header.rank}, {"size", flight.header.size}, {"entries", Json::array()}};
    for (const auto& entry : flight.entries)
      json["entries"].push_back(
          {{"number", entry.sequence},
           {"call", describe(entry.call)},
           {"is message", entry.call.collective == collectives::Collective::point_to_point},
           {"is done", entry.state == collectives::FlightEntry::done},
           {"waiting for", entry.waiting_for}});
    return json;
  }
};
template <>
struct ringside::JsonForm<ringside::collectives::Divergence> {
  static collectives::Divergence from_json(const Json& json) {
    collectives::Divergence found;
    found.sequence = json.at("number"), found.made = json.at("made").get<decltype(found.made)>();
    return found;
  }
};
template <>
struct ringside::JsonForm<ringside::collectives::Laggards> {
  static collectives::Laggards from_json(const Json& json) {
    collectives::Laggards found;
    found.sequence = json.at("number"), found.ranks = json.at("ranks").get<std::vector<int>>();
    return found;
  }
};

namespace ringside::exercises {
namespace {

using namespace collectives;

std::string words(const std::optional<Divergence>& found) {
  if (!found) return "none";
  std::string text = fmt::format("call #{}", found->sequence);
  for (const auto& [call, ranks] : found->made)
    text += fmt::format("; {} made {}", ranks_in_words(ranks), call);
  return text;
}
std::string words(const std::optional<Laggards>& found) {
  if (!found) return "none";
  return fmt::format("call #{}, {}", found->sequence,
                     found->ranks.empty() ? "no rank" : ranks_in_words(found->ranks));
}
std::string words(const std::vector<int>& ranks) {
  return ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", "));
}

template <auto& student>
Json collect(World& world) {
  Json answers = Json::array();
  for (const HangScene& scene : hang_scenes(world.seed()))
    answers.push_back(words(student(scene.flights)));
  return answers;
}

template <auto reference>
Verdict judge_answers(const Run& run) {
  const std::vector<HangScene> all = hang_scenes(run.seed);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string seen = run.ranks[0].at(i), expected = words(reference(all[i].flights));
    if (seen != expected)
      return {{fmt::format("of {} ranks, {}", all[i].flights[0].header.size, all[i].name),
               "you find: " + seen, "expected: " + expected},
              postmortem(all[i].flights)};
  }
  return {};
}

void by_program() {
  answer_by_program(student_divergence, "divergence");
  answer_by_program(student_laggards, "laggards");
  answer_by_program(student_without_record, "without_record");
  answer_by_program(student_circle, "circle");
}

const Judge judge("29-hang-clinic",
                  {{"divergence", collect<student_divergence>, judge_answers<divergence>},
                   {"laggards", collect<student_laggards>, judge_answers<laggards>},
                   {"without-record", collect<student_without_record>,
                    judge_answers<without_record>},
                   {"circle", collect<student_circle>, judge_answers<circle>}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
