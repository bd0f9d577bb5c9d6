// The data of a measurement: inputs whose results are exact in every type, the results that are
// right, and the count of what is wrong.
//
// Element i of rank r is a small whole number that follows a pattern of prime length, so that a
// chunk in the wrong place is noticed. All of it is bytes here; that fp32 and int64 differ matters
// in one small function only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/algorithms/chunks.hpp"
#include "collectives/call.hpp"

namespace ringside::cli {

// One rank's buffers for one call. The buffers are fresh from the operating system and begin on a
// page.
class BenchData {
 public:
  BenchData(const collectives::Call& call, int rank, int ranks);

  // What Backend::run() is to be given: out of place, but for broadcast, which has an output only.
  const void* input() const { return input_.get(); }
  void* output() const { return output_.get(); }
  std::size_t input_bytes() const { return input_bytes_; }
  std::size_t output_bytes() const { return output_bytes_; }

  // Elements of the output that are not what they should be.
  std::uint64_t wrong() const;

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  using Buffer = std::unique_ptr<std::byte, Free>;
  static Buffer allocate(std::size_t bytes);

  std::uint64_t wrong_in_blocks(const collectives::Chunks& blocks, int which) const;
  std::uint64_t wrong_in(std::uint64_t begin, std::uint64_t count, int source,
                         std::uint64_t at) const;

  collectives::Call call_;
  int rank_, ranks_;
  Buffer input_, output_;
  std::size_t input_bytes_ = 0, output_bytes_ = 0;
};

}  // namespace ringside::cli
