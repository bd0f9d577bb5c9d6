#include "cli/launcher/meeting_point.hpp"

#include <array>
#include <cstdint>
#include <optional>

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/environment.hpp"

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

ReservedPort::ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = socket_.is_open() &&
                     ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                     ::bind(socket_.get(), generic, size) == 0 &&
                     ::getsockname(socket_.get(), generic, &size) == 0;
  require(bound, "cannot find a free port on 127.0.0.1 for rank 0: {}; choose one with MASTER_PORT",
          std::strerror(errno));
  number_ = ntohs(address.sin_port);
}

MeetingPoint choose_meeting_point(const LaunchOptions& options) {
  const bool inside_a_job = environment("RANK").has_value();
  const auto from_environment = [&](const char* name) {
    return inside_a_job ? std::nullopt : environment(name);
  };
  const bool alone = options.nodes == 1;

  MeetingPoint point;
  const auto address =
      options.master_address ? options.master_address : from_environment("MASTER_ADDR");
  require(address || alone,
          "{} nodes need the address of node 0: give --master-addr or set MASTER_ADDR",
          options.nodes);
  point.address = address.value_or("127.0.0.1");

  const auto job_key = options.job_key ? options.job_key : from_environment("RINGSIDE_JOB_KEY");
  require(job_key || alone,
          "{} nodes need a common secret, the job key: set RINGSIDE_JOB_KEY to the same random "
          "text on each node",
          options.nodes);
  point.job_key = job_key ? *job_key : random_job_key();

  if (options.master_port) {
    point.port = *options.master_port;
  } else if (from_environment("MASTER_PORT")) {
    point.port = static_cast<int>(*integer_environment("MASTER_PORT", 1, 65535));
  } else {
    require(alone,
            "{} nodes need a port of node 0 to meet at: give --master-port or set MASTER_PORT",
            options.nodes);
    point.reserved = std::make_unique<ReservedPort>();
    point.port = point.reserved->number();
  }
  return point;
}

}  // namespace ringside::cli
