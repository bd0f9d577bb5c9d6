#include "collectives/bootstrap/connect.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include <sys/socket.h>

#include "base/error.hpp"
#include "base/warn.hpp"
#include "collectives/bootstrap/exchange.hpp"
#include "collectives/bootstrap/network_interface.hpp"
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/bootstrap/share_segments.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/diagnostics/socket_control_channel.hpp"
#include "collectives/diagnostics/threads_control_channel.hpp"
#include "collectives/transport/emulated_link.hpp"
#include "collectives/transport/tcp.hpp"
#include "collectives/transport/threads.hpp"

namespace ringside::collectives {
namespace {

// By the transport that rank_info.backend names or allows. Sub-groups choose in the same way.
Connections connect(const RankInfo& rank_info, Mesh mesh, const ShmOptions& options,
                    Calibration calibration);

// The descriptors of the sockets, which no longer belong to the mesh.
std::vector<FileDescriptor> release(std::vector<std::optional<Mesh::Socket>>& sockets) {
  std::vector<FileDescriptor> descriptors;
  for (auto& socket : sockets)
    descriptors.push_back(socket ? FileDescriptor(socket->release()) : FileDescriptor());
  return descriptors;
}

// [rank] the process of a rank that this one can see in /proc, or 0.
std::vector<std::int64_t> visible_processes(const Mesh& mesh, int rank) {
  std::vector<std::int64_t> processes;
  for (const Address& each : mesh.addresses)
    processes.push_back(each.proc_domain == mesh.addresses[rank].proc_domain ? each.process : 0);
  return processes;
}

std::vector<FileDescriptor> data_sockets(Mesh& mesh) {
  for (auto& socket : mesh.data)
    if (socket) set_up_data_socket(*socket);
  return release(mesh.data);
}

std::unique_ptr<ControlChannel> control_over(int rank, Mesh& mesh) {
  return make_socket_control_channel(rank, release(mesh.control), visible_processes(mesh, rank));
}

std::vector<Address> addresses_of(const std::vector<Endpoint>& members) {
  std::vector<Address> addresses(members.size());
  for (std::size_t r = 0; r < members.size(); ++r)
    std::memcpy(&addresses[r], members[r].data(), sizeof(Address));
  return addresses;
}

int members_on_host_of(const std::vector<Address>& addresses, const Address& one) {
  return static_cast<int>(
      std::count_if(addresses.begin(), addresses.end(),
                    [&](const Address& each) { return each.proc_domain == one.proc_domain; }));
}

// Sub-groups of ranks that are processes: new sockets, and connections from them.
class SocketSubGroupConnector final : public SubGroupConnector {
 public:
  // `own` is where this rank listens in the existing group.
  SocketSubGroupConnector(const RankInfo& rank_info, const Address& own, const ShmOptions& options,
                          Calibration calibration)
      : rank_info_(rank_info), own_(own), options_(options), calibration_(std::move(calibration)) {}

  Endpoint listen() override {
    listener_.emplace(own_);
    Endpoint endpoint{};
    static_assert(sizeof(Address) <= sizeof endpoint);
    std::memcpy(endpoint.data(), &listener_->address(), sizeof(Address));
    return endpoint;
  }

  Connections connect(const std::string& name, int rank, const std::vector<Endpoint>& members,
                      const std::function<void()>& check) override {
    const auto [rank_info, mesh] = meet(name, rank, members, check, rank_info_.backend);
    return collectives::connect(rank_info, std::move(*mesh), options_, calibration_);
  }

  Streams connect_streams(const std::string& name, int rank, const std::vector<Endpoint>& members,
                          const std::function<void()>& check) override {
    const auto [rank_info, mesh] = meet(name, rank, members, check, "tcp");
    std::unique_ptr<ControlChannel> control = control_over(rank, *mesh);
    return {data_sockets(*mesh), std::move(control), job_number(rank_info.job_key)};
  }

 private:
  struct Met {
    RankInfo rank_info;
    std::unique_ptr<Mesh> mesh;
  };
  Met meet(const std::string& name, int rank, const std::vector<Endpoint>& members,
           const std::function<void()>& check, const std::string& backend) {
    require(listener_.has_value(), "a rank must listen before it connects a sub-group");
    RankInfo rank_info = rank_info_;
    rank_info.rank = rank;
    rank_info.size = static_cast<int>(members.size());
    rank_info.backend = backend;
    rank_info.job_key += "/" + name;  // so that no rank of another sub-group is let in
    std::vector<Address> addresses = addresses_of(members);
    rank_info.local_size = std::max(rank_info.local_size, members_on_host_of(addresses, own_));
    auto mesh = std::make_unique<Mesh>(listener_->connect_mesh(
        rank_info, std::move(addresses), RankNames(ranks_of_sub_group(name)), check));
    listener_.reset();
    return {std::move(rank_info), std::move(mesh)};
  }

