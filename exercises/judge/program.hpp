// A student's program in any language, in the place of C++ code. It reads a question from each line
// of its standard input, and writes the answer as one line:
//
//     {"call": "ring_all_gather", "args": [4, 1]}
//     {"chunks": 4, "steps": [{"send": ..., "receive": ...}, ...]}
//
// exercises/programs.md lists the calls of each exercise.
#pragma once

#include <string>

#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

// Starts the program at the first call: the shell command in RINGSIDE_STUDENT_PROGRAM. Throws Error
// if it ends, or if a line is no JSON.
Json ask_program(const Json& question);
// For a message: its first 200 characters.
std::string beginning_of(const Json& question);

// The program's answer to this call. Arguments and result have forms in JSON (JsonForm). Throws
// Error with the text of the answer {"error": text}, as C++ code throws it.
template <class Result, class... Args>
Result answer_of_program(const std::string& call, const Args&... args) {
  Json question = {{"call", call}, {"args", Json::array()}};
  (question["args"].push_back(args), ...);
  const Json answer = ask_program(question);
  if (answer.is_object() && answer.contains("error"))
    fail("{}", answer.at("error").get<std::string>());
  try {
    return answer.get<Result>();
  } catch (const JsonError& error) {
    fail("the program answers {} to {}, which has not the form that programs.md shows: {}",
         beginning_of(answer), beginning_of(question), error.what());
  }
}

// Lets the program answer all calls of `student`.
template <class Result, class... Args>
void answer_by_program(Student<Result(Args...)>& student, const std::string& call) {
  student.bind([call](Args... args) { return answer_of_program<Result>(call, args...); });
}

}  // namespace ringside::exercises
