// What the judge calls: formulas of the memory that training takes.
#pragma once

#include "exercises/judge/planning/state.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using planning::Quantity;
using planning::Term;
using planning::Types;

// The bytes of one kind of state on one rank.
using StateBytes = Term(const Quantity& parameters, const Types& types, double shards);

inline Student<planning::Shards(const planning::Plan& plan)> student_shards_of;
inline Student<StateBytes> student_parameter_bytes, student_gradient_bytes, student_master_bytes,
    student_moment_bytes;
inline Student<Term(const Quantity& parameters, const Types& types)> student_state_of_model;
inline Student<Term(const Quantity& tokens, const Quantity& width, const Quantity& inner,
                    const Quantity& bytes, const Quantity& tensor_ranks)>
    student_feed_forward_activations;
inline Student<Term(const Quantity& state, const Quantity& memory)> student_devices_for_state;
inline Student<Term(const Quantity& state, const Quantity& activations, const Quantity& devices)>
    student_fsdp_bytes;
inline Student<Term(const Quantity& state, const Quantity& activations, const Quantity& memory)>
    student_fsdp_devices;

}  // namespace ringside::exercises
