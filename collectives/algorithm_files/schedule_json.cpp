#include "collectives/algorithm_files/schedule_json.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

namespace ringside {

using namespace collectives;

namespace {

constexpr const char* send_keys =
    R"("to", "first", "count" and perhaps "stride", "run", "input" and "held")";
constexpr const char* receive_keys =
    R"("from", "first", "count", "action" and perhaps "stride" and "run")";

// Throws Error unless `object` has only these keys. A key that is misspelt would not be noticed.
void require_keys(const Json& object, std::initializer_list<std::string_view> keys,
                  std::string_view expected) {
  // Not require(), which would write each object as a text.
  if (!object.is_object()) fail("expected an object with {}, not {}", expected, object.dump());
  for (const auto& [key, value] : object.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail("'{}' is unknown in {}: expected {}", key, object.dump(), expected);
}

int integer(const Json& object, const char* key, std::string_view expected) {
  // Some languages write 2 as 2.0.
  const double number =
      object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0.5;
  if (number != std::floor(number) || std::abs(number) >= 1e9)
    fail("{} has no integer '{}': expected {}", object.dump(), key, expected);
  return static_cast<int>(number);
}

ChunkRange chunks_from(const Json& message, int chunks, const char* expected) {
  const int first = integer(message, "first", expected),
            count = integer(message, "count", expected);
  if (!message.contains("stride")) return {first, count};
  require(chunks > 0, "chunks with a stride need a buffer that has chunks: {}", message.dump());
  const int run = message.contains("run") ? integer(message, "run", expected) : 1;
  require(run > 0, "a run has at least 1 chunk: {}", message.dump());
  return circular(first, count, integer(message, "stride", expected), chunks, run);
}

void add_chunks(Json& message, ChunkRange chunks) {
  message["first"] = chunks.first;
  message["count"] = chunks.count;
  if (chunks.modulus > 0) message["stride"] = chunks.stride;
  if (chunks.run != 1) message["run"] = chunks.run;
}

Step step_from(const Json& each, int chunks) {
  require_keys(each, {"send", "receive"}, R"("send", "receive" or both)");
  Step step;
  if (each.contains("send")) {
    const Json& send = each["send"];
    require_keys(send, {"to", "first", "count", "stride", "run", "input", "held"}, send_keys);
    step.send.emplace(
        Send{integer(send, "to", send_keys), chunks_from(send, chunks, send_keys), {}, {}});
    if (send.contains("input")) step.send->input = integer(send, "input", send_keys);
    if (send.contains("held")) step.send->held = integer(send, "held", send_keys);
  }
  if (each.contains("receive")) {
    const Json& receive = each["receive"];
    require_keys(receive, {"from", "first", "count", "stride", "run", "action"}, receive_keys);
    const Json action = receive.value("action", Json());
    require(action == "add" || action == "overwrite",
            "the action of {} must be \"add\" or \"overwrite\"", receive.dump());
    step.receive = Receive{.from = integer(receive, "from", receive_keys),
                           .chunks = chunks_from(receive, chunks, receive_keys),
                           .action = action == "add" ? Action::add : Action::overwrite};
  }
  return step;
}

}  // namespace

Json JsonForm<Schedule>::to_json(const Schedule& schedule) {
  Json steps = Json::array();
  for (const auto& [send, receive] : schedule.steps) {
    Json each = Json::object();
    if (send) {
      each["send"] = {{"to", send->to}};
      add_chunks(each["send"], send->chunks);
      if (send->input) each["send"]["input"] = *send->input;
      if (send->held) each["send"]["held"] = *send->held;
    }
    if (receive) {
      each["receive"] = {{"from", receive->from}};
      add_chunks(each["receive"], receive->chunks);
      each["receive"]["action"] = receive->action == Action::add ? "add" : "overwrite";
    }
    steps.push_back(std::move(each));
  }
  return {{"chunks", schedule.chunks}, {"steps", std::move(steps)}};
}

Schedule JsonForm<Schedule>::from_json(const Json& object) {
  constexpr const char* expected = R"("chunks" and "steps")";
  require_keys(object, {"chunks", "steps"}, expected);
  Schedule schedule{.chunks = integer(object, "chunks", expected), .steps = {}};
  require(object.contains("steps") && object["steps"].is_array(),
          "a schedule needs a list of \"steps\"");
  for (const Json& each : object["steps"]) {
    try {
      schedule.steps.push_back(step_from(each, schedule.chunks));
    } catch (const Error& error) {
      fail("step {}: {}", schedule.steps.size(), error.what());
    }
  }
  return schedule;
}

}  // namespace ringside
