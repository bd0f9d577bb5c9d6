#include "exercises/judge/program.hpp"

#include <csignal>
#include <cstdio>
#include <mutex>

#include <fcntl.h>
#include <unistd.h>

#include "base/environment.hpp"

namespace ringside::exercises {
namespace {

class Program {
 public:
  Program() {
    const std::string command = "exec " + environment("RINGSIDE_STUDENT_PROGRAM").value_or("false");
    int questions[2], answers[2];
    require(pipe2(questions, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0, "no pipe");
    std::signal(SIGPIPE, SIG_IGN);  // a program that has ended is told by its missing answer
    const pid_t child = fork();
    require(child >= 0, "the program cannot be started");
    if (child == 0) {
      dup2(questions[0], STDIN_FILENO), dup2(answers[1], STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    close(questions[0]), close(answers[1]);
    questions_ = fdopen(questions[1], "w"), answers_ = fdopen(answers[0], "r");
  }

  Json ask(const Json& question) {
    const std::scoped_lock lock(mutex_);
    std::fputs((question.dump() + "\n").c_str(), questions_);
    std::fflush(questions_);
    const auto length = getline(&line_, &capacity_, answers_);
    require(length > 0, "the program ended without an answer to {}", beginning_of(question));
    const auto answer = Json::parse_if_possible({line_, static_cast<std::size_t>(length)});
    require(answer.has_value(), "the program answers {:?} to {}, expected one line of JSON",
            std::string_view(line_, static_cast<std::size_t>(length - 1)), beginning_of(question));
    return *answer;
  }

 private:
  std::mutex mutex_;
  std::FILE *questions_ = nullptr, *answers_ = nullptr;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace

std::string beginning_of(const Json& question) {
  constexpr std::size_t longest = 200;
  const std::string text = question.dump();
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

Json ask_program(const Json& question) {
  static Program& program = *new Program;  // ends with the process
  return program.ask(question);
}

}  // namespace ringside::exercises
