#include "cli/forms.hpp"

#include <optional>
#include <span>
#include <tuple>
#include <type_traits>

#include "base/error.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "ddp/overlap.hpp"
#include "transformer/single_process.hpp"

namespace ringside::cli {
namespace {

// What all forms over a group have in common. Ddp is one of ddp/'s classes: made from model and group (and what else it takes), it
// broadcasts rank 0's parameters; finish() averages the gradients.
template <class Ddp, class... More>
class GroupForm final : public transformer::ParallelForm {
 public:
  explicit GroupForm(collectives::ProcessGroup& group, More... more) : group_(group), more_(more...) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void prepare(autograd::Module& model) override {
    std::apply([&](const auto&... more) { ddp_.emplace(model, group_, more...); }, more_);
  }
  void finish_gradients() override { ddp_->finish(); }
  std::shared_ptr<void> no_sync() override {
    if constexpr (requires { ddp_->no_sync(); })
      return std::shared_ptr<ddp::Paused>(new ddp::Paused(ddp_->no_sync()));
    else
      return nullptr;  // finish() alone communicates
  }
  double communication_seconds() const override { return group_.times().blocked; }

  // Gradients that live in buckets stay there: they are set to zero, not dropped.
  void clear_gradients(autograd::Optimizer& optimizer) override { optimizer.zero_grad(!std::is_same_v<Ddp, ddp::Bucketed>); }

  double average(double value) override {
    group_.all_reduce(std::span(&value, 1), collectives::ReduceOp::avg);
    return value;
  }

 private:
  collectives::ProcessGroup& group_;
  std::tuple<More...> more_;
  std::optional<Ddp> ddp_;
};

}  // namespace

std::vector<std::string> form_names() {
  return {"single", "naive", "flat", "overlap", "bucketed"};
}

std::unique_ptr<transformer::ParallelForm> make_form(const std::string& name, collectives::ProcessGroup& group, double bucket_mb) {
  if (name == "naive") return std::make_unique<GroupForm<ddp::Naive>>(group);
  if (name == "flat") return std::make_unique<GroupForm<ddp::Flat>>(group);
  if (name == "overlap") return std::make_unique<GroupForm<ddp::Overlap>>(group);
  if (name == "bucketed") return std::make_unique<GroupForm<ddp::Bucketed, double>>(group, bucket_mb);
  require(name == "single", "there is no parallel form named '{}'; the forms are {}", name, fmt::join(form_names(), ", "));
  require(group.size() == 1, "the form 'single' trains in one process, but there are {} ranks: choose one of the others", group.size());
  return std::make_unique<transformer::SingleProcess>();
}

}  // namespace ringside::cli
