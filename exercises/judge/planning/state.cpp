#include "exercises/judge/planning/state.hpp"

namespace ringside::planning {
namespace {
constexpr const char* zero = "Rajbhandari et al. 2020 (ZeRO), section 3.1 and figure 1";
}

// Stage 1 divides the optimizer's state, stage 2 the gradients too, stage 3 the parameters too.
Shards shards_of(const Plan& plan) {
  const auto n = static_cast<double>(plan.state_ranks());
  return {.parameters = plan.stage() >= 3 ? n : 1,
          .gradients = plan.stage() >= 2 ? n : 1,
          .optimizer = plan.stage() >= 1 ? n : 1};
}

Term parameter_bytes(const Quantity& parameters, const Types& types, double shards) {
  const Quantity e("e", types.parameters), n("N", shards);
  return {"M_parameters", "parameters", e * parameters / n, Unit::bytes, zero};
}

Term gradient_bytes(const Quantity& parameters, const Types& types, double shards) {
  const Quantity e("e_g", types.gradients), n("N", shards);
  return {"M_gradients", "gradients", e * parameters / n, Unit::bytes, zero};
}

Term master_bytes(const Quantity& parameters, const Types& types, double shards) {
  const Quantity e("e_m", types.masters()), n("N", shards);
  return {"M_masters", "fp32 masters of the parameters", e * parameters / n, Unit::bytes, zero};
}

Term moment_bytes(const Quantity& parameters, const Types& types, double shards) {
  const Quantity e("e_o", types.moments()), n("N", shards);
  return {"M_moments", "AdamW's two moments", e * parameters / n, Unit::bytes, zero};
}

Term state_of_model(const Quantity& parameters, const Types& types) {
  const Quantity e("e", types.parameters), g("e_g", types.gradients), m("e_m", types.masters()),
      o("e_o", types.moments());
  return {"M_state", "parameters, gradients, masters and moments of the whole model",
          parameters * (e + g + m + o), Unit::bytes, zero};
}

}  // namespace ringside::planning
