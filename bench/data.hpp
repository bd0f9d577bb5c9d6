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
  // In place: one buffer of the whole call, in which this rank's part of the input or of the output
  // lies where Backend::run() wants it. Each call changes it: renew() comes before the one that
  // wrong() is to check.
  BenchData(const collectives::Call& call, int rank, int ranks, bool in_place = false);

  // The arguments of Backend::run(). A broadcast has only an output.
  const void* input() const { return in_place_ ? memory() + input_at_ : input_.get(); }
  void* output() const { return memory() + output_at_; }
  std::size_t input_bytes() const { return input_bytes_; }  // 0 in place

  // The output and what is around it in the same buffer, and where in it both lie.
  std::byte* memory() const { return memory_.get(); }
  std::size_t memory_bytes() const { return memory_bytes_; }
  std::size_t input_at() const { return input_at_; }
  std::size_t output_at() const { return output_at_; }
  bool in_place() const { return in_place_; }
  void renew();

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
  bool in_place_;
  Buffer input_, memory_;
  std::size_t input_bytes_ = 0, memory_bytes_ = 0, input_at_ = 0, output_at_ = 0;
};

}  // namespace ringside::cli
