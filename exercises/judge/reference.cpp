// In the program that judges, and in no program with a student's code.
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

[[maybe_unused]] static const bool held = hold_the_reference();

}  // namespace ringside::exercises
