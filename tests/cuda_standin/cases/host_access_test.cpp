// The host reads device memory: the stand-in ends the process, as a GPU's driver would, and says
// which memory it was and what to use instead.
#include <csignal>

#include <doctest/doctest.h>

#include "tests/cli/run_program.hpp"

using namespace ringside;
using namespace ringside::testing;

TEST_CASE("the host cannot read device memory, new or written, its own or a peer's") {
  for (const std::string mode : {"touch_new", "touch_result", "touch_peer"}) {
    CAPTURE(mode);
    const bool of_peer = mode == "touch_peer";
    const std::vector<std::string> worker = {IPC_WORKER, mode};
    const Outcome outcome =
        of_peer ? run_program({ringside_binary, "launch", "-n", "2", "--", IPC_WORKER, mode},
                              {{"RINGSIDE_STANDIN_DEVICES", "2"}}, Seconds(100))
                : run_program(worker, {}, Seconds(100));
    CAPTURE(outcome.out);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code != 0);
    CHECK(contains(outcome.err, of_peer ? "the host touches memory of device 1, at "
                                        : "the host touches memory of device 0, at "));
    CHECK(contains(outcome.err,
                   "Only kernels and copies reach it: use cudaMemcpy, or copy_to() and copy_from() "
                   "of DeviceBuffer"));
    CHECK(!contains(outcome.out, "1.0"));
  }
}
