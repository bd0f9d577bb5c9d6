// Our own collectives: schedules, run by the executor over a transport.
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "collectives/backend.hpp"
#include "collectives/reduce.hpp"

namespace ringside::collectives {
namespace {

class ScheduleBackend final : public Backend {
 public:
  ScheduleBackend(std::unique_ptr<Transport> transport, ExecutorOptions options)
      : transport_(std::move(transport)), executor_(*transport_, options) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string name() const override { return std::string(transport_->name()); }
  Traffic traffic() const override { return transport_->traffic(); }

  void run(const Call& call, const void* input, void* output) override {
    if (broken_) throw *broken_;
    const Plan& plan = plan_of(call);
    const Chunks chunks = chunks_of(call, plan.schedule.chunks);
    const Buffers buffers = buffers_of(call, chunks, static_cast<const std::byte*>(input), static_cast<std::byte*>(output));
    try {
      executor_.run(plan, call, ++sequence_, chunks, buffers);
    } catch (const RankFailure& failure) {
      broken_ = failure;
      throw;
    } catch (const Error& error) {
      broken_ = RankFailure(rank(), error.what());
      throw;
    }
    if (call.reduce != ReduceOp::avg) return;
    if (call.collective == Collective::all_reduce || (call.collective == Collective::reduce && rank() == call.root))
      scale_for_avg(call.type, output, call.count, size());
    if (call.collective == Collective::reduce_scatter) scale_for_avg(call.type, output, chunks.size(rank()), size());
  }

  void interrupt(const std::string& cause) noexcept override { transport_->interrupt(RankFailure(rank(), cause)); }

  void abort(const std::string& cause) noexcept override {
    if (!broken_) broken_ = RankFailure(rank(), cause);
    transport_->abort(*broken_);
  }

 private:
  const Plan& plan_of(const Call& call) {
    const auto key = std::tuple(call.collective, call.algorithm, call.root);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(key, plan(all_algorithms().at(call.algorithm).make(size(), rank(), call.root))).first->second;
  }

  static Chunks chunks_of(const Call& call, int chunks) {
    const bool callers_see_chunks = call.collective == Collective::reduce_scatter || call.collective == Collective::all_gather;
    return callers_see_chunks ? Chunks::even(call.count, chunks) : Chunks::aligned(call.count, chunks, size_of(call.type));
  }

  Buffers buffers_of(const Call& call, const Chunks& chunks, const std::byte* input, std::byte* output) const {
    const ChunkRange all{0, chunks.chunks()};
    switch (call.collective) {
      case Collective::all_reduce:
        return {input, output, all};
      case Collective::reduce_scatter:
        return {input, output, {rank(), 1}};
      case Collective::all_gather: {
        std::byte* mine = output + chunks.begin(rank()) * size_of(call.type);
        if (mine != input && chunks.size(rank()) > 0) std::memcpy(mine, input, chunks.size(rank()) * size_of(call.type));
        return {output, output, all};
      }
      case Collective::broadcast:
        return {output, output, all};
      case Collective::reduce:
        return {input, output, rank() == call.root ? all : ChunkRange{0, 0}};
      case Collective::barrier:
        return {nullptr, nullptr, all};
    }
    fail("no buffers are known for {}", describe(call));
  }

  std::unique_ptr<Transport> transport_;
  Executor executor_;
  std::map<std::tuple<Collective, std::uint8_t, std::int32_t>, Plan> plans_;
  std::uint64_t sequence_ = 0;
  std::optional<RankFailure> broken_;  // the first failure
};

}  // namespace

std::unique_ptr<Backend> make_schedule_backend(std::unique_ptr<Transport> transport, ExecutorOptions options) {
  return std::make_unique<ScheduleBackend>(std::move(transport), options);
}

}  // namespace ringside::collectives
