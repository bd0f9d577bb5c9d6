// Which host a process runs on, as far as shared memory is concerned.
#pragma once

#include <cstdint>
#include <string>

namespace ringside::collectives {

// Two processes can share memory if both parts are equal.
struct HostIdentity {
  std::string boot_id;              // of the running kernel, which no other host has
  std::uint64_t pid_namespace = 0;  // processes open each other's memory through /proc
};

HostIdentity host_identity();

std::uint64_t hash_of(const HostIdentity& host);

}  // namespace ringside::collectives
