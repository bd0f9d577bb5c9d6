// The upper of the two seams: a whole set of collectives.
//
// Our own schedules over a transport are one Backend; a library to compare with is another. A
// ProcessGroup holds one and adds types.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "collectives/bootstrap/sub_group_connector.hpp"
#include "collectives/call.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/execution/executor.hpp"

namespace ringside::collectives {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;

  // Blocks until this rank's part of `call` is done. Every rank makes the same calls in the same
  // order. Buffers, in elements:
  //     all_reduce      input count, output count            output may be input
  //     reduce_scatter  input count, output count/size       output may be this rank's block of input
  //     all_gather      input count/size, output count       input may be this rank's block of output
  //     broadcast       output count (the root's is read)    input unused
  //     reduce          input count, output count            output is used on the root only; it may be input
  //     gather          input count/size, output count       output is used on the root only; input may be its block of it
  //     scatter         input count, output count/size       input is used on the root only; output may be its block of it
  //     all_to_all      input count, output count            output may be input
  //     barrier         none
  // A point_to_point is made by two ranks only, and numbered by them alone: rank root sends input,
  // rank peer receives into output. Throws Error, RankFailure. After either the backend is of no
  // further use: every later call fails with the first cause.
  virtual void run(const Call& call, const void* input, void* output) = 0;

  // Tells the others that this rank gives up, and why; their calls fail with this cause. Never
  // throws.
  virtual void abort(const std::string& cause) noexcept = 0;

  // The one call that another thread may make while run() is under way: makes that run() end soon,
  // as if abort(cause) had been called during it. Never throws. A backend that cannot be
  // interrupted ends when its library does.
  virtual void interrupt(const std::string& /*cause*/) noexcept {}

  virtual Traffic traffic() const = 0;

  // For sub-groups: SubGroupConnector::listen() and connect(). Libraries to compare with have none.
  virtual Endpoint listen() { fail("the {} backend cannot be split into sub-groups", name()); }
  virtual std::unique_ptr<Backend> connect_sub_group(const std::string& sub_group, int rank,
                                                     const std::vector<Endpoint>& members);
};

std::unique_ptr<Backend> make_schedule_backend(Connections connections,
                                               ExecutorOptions options = {});

}  // namespace ringside::collectives
