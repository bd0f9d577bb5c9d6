// The upper of the two seams: a Backend is a whole set of collectives.
//
// Our own schedules over a transport are one Backend; NCCL, Gloo and MPI are others, for
// comparison, and so is one of your own (backends/plugin.hpp). A ProcessGroup holds a Backend and
// adds types.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "collectives/bootstrap/sub_group_connector.hpp"
#include "collectives/call.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

// Where blocks of unequal size begin, in elements: element r is rank r's, and one more is the end.
// Both are the same, except in an all_to_all.
struct BlockBegins {
  std::vector<std::size_t> input, output;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;

  // Blocks until this rank's part of `call` is done. Every rank makes the same calls in the same
  // order. Lengths of the buffers, in elements; "block" is this rank's 1/size of the other buffer:
  //     collective      input         output        in place
  //     all_reduce      count         count         output is input
  //     reduce_scatter  count         count/size    output is a block of input
  //     all_gather      count/size    count         input is a block of output
  //     broadcast       unused        count         (the root's output is read)
  //     reduce          count         root: count   output is input
  //     gather          count/size    root: count   input is a block of output
  //     scatter         root: count   count/size    output is a block of input
  //     all_to_all      count         count         output is input
  //     barrier         unused        unused
  // Only two ranks make a point_to_point, and only they count it: rank root sends input, and rank
  // peer receives into output. Throws Error or RankFailure. After either the backend has failed:
  // every later call throws the first cause.
  //
  // If call.unequal, the blocks begin at `begins`, and an all_to_all is not in place; otherwise
  // `begins` is empty. A backend without such calls refuses them by require_equal_blocks().
  virtual void run(const Call& call, const void* input, void* output,
                   const BlockBegins& begins = {}) = 0;

  // Tells the others that this rank gives up, and why; their calls fail with this cause. Never
  // throws.
  virtual void abort(const std::string& cause) noexcept = 0;

  // The one call that another thread may make while run() is under way: makes that run() end soon,
  // as if abort(cause) had been called during it. Never throws. A backend that cannot be
  // interrupted ends when its library does.
  virtual void interrupt(const std::string& /*cause*/) noexcept {}

  // How its errors name the ranks. No call may be under way.
  virtual void set_names(const RankNames& /*names*/) {}

  virtual Traffic traffic() const { return {}; }  // none: libraries do not report it

  // For sub-groups: SubGroupConnector::listen() and connect(). Libraries to compare with have none.
  virtual Endpoint listen() { fail("the {} backend cannot be split into sub-groups", name()); }
  virtual std::unique_ptr<Backend> connect_sub_group(const std::string& /*sub_group*/, int /*rank*/,
                                                     const std::vector<Endpoint>& /*members*/) {
    fail("the {} backend cannot be split into sub-groups", name());
  }

  // For messages outside of the order of calls: SubGroupConnector::connect_streams().
  virtual Streams connect_streams(const std::string& sub_group, int rank,
                                  const std::vector<Endpoint>& members);

 protected:
  // Throws Error if the blocks of `call` have unequal sizes.
  void require_equal_blocks(const Call& call) const {
    require(!call.unequal,
            "the {} backend has no {} of unequal blocks: make them equal, or use tcp or shm",
            name(), name_of(call.collective));
  }

  // The second half of avg, once `output` holds this rank's part of the sum.
  void divide_sum(const Call& call, void* output) const;
};

std::unique_ptr<Backend> make_schedule_backend(Connections connections,
                                               ExecutorOptions options = {});

}  // namespace ringside::collectives
