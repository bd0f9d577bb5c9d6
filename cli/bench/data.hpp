// The data of a measurement: inputs whose results are exact in every type, the expected results,
// and the number of wrong elements.
//
// Element i of rank r is a small integer from a pattern of prime length, so that a chunk at a wrong
// offset is detected. The data is handled as bytes; only one small function knows the types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/call.hpp"

namespace ringside::cli {

// The buffers of one rank for one call, new and aligned to a page.
class BenchData {
 public:
  BenchData(const collectives::Call& call, int rank, int ranks);

  // The arguments of Backend::run(): out of place, except broadcast, which has only an output.
  const void* input() const { return input_.get(); }
  void* output() const { return output_.get(); }
  std::size_t input_bytes() const { return input_bytes_; }
  std::size_t output_bytes() const { return output_bytes_; }

  // The number of wrong elements in the output.
  std::uint64_t wrong() const;
  // "element 5 is 3, expected 6"; "" if none is wrong.
  std::string first_wrong() const;

 private:
  // Calls body(index, seen, expected) with the bytes of each wrong element of the output.
  template <class Body>
  void for_each_wrong(Body body) const;

  struct Free {
    void operator()(std::byte* bytes) const;
  };
  using Buffer = std::unique_ptr<std::byte, Free>;
  static Buffer allocate(std::size_t bytes);

  collectives::Call call_;
  int rank_, ranks_;
  Buffer input_, output_;
  std::size_t input_bytes_ = 0, output_bytes_ = 0;
};

}  // namespace ringside::cli