  RankInfo rank_info_;
  Address own_;
  ShmOptions options_;
  Calibration calibration_;
  std::optional<Listener> listener_;
};

std::unique_ptr<Transport> over_tcp(const RankInfo& rank_info, Mesh& mesh) {
  return make_tcp_transport(rank_info.rank, job_number(rank_info.job_key), data_sockets(mesh));
}

// The control connections are as they were if it throws CannotShare.
std::unique_ptr<Transport> over_shm(const RankInfo& rank_info, Mesh& mesh,
                                    const ShmOptions& options) {
  const ShmLayout layout = shm_layout(options, rank_info.size);
  bool crowded = rank_info.local_size > static_cast<int>(std::thread::hardware_concurrency());
  auto segments = share_segments(rank_info, mesh, layout, crowded);
  return make_shm_transport(rank_info.rank, job_number(rank_info.job_key), layout,
                            std::move(segments), crowded);
}

// Connects the ranks of `mesh` again, with sockets for data: they cannot share memory after all.
Mesh connect_for_data(RankInfo rank_info, Mesh mesh) {
  rank_info.backend = "tcp";
  Listener listener(mesh.addresses[rank_info.rank]);
  const auto addresses = exchange(mesh, rank_info.rank, listener.address(),
                                  Deadline::after(rank_info.connect_timeout));
  return listener.connect_mesh(rank_info, addresses, mesh.names, [] {});
}

std::unique_ptr<Transport> over_shm_or_tcp(const RankInfo& rank_info, Mesh& mesh,
                                           const ShmOptions& options) {
  if (rank_info.backend == "shm") return over_shm(rank_info, mesh, options);
  if (rank_info.backend != "auto" || rank_info.size == 1 || !mesh.on_one_host())
    return over_tcp(rank_info, mesh);
  try {
    return over_shm(rank_info, mesh, options);
  } catch (const CannotShare& reason) {  // thrown on every rank, or on none
    if (rank_info.rank == 0) warn("{}. The ranks use TCP instead.", reason.what());
    mesh = connect_for_data(rank_info, std::move(mesh));
    return over_tcp(rank_info, mesh);
  }
}

MachineCosts costs_over(std::string_view transport, const Mesh& mesh, const CostTable& measured) {
  MachineCosts costs = costs_of(transport, mesh.have_equal_costs() ? measured : CostTable());
  costs.common.cores = mesh.cores();
  return costs;
}

Connections connect(const RankInfo& rank_info, Mesh mesh, const ShmOptions& options,
                    Calibration calibration) {
  if (rank_info.rank == 0) warn_of_fault(calibration);
  calibration.fault.clear();  // sub-groups do not repeat it
  auto transport = over_shm_or_tcp(rank_info, mesh, options);
  const MachineCosts costs = costs_over(transport->name(), mesh, calibration.costs);
  return {std::move(transport), control_over(rank_info.rank, mesh),
          std::make_unique<SocketSubGroupConnector>(rank_info, mesh.addresses[rank_info.rank],
                                                    options, std::move(calibration)),
          costs};
}

Connections meet_and_connect(RankInfo rank_info, const char* backend, const ShmOptions& options,
                             const Calibration& calibration) {
  rank_info.backend = backend;
  rank_info.costs = checksum_of(calibration.costs);
  return connect(rank_info, connect_mesh(rank_info), options, calibration);
}

}  // namespace

Connections connect_tcp(RankInfo rank_info, const Calibration& calibration) {
  return meet_and_connect(std::move(rank_info), "tcp", {}, calibration);
}

Connections connect_shm(RankInfo rank_info, const ShmOptions& options,
                        const Calibration& calibration) {
  shm_layout(options, rank_info.size);  // wrong options are an Error before anybody waits
  return meet_and_connect(std::move(rank_info), "shm", options, calibration);
}

Connections connect_automatic(RankInfo rank_info, const ShmOptions& options,
                              const Calibration& calibration) {
  return meet_and_connect(std::move(rank_info), "auto", options, calibration);
}

std::unique_ptr<SubGroupConnector> make_connector_at(const std::string& host,
                                                     const RankInfo& rank_info) {
  boost::asio::io_context io;
  boost::system::error_code error;
  const auto found = boost::asio::ip::tcp::resolver(io).resolve(host, "0", error);
  require(!error && !found.empty(),
          "'{}' is not a host that this rank knows ({}): expected a name or an address of this "
          "host by which the other ranks reach it",
          host, error.message());
  const auto own = std::find_if(found.begin(), found.end(), [&](const auto& each) {
    return is_of_this_host(io, each.endpoint().address());
  });
  auto address = (own == found.end() ? found.begin() : own)->endpoint().address();
  if (!rank_info.interface.empty()) address = address_of_interface(rank_info.interface, address);
  const std::string& backend = rank_info.backend;
  require(backend == "auto" || backend == "tcp" || backend == "shm",
          "there is no backend '{}' to connect ranks with: take auto, tcp or shm", backend);
  const Calibration calibration = calibration_here();
  RankInfo with_costs = rank_info;
  with_costs.costs = checksum_of(calibration.costs);
  return std::make_unique<SocketSubGroupConnector>(
      with_costs, address_of({address, 0}, with_costs.costs), ShmOptions(), calibration);
}

// What the threads of a world share.
class ThreadsWorld {
 public:
  ThreadsWorld(int ranks, const MachineCosts& costs_of_messages)
      : size(ranks),
        costs(costs_of_messages),
        queues(make_message_queues(ranks)),
        inboxes(make_control_inboxes(ranks)) {}

