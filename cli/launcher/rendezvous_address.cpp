#include "cli/launcher/rendezvous_address.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include <sys/random.h>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace ringside::cli {
namespace {

std::string random_job_key() {
  std::array<std::uint64_t, 2> bits{};
  if (::getrandom(bits.data(), sizeof bits, 0) != sizeof bits) {
    fail("cannot get random numbers for the job key: {}", std::strerror(errno));
  }
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace

RendezvousAddress choose_rendezvous_address(const LaunchOptions& options) {
  const bool inside_a_job = environment("RANK").has_value();
  const auto from_environment = [&](const char* name) {
    return inside_a_job ? std::nullopt : environment(name);
  };
  const bool one_node = options.nodes == 1;

  RendezvousAddress rendezvous;
  const auto address =
      options.master_address ? options.master_address : from_environment("MASTER_ADDR");
  require(address || one_node,
          "{} nodes need the address of node 0: give --master-addr or set MASTER_ADDR",
          options.nodes);
  rendezvous.address = address.value_or("127.0.0.1");

  const auto job_key = options.job_key ? options.job_key : from_environment("RINGSIDE_JOB_KEY");
  require(job_key || one_node,
          "{} nodes need a common secret, the job key: set RINGSIDE_JOB_KEY to the same random "
          "text on each node",
          options.nodes);
  rendezvous.job_key = job_key ? *job_key : random_job_key();

  if (options.master_port) {
    rendezvous.port = *options.master_port;
  } else if (from_environment("MASTER_PORT")) {
    rendezvous.port = static_cast<int>(*integer_environment("MASTER_PORT", 1, 65535));
  } else {
    require(one_node,
            "{} nodes need a port of node 0 to meet at: give --master-port or set MASTER_PORT",
            options.nodes);
    rendezvous.reserved = std::make_unique<ReservedPort>();
    rendezvous.port = rendezvous.reserved->number();
  }
  return rendezvous;
}

}  // namespace ringside::cli
