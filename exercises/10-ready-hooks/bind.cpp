// Compiled with the student's files each time that one of them changes.
#include "accumulate_gradient.cpp"
#include "engine.cpp"
#include "exercises/10-ready-hooks/interface.hpp"

namespace ringside::exercises {
namespace {

void backward(const autograd::Tensor& loss, const autograd::Tensor& seed) {
  student::autograd::backward(loss, seed);
}

[[maybe_unused]] const bool bound =
    student_backward.bind(backward) &&
    student_accumulate_gradient.bind(student::autograd::accumulate_gradient);

}  // namespace
}  // namespace ringside::exercises
