// MPI behind the Backend seam.
#include <climits>
#include <cstring>
#include <vector>

#include <mpi.h>

#include "base/environment.hpp"
#include "bench/backends/library_backends.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/rank_failure.hpp"

namespace ringside::cli {

using namespace collectives;

namespace {

// Looked up by name, so that a type which MPI lacks is an error only when it is used.
MPI_Datatype mpi_type(DataType type) {
  const std::pair<std::string_view, MPI_Datatype> known[] = {
      {"fp32", MPI_FLOAT},    {"fp64", MPI_DOUBLE}, {"int32", MPI_INT32_T}, {"int64", MPI_INT64_T},
      {"uint8", MPI_UINT8_T}, {"int8", MPI_INT8_T}, {"int16", MPI_INT16_T}};
  for (const auto& [name, mpi] : known)
    if (name == name_of(type)) return mpi;
  fail("MPI has no type for {}: use another type, or leave mpi out", name_of(type));
}

MPI_Op mpi_op(ReduceOp op) {
  // In the order of ReduceOp.
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_SUM, MPI_BAND, MPI_BOR, MPI_BXOR};
  return ops[static_cast<int>(op)];
}

class MpiBackend final : public Backend {
 public:
  MpiBackend() {
    require(::MPI_Init(nullptr, nullptr) == MPI_SUCCESS, "MPI_Init failed");
    ::MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    ::MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    ::MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiBackend() override {
    if (!failure_) ::MPI_Finalize();  // waits for all ranks, so it would hang after a failure
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "mpi"; }

  void run(const Call& call, const void* input, void* output, const BlockBegins&) override {
    failure_.throw_if_any();
    require_equal_blocks(call);
    require(call.count <= INT_MAX, "MPI takes at most {} elements in one call, not {}", INT_MAX,
            call.count);
    const int result = start(call, input, output);
    if (result == MPI_SUCCESS) return divide_sum(call, output);
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    ::MPI_Error_string(result, text, &length);
    throw failure_.keep(RankFailure(
        -1, fmt::format("MPI's {} failed on rank {}: {}", describe(call), rank_, text)));
  }

  // Ends all processes of the job: MPI has no other way to tell them.
  void abort(const std::string& cause) noexcept override {
    failure_.keep(RankFailure(rank_, cause));
    ::MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  int start(const Call& call, const void* input, void* output) {
    if (call.collective == Collective::barrier) return ::MPI_Barrier(MPI_COMM_WORLD);
    const int count = static_cast<int>(call.count);
    const MPI_Datatype type = mpi_type(call.type);
    const MPI_Op op = mpi_op(call.reduce);
    const void* const whole = input == output ? MPI_IN_PLACE : input;
    switch (call.collective) {
      case Collective::all_reduce:
        return ::MPI_Allreduce(whole, output, count, type, op, MPI_COMM_WORLD);
      case Collective::reduce_scatter:
        return reduce_scatter(call, input, output);
      case Collective::all_gather:
        return all_gather(call, input, output);
      case Collective::broadcast:
        return ::MPI_Bcast(output, count, type, call.root, MPI_COMM_WORLD);
      case Collective::reduce:
        return ::MPI_Reduce(rank_ == call.root ? whole : input, output, count, type, op, call.root,
                            MPI_COMM_WORLD);
      default:
        fail("the mpi backend has no {}; leave mpi out", name_of(call.collective));
    }
  }

  int reduce_scatter(const Call& call, const void* input, void* output) {
    set_blocks(call);
    const std::size_t length = counts_[rank_] * size_of(call.type);
    // MPI does not allow the output to overlap the input.
    const bool inside = length > 0 && output == block_of(input, call.type);
    if (inside && scratch_.size() < length) scratch_.resize(length);
    void* into = inside ? scratch_.data() : output;
    const int result = ::MPI_Reduce_scatter(input, into, counts_.data(), mpi_type(call.type),
                                            mpi_op(call.reduce), MPI_COMM_WORLD);
    if (inside) std::memcpy(output, into, length);
    return result;
  }

  int all_gather(const Call& call, const void* input, void* output) {
    set_blocks(call);
    const MPI_Datatype type = mpi_type(call.type);
    const bool inside = input == block_of(output, call.type);
    return ::MPI_Allgatherv(inside ? MPI_IN_PLACE : input, counts_[rank_], type, output,
                            counts_.data(), begins_.data(), type, MPI_COMM_WORLD);
  }

  // Where this rank's block begins in a buffer of all blocks.
  const void* block_of(const void* buffer, DataType type) const {
    return static_cast<const std::byte*>(buffer) + begins_[rank_] * size_of(type);
  }

  // The length and the beginning of every rank's block.
  void set_blocks(const Call& call) {
    const Chunks blocks = Chunks::even(call.count, size_);
    counts_.clear(), begins_.clear();
    for (int r = 0; r < size_; ++r) {
      counts_.push_back(static_cast<int>(blocks.size(r)));
      begins_.push_back(static_cast<int>(blocks.begin(r)));
    }
  }

  int rank_ = 0, size_ = 1;
  std::vector<int> counts_, begins_;
  std::vector<std::byte> scratch_;
  FirstCause<RankFailure> failure_;
};

}  // namespace

bool mpi_is_here() {
  return true;
}

std::unique_ptr<Backend> make_mpi_backend() {
  require(environment("OMPI_COMM_WORLD_SIZE") || environment("PMI_SIZE"),
          "the mpi backend needs processes that mpirun has started, and mpirun did not start this "
          "one");
  int before = 0;
  ::MPI_Initialized(&before);
  require(!before, "MPI can be initialized only once in a process");
  return std::make_unique<MpiBackend>();
}

}  // namespace ringside::cli
