#include "exercises/judge/planning/bounds.hpp"

#include <limits>

namespace ringside::planning {
namespace {

constexpr const char* course = "Stanford CS336, assignment 2, question (c)";
constexpr const char* scaling = "Austin et al. 2025, How to scale your model, chapter 5";

// The symbols of the header.
struct Symbols {
  explicit Symbols(const SplitInput& input)
      : d("D", input.width),
        f("F", input.inner),
        x("X", input.fsdp),
        y("Y", input.tensor),
        c("C", input.peak),
        w("W", input.bandwidth),
        m_x("M_X", input.torus_fsdp),
        m_y("M_Y", input.torus_tensor),
        n("N", input.fsdp * input.tensor) {}
  Quantity d, f, x, y, c, w, m_x, m_y, n;
};

// Whether tensor parallel's communication takes at least as long as computing.
bool tensor_never_hidden(const SplitInput& input) {
  return input.tensor >= largest_tensor(input).value();
}

Term no_batch(const char* what) {
  return {"B/N", what, Quantity("infinite", std::numeric_limits<double>::infinity()), Unit::tokens,
          course};
}

}  // namespace

Term split_compute_seconds(const SplitInput& input, double batch) {
  const Symbols s(input);
  const Quantity b("B", batch);
  return {"t_compute", "computing", 4 * b * s.d * s.f / (s.n * s.c), Unit::seconds, course};
}

Term split_fsdp_seconds(const SplitInput& input) {
  const Symbols s(input);
  return {"t_fsdp", "FSDP's all-gathers", 4 * s.d * s.f / (s.y * s.w * s.m_x), Unit::seconds,
          course};
}

Term split_tensor_seconds(const SplitInput& input, double batch) {
  const Symbols s(input);
  const Quantity b("B", batch);
  return {"t_tensor", "tensor parallel's all-gather and reduce-scatter",
          4 * b * s.d / (s.x * s.w * s.m_y), Unit::seconds, course};
}

// t_compute > t_fsdp, solved for B/N.
Term tokens_if_overlapped(const SplitInput& input) {
  constexpr const char* what = "tokens of a device, if the two axes' communication overlaps";
  if (tensor_never_hidden(input)) return no_batch(what);
  const Symbols s(input);
  return {"B/N", what, s.c / (s.w * s.y * s.m_x), Unit::tokens, course};
}

// t_compute > t_fsdp + t_tensor, solved for B/N.
Term tokens_if_added(const SplitInput& input) {
  constexpr const char* what = "tokens of a device, if the two axes' communication adds up";
  if (tensor_never_hidden(input)) return no_batch(what);
  const Symbols s(input);
  return {"B/N", what, s.c / (s.w * s.y * s.m_x) / (1 - s.c * s.y / (s.w * s.f * s.m_y)),
          Unit::tokens, course};
}

// t_fsdp = t_tensor = t_compute: X = sqrt(B N M_X / (F M_Y)), put into t_compute > t_fsdp.
Term tokens_at_best_split(const SplitInput& input) {
  const Symbols s(input);
  return {"B/N", "tokens of a device, at the best X and Y for this N",
          s.c * s.c / (s.w * s.w * s.m_x * s.m_y * s.f), Unit::tokens, scaling};
}

Term best_fsdp(const SplitInput& input) {
  const Symbols s(input);
  const Quantity per_device = tokens_at_best_split(input);
  return {"X_best", "the best X for this N and that batch",
          sqrt(per_device * s.n * s.n * s.m_x / (s.f * s.m_y)), Unit::number, scaling};
}

// t_compute > t_tensor does not depend on B.
Term largest_tensor(const SplitInput& input) {
  const Symbols s(input);
  return {"Y_max", "the Y at which tensor parallel takes as long as computing",
          s.f * s.m_y * s.w / s.c, Unit::number, scaling};
}

}  // namespace ringside::planning
