#include "planning/fit.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace ringside::planning {
namespace {

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t i = 1; i <= number; ++i)
    if (number % i == 0) divisors.push_back(i);
  return divisors;
}

MeshShape mesh_of(std::int64_t pp, std::int64_t dp, std::int64_t fsdp, std::int64_t tp) {
  MeshShape mesh;
  for (const auto& [axis, size] :
       {std::pair(Axis::tp, tp), {Axis::fsdp, fsdp}, {Axis::dp, dp}, {Axis::pp, pp}})
    if (size > 1) mesh = mesh.with(axis, static_cast<int>(size));
  return mesh;
}

bool is_valid(const Plan& plan, const Model& model) {
  try {
    validate(plan, model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

class Search {
 public:
  Search(const Model& model, const Machine& machine, const FitOptions& options)
      : model_(model), machine_(machine), options_(options) {
    result_.least_memory = std::numeric_limits<double>::infinity();
  }

  Fit run() {
    try_all_meshes();
    for (Account& each : result_.accounts) each = account(model_, each.plan, machine_);
    std::ranges::sort(result_.accounts, {}, &Account::step_seconds);
    return std::move(result_);
  }

 private:
  void try_all_meshes() {
    const Quantity::ValuesOnly thousands_of_plans;
    for (const std::int64_t tp : divisors_of(options_.devices)) {
      if (tp > machine_.levels.front().group) continue;
      for (const std::int64_t pp : divisors_of(options_.devices / tp)) {
        // Either all data ranks shard the parameters, or none does, or those of one server do.
        const std::int64_t data = options_.devices / tp / pp,
                           inner = machine_.levels.front().group / tp;
        try_mesh(mesh_of(pp, data, 1, tp));
        if (data > 1) try_mesh(mesh_of(pp, 1, data, tp));
        if (inner > 1 && data > inner && data % inner == 0)
          try_mesh(mesh_of(pp, data / inner, inner, tp));
      }
    }
  }

  // Keeps the fastest plan on this mesh that fits.
  void try_mesh(const MeshShape& mesh) {
    std::vector<Account> best;
    const bool is_pipeline = mesh.size(Axis::pp) > 1;
    for (const std::string& schedule :
         is_pipeline ? schedule_names() : std::vector<std::string>{"1f1b"})
      for (const std::int64_t chunks : {1, 2, 4})
        if ((chunks > 1) == takes_chunks(schedule)) try_schedule(mesh, schedule, chunks, best);
    if (!best.empty()) result_.accounts.push_back(std::move(best.front()));
  }

  void try_schedule(const MeshShape& mesh, const std::string& schedule, std::int64_t chunks,
                    std::vector<Account>& best) {
    for (int zero = 0; zero <= (mesh.size(Axis::dp) > 1 ? 2 : 0); ++zero)
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
        for (const bool sequence_parallel : {false, true})
          for (std::int64_t b = 1; b <= options_.batch; b *= 2)
            try_plan({.mesh = mesh,
                      .schedule = schedule,
                      .chunks = chunks,
                      .micro_batch = b,
                      .micro_batches = options_.batch / (mesh.data_ranks() * b),
                      .sequence = options_.sequence,
                      .zero = zero,
                      .recompute = recompute,
                      .sequence_parallel = sequence_parallel,
                      .types = options_.types},
                     best);
  }

  void try_plan(const Plan& plan, std::vector<Account>& best) {
    if (plan.micro_batches < 1 || plan.batch() != options_.batch || !is_valid(plan, model_)) return;
    ++result_.tried;
    const double memory =
        std::ranges::max(memory_of_stages(on_mesh(model_, plan.mesh), plan), {}, &RankMemory::total)
            .total();
    result_.least_memory = std::min(result_.least_memory, memory);
    if (memory > machine_.memory) return;
    Account tried = account(model_, plan, machine_);
    if (best.empty())
      best.push_back(std::move(tried));
    else if (tried.step_seconds < best.front().step_seconds)
      best.front() = std::move(tried);
  }

  const Model& model_;
  const Machine& machine_;
  const FitOptions& options_;
  Fit result_;
};

}  // namespace

Fit fit(const Model& model, const Machine& machine, const FitOptions& options) {
  require(model.has_blocks(), "only the state of {} can be accounted for, so no plan can be tried",
          model.name);
  machine.level_for(options.devices);
  Fit found = Search(model, machine, options).run();
  require(found.tried > 0,
          "no mesh of {} devices divides {} and a batch of {} sequences: choose another --batch, a "
          "multiple of the number of data-parallel ranks",
          options.devices, model.name, options.batch);
  return found;
}

}  // namespace ringside::planning
