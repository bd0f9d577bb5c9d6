// The student's code, as the judges call it. Small, because it is compiled at every edit.
#pragma once

#include <functional>
#include <utility>

#include "base/error.hpp"

namespace ringside::exercises {

// How often judges have called the student's code in this process.
int student_calls();
void count_student_call();

// A function that interface.hpp of the exercise declares, and bind.cpp sets to the student's.
template <class Function>
class Student;
template <class Result, class... Args>
class Student<Result(Args...)> {
 public:
  bool bind(std::function<Result(Args...)> function) {
    function_ = std::move(function);
    return true;
  }
  Result operator()(Args... args) const {
    require(function_ != nullptr, "this program holds no student's code for this exercise");
    count_student_call();
    return function_(std::forward<Args>(args)...);
  }

 private:
  std::function<Result(Args...)> function_;
};

}  // namespace ringside::exercises
