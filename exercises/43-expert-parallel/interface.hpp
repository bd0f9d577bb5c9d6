// What the judge calls: the router, the way to the experts and back, and their gradients.
#pragma once

#include "collectives/process_group.hpp"
#include "exercises/43-expert-parallel/pieces.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using Numbers = std::span<const float>;

inline Student<experts::Routing(Numbers logits, int experts, int per_token)> student_route;
inline Student<experts::Plan(const std::vector<int>& chosen, int experts, int per_token,
                             collectives::ProcessGroup& group)>
    student_plan_dispatch;
// dispatch() gets x, dispatch_backward() the gradients of its rows.
inline Student<std::vector<float>(Numbers rows, const experts::Plan&plan, int width,
                                  collectives::ProcessGroup&group)>
    student_dispatch, student_dispatch_backward;
inline Student<experts::Combined(Numbers outputs, Numbers weights, const experts::Plan& plan,
                                 int width, collectives::ProcessGroup& group)>
    student_combine;
inline Student<experts::CombineGradients(Numbers dy, Numbers weights, Numbers kept,
                                         const experts::Plan& plan, int width,
                                         collectives::ProcessGroup& group)>
    student_combine_backward;
inline Student<std::vector<float>(const experts::Routing& routing, Numbers dweights, int experts,
                                  int per_token)>
    student_route_backward;

}  // namespace ringside::exercises
