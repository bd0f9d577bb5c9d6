#include "cli/launcher/rendezvous_address.hpp"

#include <array>
#include <cstdint>
#include <optional>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/sha256.hpp"

namespace ringside::cli {
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
  std::array<std::uint8_t, 16> random;
  fill_with_random_bits(random);
  rendezvous.job_key = job_key.value_or(hexadecimal(random));

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
    if (!address) rendezvous.listening = std::make_unique<ListeningPort>();
  }
  return rendezvous;
}

}  // namespace ringside::cli
