// Gloo behind the Backend seam.
#include <map>
#include <vector>

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "bench/backends/library_backends.hpp"
#include "collectives/calls/values_of_all_ranks.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/execution/reduce.hpp"
#include "collectives/group_options.hpp"

namespace ringside::cli {

using namespace collectives;

namespace {

// Gloo's interface for a key-value store: each rank stores values under keys that end in its own
// number and reads the others'. Ours is an all_gather. All ranks set the same keys in the same
// order, so each set() exchanges the values of all ranks, and get() finds them here.
class ExchangeStore final : public gloo::rendezvous::Store {
 public:
  explicit ExchangeStore(ProcessGroup& meeting) : meeting_(meeting) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string own = std::to_string(meeting_.rank());
    require(key.ends_with(own),
            "expected Gloo to set a key that ends in this rank's number, {}, got \"{}\"", own, key);
    const std::string prefix = key.substr(0, key.size() - own.size());
    const auto texts = texts_of_all_ranks(meeting_, {data.data(), data.size()}, "gloo");
    for (std::size_t r = 0; r < texts.size(); ++r)
      entries_[prefix + std::to_string(r)] = {texts[r].begin(), texts[r].end()};
  }

  std::vector<char> get(const std::string& key) override { return entries_.at(key); }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}

 private:
  ProcessGroup& meeting_;
  std::map<std::string, std::vector<char>> entries_;
};

// Calls `body` with a value whose type has the size of `type`: Gloo's options are templates, but
// use only the size.
template <class Body>
void with_type_of_size(DataType type, Body body) {
  switch (size_of(type)) {
    case 1:
      return body(std::uint8_t{});
    case 2:
      return body(std::uint16_t{});
    case 4:
      return body(std::uint32_t{});
    default:
      return body(std::uint64_t{});
  }
}

class GlooBackend final : public Backend {
 public:
  GlooBackend(const RankInfo& rank_info, Seconds timeout)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank_info.rank, rank_info.size)) {
    require(rank_info.local_size == rank_info.size,
            "the gloo backend is for ranks on one host, but this job has ranks on several");
    context_->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    ProcessGroup meeting = ProcessGroup::over("tcp", rank_info);
    ExchangeStore store(meeting);
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    context_->connectFullMesh(store, device);
    meeting.barrier();  // the meeting ends when all ranks are connected
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::string name() const override { return "gloo"; }

  void run(const Call& call, const void* input, void* output, const BlockBegins&) override {
    failure_.throw_if_any();
    require_equal_blocks(call);
    try {
      with_type_of_size(call.type, [&]<class T>(T) {
        run_as(call, static_cast<T*>(const_cast<void*>(input)), static_cast<T*>(output));
      });
      divide_sum(call, output);
    } catch (const gloo::Exception& error) {
      throw failure_.keep(RankFailure(-1, fmt::format("gloo's {} failed on rank {}: {}",
                                                      describe(call), rank(), error.what())));
    }
  }

  void abort(const std::string& cause) noexcept override {
    failure_.keep(RankFailure(rank(), cause));
    context_->closeConnections();  // the only way to tell the other ranks
  }

 private:
  // `input` is not written, although Gloo takes it as a pointer to non-const.
  template <class T>
  void run_as(const Call& call, T* input, T* output) {
    if (call.collective == Collective::barrier) return barrier();
    if (call.count == 0) return;
    switch (call.collective) {
      case Collective::all_reduce:
        return all_reduce(call, input, output);
      case Collective::all_gather:
        return all_gather(call, input, output);
      case Collective::broadcast:
        return broadcast(call, output);
      case Collective::reduce:
        return reduce(call, input, output);
      default:
        fail("the gloo backend has no {}; leave gloo out", name_of(call.collective));
    }
  }

  static gloo::AllreduceOptions::Func function_of(const Call& call) {
    return
        [type = call.type, op = call.reduce](void* into, const void* a, const void* b,
                                             std::size_t n) { combine(type, op, into, a, b, n); };
  }

  template <class T>
  void all_reduce(const Call& call, T* input, T* output) {
    gloo::AllreduceOptions options(context_);
    if (input != output) options.setInput(input, call.count);
    options.setOutput(output, call.count);
    options.setReduceFunction(function_of(call));
    gloo::allreduce(options);
  }

  template <class T>
  void all_gather(const Call& call, T* input, T* output) {
    const Chunks blocks = Chunks::even(call.count, size());
    std::vector<std::size_t> counts;
    for (int r = 0; r < size(); ++r) counts.push_back(blocks.size(r));
    gloo::AllgathervOptions options(context_);
    if (input != output + blocks.begin(rank())) options.setInput(input, blocks.size(rank()));
    options.setOutput(output, counts);
    gloo::allgatherv(options);
  }

  template <class T>
  void broadcast(const Call& call, T* output) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(output, call.count);
    options.setRoot(call.root);
    gloo::broadcast(options);
  }

  // Gloo needs an output on every rank and uses it for partial sums. ProcessGroup promises not to
  // touch it except on the root, so other ranks pass a scratch buffer.
  template <class T>
  void reduce(const Call& call, T* input, T* output) {
    const bool root = rank() == call.root;
    if (!root) scratch_.resize(call.count * sizeof(T));
    gloo::ReduceOptions options(context_);
    options.setInput(input, call.count);
    options.setOutput(root ? output : reinterpret_cast<T*>(scratch_.data()), call.count);
    options.setRoot(call.root);
    options.setReduceFunction(function_of(call));
    gloo::reduce(options);
  }

  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<std::byte> scratch_;
  FirstCause<RankFailure> failure_;
};

}  // namespace

bool gloo_is_here() {
  return true;
}

std::unique_ptr<Backend> make_gloo_backend(const RankInfo& rank_info) {
  try {
    return std::make_unique<GlooBackend>(rank_info,
                                         group_options_from_environment().executor.timeout);
  } catch (const gloo::Exception& error) {
    fail("gloo cannot connect rank {} with the other ranks: {}", rank_info.rank, error.what());
  }
}

}  // namespace ringside::cli
