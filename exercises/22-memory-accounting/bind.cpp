// Compiled with the student's files each time that they change.
#include "devices.cpp"
#include "exercises/22-memory-accounting/interface.hpp"
#include "state.cpp"

namespace ringside::exercises {
namespace {
namespace written = student::planning;
[[maybe_unused]] const bool bound =
    student_shards_of.bind(written::shards_of) &&
    student_parameter_bytes.bind(written::parameter_bytes) &&
    student_gradient_bytes.bind(written::gradient_bytes) &&
    student_master_bytes.bind(written::master_bytes) &&
    student_moment_bytes.bind(written::moment_bytes) &&
    student_state_of_model.bind(written::state_of_model) &&
    student_feed_forward_activations.bind(written::feed_forward_activations) &&
    student_devices_for_state.bind(written::devices_for_state) &&
    student_fsdp_bytes.bind(written::fsdp_bytes) &&
    student_fsdp_devices.bind(written::fsdp_devices);
}  // namespace
}  // namespace ringside::exercises
