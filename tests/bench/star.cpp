// A collective that is no schedule: all ranks send their buffers to rank 0, which adds them up in
// the order in which they are numbered, and sends the sum to all.
#include <algorithm>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "collectives/backends/plugin.hpp"
#include "collectives/process_group.hpp"

using namespace ringside::collectives;

class Star : public Backend {
 public:
  explicit Star(const RankInfo& rank_info) : group_(ProcessGroup::over("tcp", rank_info)) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::string name() const override { return "star"; }
  void abort(const std::string& cause) noexcept override { group_.abort(cause); }

  void run(const Call& call, const void* input, void* output, const BlockBegins&) override {
    ringside::require(call.collective == Collective::all_reduce && call.type == DataType::fp32,
                      "the star has only all_reduce of fp32, not {}", describe(call));
    const std::span sum(static_cast<float*>(output), call.count);
    std::copy_n(static_cast<const float*>(input), call.count, sum.begin());
    if (rank() > 0) {
      group_.send(sum, 0);
      return group_.recv(sum, 0);
    }
    std::vector<float> other(call.count);
    for (int r = 1; r < size(); ++r) {
      group_.recv(std::span(other), r);
      for (std::size_t i = 0; i < call.count; ++i) sum[i] += other[i];
    }
    for (int r = 1; r < size(); ++r) group_.send(sum, r);
  }

 private:
  ProcessGroup group_;
};

extern "C" MakeBackend* const ringside_backend = backend_of<Star>;
