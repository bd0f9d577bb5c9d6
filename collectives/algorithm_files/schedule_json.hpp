// A schedule as JSON: the form of algorithm files (algorithm_file.hpp) and of the answers to the
// exercises (exercises/programs.md).
//
//     {"chunks": 3, "steps": [{"send": {"to": 1, "first": 2, "count": 1},
//                              "receive": {"from": 2, "first": 1, "count": 1, "action": "add"}}]}
//
// A step may lack "send" or "receive". A send with "input" takes the rank's original input, from
// that chunk on; one with "held" takes what the rank holds, from that chunk on. With "stride": s
// the chunks are first, first + s, first + 2s, ..., and after the last chunk of the buffer comes
// chunk 0; with "run": r each of these begins a run of r chunks. Reading throws Error with the step
// and the message that are wrong.
#pragma once

#include "base/json.hpp"
#include "collectives/algorithms/schedule.hpp"

template <>
struct ringside::JsonForm<ringside::collectives::Schedule> {
  static Json to_json(const collectives::Schedule& schedule);
  static collectives::Schedule from_json(const Json& object);
};