  std::shared_ptr<ThreadsWorld> sub_world(const std::string& name, int ranks) {
    const std::lock_guard lock(mutex_);
    auto& world = sub_worlds_[name];
    if (!world) world = std::make_shared<ThreadsWorld>(ranks, costs);
    return world;
  }

  // One end of a pair of sockets to each other rank.
  std::vector<FileDescriptor> streams_of(int rank) {
    const std::lock_guard lock(mutex_);
    if (streams_.empty()) {
      streams_.resize(static_cast<std::size_t>(size * size));
      for (int a = 0; a < size; ++a)
        for (int b = 0; b < a; ++b) {
          std::array<int, 2> ends{};
          require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0,
                  "no sockets for messages between two ranks: {}", std::strerror(errno));
          streams_[a * size + b] = FileDescriptor(ends[0]);
          streams_[b * size + a] = FileDescriptor(ends[1]);
        }
    }
    const auto first = streams_.begin() + rank * size;
    return {std::move_iterator(first), std::move_iterator(first + size)};
  }

  const int size;
  const MachineCosts costs;
  const std::shared_ptr<MessageQueues> queues;
  const std::shared_ptr<ControlInboxes> inboxes;

 private:
  std::mutex mutex_;                     // guards everything below
  std::vector<FileDescriptor> streams_;  // [rank * size + peer], once somebody asks for them
  std::map<std::string, std::shared_ptr<ThreadsWorld>> sub_worlds_;
};

namespace {

class ThreadsSubGroupConnector final : public SubGroupConnector {
 public:
  explicit ThreadsSubGroupConnector(std::shared_ptr<ThreadsWorld> world)
      : world_(std::move(world)) {}

  Endpoint listen() override { return {}; }  // the ranks find the sub-group by its name

  Connections connect(const std::string& name, int rank, const std::vector<Endpoint>& members,
                      const std::function<void()>&) override {
    return connect_threads(world_->sub_world(name, static_cast<int>(members.size())), rank);
  }

  Streams connect_streams(const std::string& name, int rank, const std::vector<Endpoint>& members,
                          const std::function<void()>&) override {
    const auto world = world_->sub_world(name, static_cast<int>(members.size()));
    return {world->streams_of(rank), make_threads_control_channel(world->inboxes, rank)};
  }

 private:
  std::shared_ptr<ThreadsWorld> world_;
};

}  // namespace

std::shared_ptr<ThreadsWorld> make_threads_world(int size) {
  require(size >= 1, "a world needs at least one rank, not {}", size);
  return std::make_shared<ThreadsWorld>(size, costs_here("threads"));
}

Connections connect_threads(std::shared_ptr<ThreadsWorld> world, int rank) {
  require(rank >= 0 && rank < world->size, "rank {} is not in a world of {}", rank, world->size);
  return {make_threads_transport(world->queues, rank),
          make_threads_control_channel(world->inboxes, rank),
          std::make_unique<ThreadsSubGroupConnector>(world), world->costs};
}

Connections behind_link(Connections connections, const std::optional<Link>& link) {
  if (!link) return connections;
  connections.costs = behind_link(connections.costs, *link);
  return behind_wire(std::move(connections), std::make_shared<Wire>(*link));
}

Connections behind_wire(Connections connections, std::shared_ptr<Wire> wire) {
  connections.transport = make_emulated_link(std::move(connections.transport), wire);
  connections.wire = std::move(wire);
  return connections;
}

}  // namespace ringside::collectives
