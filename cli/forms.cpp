#include "cli/forms.hpp"

#include <optional>
#include <span>

#include "base/error.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "transformer/single_process.hpp"

namespace ringside::cli {
namespace {

// What all forms over a group have in common. Ddp is one of ddp/'s classes: made from model and group, it broadcasts rank 0's
// parameters; finish() averages the gradients.
template <class Ddp>
class GroupForm final : public transformer::ParallelForm {
 public:
  explicit GroupForm(collectives::ProcessGroup& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void prepare(autograd::Module& model) override { ddp_.emplace(model, group_); }
  void finish_gradients() override { ddp_->finish(); }
  double communication_seconds() const override { return group_.times().blocked; }

  double average(double value) override {
    group_.all_reduce(std::span(&value, 1), collectives::ReduceOp::avg);
    return value;
  }

 private:
  collectives::ProcessGroup& group_;
  std::optional<Ddp> ddp_;
};

}  // namespace

std::vector<std::string> form_names() {
  return {"single", "naive", "flat"};
}

std::unique_ptr<transformer::ParallelForm> make_form(const std::string& name, collectives::ProcessGroup& group) {
  if (name == "naive") return std::make_unique<GroupForm<ddp::Naive>>(group);
  if (name == "flat") return std::make_unique<GroupForm<ddp::Flat>>(group);
  require(name == "single", "there is no parallel form named '{}'; the forms are {}", name, fmt::join(form_names(), ", "));
  require(group.size() == 1, "the form 'single' trains in one process, but there are {} ranks: choose naive or flat", group.size());
  return std::make_unique<transformer::SingleProcess>();
}

}  // namespace ringside::cli
