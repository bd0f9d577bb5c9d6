#include "planning/formulas/unit_gathers.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "planning/formulas/parameters.hpp"
#include "planning/formulas/symbols.hpp"

namespace ringside::planning {
namespace {

using pipeline_parallel::Kind;

// Others: the number of a block.
constexpr int embedding_unit = -1, head_unit = -2, last_norm_unit = -3;

// Something whose forward reads a unit: the embedding, a block, or the last norm with the head.
// Where ranks divide a model, its vocabulary's matrices are gathered alone, so the head without the
// norm.
struct Use {
  int unit = 0;
  double parameters = 0;
  bool backward_reads = true;
};

class Uses {
 public:
  explicit Uses(std::vector<Use> uses) : uses_(std::move(uses)) {}

  void forward(std::size_t use, bool has_history) {
    enter(use, 1, true);
    const bool is_last = use + 1 == uses_.size();
    if (is_last && has_history) return;
    if (is_last || uses_[use + 1].unit != uses_[use].unit) whole_.erase(uses_[use].unit);
  }
  void forward_again(std::size_t use) { enter(use, -1, true); }
  void backward(std::size_t use) { enter(use, -1, uses_[use].backward_reads); }

  std::size_t size() const { return uses_.size(); }
  const Use& operator[](std::size_t use) const { return uses_[use]; }
  const UnitGathers& gathers() const { return gathers_; }

 private:
  // Frees all but what this use and the next one read, and gathers these.
  void enter(std::size_t use, int direction, bool reads) {
    std::set<int> kept;
    std::vector<const Use*> needed;
    if (reads) needed.push_back(&uses_[use]);
    for (auto next = static_cast<std::ptrdiff_t>(use) + direction;
         next >= 0 && next < std::ssize(uses_); next += direction) {
      const Use& other = uses_[static_cast<std::size_t>(next)];
      if (direction < 0 && !other.backward_reads) continue;
      if (reads && other.unit == uses_[use].unit) continue;
      needed.push_back(&other);
      break;
    }
    for (const Use* each : needed) kept.insert(each->unit);
    std::erase_if(whole_, [&](int unit) { return !kept.contains(unit); });
    for (const Use* each : needed)
      if (whole_.insert(each->unit).second)
        (direction > 0 ? gathers_.forward : gathers_.backward) += each->parameters;
  }

  const std::vector<Use> uses_;  // in the order of forward
  std::set<int> whole_;
  UnitGathers gathers_;
};

// A tied matrix that embedding and head of one rank share belongs to the unit of the head.
std::vector<Use> uses_of(const Model& model, const Plan& plan,
                         const pipeline_parallel::Schedule& schedule, int rank) {
  const Quantity t = tensor_ranks(plan);
  const bool is_alone = plan.mesh.size(Axis::tp) > 1 || plan.mesh.size(Axis::pp) > 1;
  const double block = whole_block(model, t).value(), matrix = embedding(model).value() / t.value(),
               head = is_alone ? matrix : matrix + last_norm(model).value();
  const bool has_embedding = schedule.rank_of.front() == rank,
             has_head = schedule.rank_of.back() == rank,
             shares = model.tied_head && has_embedding && has_head;
  std::vector<Use> uses;
  if (has_embedding)
    uses.push_back(shares ? Use{head_unit, head} : Use{embedding_unit, matrix, false});
  for (const int stage : stages_of(schedule, rank)) {
    const auto layers = pipeline_parallel::layers_of_stage(model.layers, schedule.stages(), stage);
    for (std::int64_t layer = layers.first; layer < layers.end; ++layer)
      uses.push_back({static_cast<int>(layer), block});
  }
  if (has_head && is_alone) uses.push_back({last_norm_unit, last_norm(model).value()});
  if (has_head) uses.push_back({head_unit, head});
  return uses;
}

}  // namespace

namespace {

// If `use`, which is block `block` of `blocks` in its stage, is the last of a group: backward first
// computes the group again.
void compute_again(Uses& uses, std::size_t use, std::int64_t block, std::int64_t blocks,
                   const Plan& plan) {
  const auto run = [&](std::int64_t size, std::int64_t begins_at, std::int64_t end) {
    const std::int64_t first = begins_at + (block - begins_at) / size * size,
                       last = std::min(first + size, end);
    if (block + 1 == last)
      for (std::int64_t each = first; each < last; ++each)
        uses.forward_again(use - static_cast<std::size_t>(block - each));
    return std::pair(first, last);
  };
  const auto [first, last] = run(plan.group_of(blocks), 0, blocks);
  if (plan.recompute.groups.inner > 0) run(plan.recompute.groups.inner, first, last);
}

}  // namespace

UnitGathers unit_gathers(const Model& model, const Plan& plan, std::int64_t rank) {
  const auto schedule = schedule_of_rank(plan, static_cast<int>(rank));
  Uses uses(uses_of(model, plan, schedule, static_cast<int>(rank)));
  const bool again = plan.recompute.kind == Recompute::full;
  for (const auto& [kind, stage, micro_batch] : schedule.actions[static_cast<std::size_t>(rank)]) {
    const auto layers = pipeline_parallel::layers_of_stage(model.layers, schedule.stages(), stage);
    const auto is_of_stage = [&](std::size_t use) {
      const bool is_edge = uses[use].unit < 0;
      if (!is_edge) return uses[use].unit >= layers.first && uses[use].unit < layers.end;
      return use == 0 ? stage == 0 : stage + 1 == schedule.stages();
    };
    if (kind == Kind::forward)
      for (std::size_t use = 0; use < uses.size(); ++use)
        if (is_of_stage(use)) uses.forward(use, !again || uses[use].unit < 0);
    if (kind == Kind::backward || kind == Kind::backward_input)
      for (std::size_t use = uses.size(); use-- > 0;) {
        if (!is_of_stage(use)) continue;
        const std::int64_t block = uses[use].unit - layers.first;
        if (again && block >= 0) compute_again(uses, use, block, layers.end - layers.first, plan);
        uses.backward(use);
      }
  }
  const double scale =
      static_cast<double>(plan.micro_batches) / static_cast<double>(schedule.micro_batches);
  return {scale * uses.gathers().forward, scale * uses.gathers().backward};
}

}  // namespace ringside::planning
