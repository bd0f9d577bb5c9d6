#include "collectives/bootstrap/rendezvous/mesh.hpp"

#include <algorithm>
#include <set>

#include <fcntl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "base/system/fork.hpp"

namespace ringside::collectives {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr Seconds shortest_pause{0.005}, longest_pause{0.5};  // between attempts to connect

// How much longer a rank waits for those above it than they try to connect. If they are held up by
// another one, they name it first, even if they began a little later.
constexpr Seconds extra_time{2};

}  // namespace

bool Mesh::on_one_host() const {
  return std::all_of(addresses.begin(), addresses.end(), [&](const Address& each) {
    return each.proc_domain == addresses.front().proc_domain;
  });
}

bool Mesh::have_equal_costs() const {
  return std::all_of(addresses.begin(), addresses.end(),
                     [&](const Address& each) { return each.costs == addresses.front().costs; });
}

int Mesh::cores() const {
  std::set<std::uint64_t> hosts;
  int cores = 0;
  for (const Address& each : addresses)
    if (hosts.insert(each.proc_domain).second) cores += each.cores;
  return cores;
}

MeshBuilder::MeshBuilder(const RankInfo& rank_info, std::unique_ptr<asio::io_context> io,
                         RankNames names)
    : rank_info_(rank_info) {
  require(rank_info.size >= 1 && rank_info.rank >= 0 && rank_info.rank < rank_info.size,
          "rank {} is not in a world of {}", rank_info.rank, rank_info.size);
  mesh_.io = std::move(io);
  mesh_.names = std::move(names);
  mesh_.data.resize(rank_info.size);
  mesh_.control.resize(rank_info.size);
  mesh_.addresses.resize(rank_info.size);
}

tcp::endpoint MeshBuilder::open_to_others(const tcp::endpoint& endpoint) {
  const bool known_otherwise = !rank_info_.one_host && !names_loopback(rank_info_.master_address);
  if (!known_otherwise || !endpoint.address().is_loopback()) return endpoint;
  return {everywhere(io()), endpoint.port()};
}

void MeshBuilder::listen_on(const tcp::endpoint& endpoint) {
  accept_from(listen_at(io(), endpoint, who(), 2 * rank_info_.size));
}

void MeshBuilder::listen_with(const FileDescriptor& listening) {
  const int copy = ::fcntl(listening.get(), F_DUPFD_CLOEXEC, 0);
  keep_from_children(copy);
  accept_from(tcp::acceptor(io(), tcp::v4(), copy));
}

void MeshBuilder::accept_from(tcp::acceptor acceptor) {
  addresses()[rank_info_.rank] = address_of(acceptor.local_endpoint(), rank_info_.costs);
  acceptors_.push_back(
      std::make_unique<Acceptor>(std::move(acceptor), rank_info_.job_key, who(),
                                 [this](const Handshake& handshake, tcp::socket socket) {
                                   welcome(handshake, std::move(socket));
                                 }));
}

tcp::socket MeshBuilder::connect(int r, const std::vector<tcp::endpoint>& endpoints,
                                 const Deadline& deadline, const std::string& whom,
                                 const std::string& hint, Handshake::Purpose purpose,
                                 const std::function<void(const Socket&)>& connected) {
  for (auto pause = shortest_pause;; pause = std::min(pause * 2, longest_pause)) {
    Socket socket = connect_to(io(), endpoints, deadline, who(), whom, hint, check_);
    connected(socket);
    if (exchange_proofs(r, socket, deadline, purpose)) return socket;
    wait_until(Deadline::after(std::min(pause, deadline.remaining())), [] { return false; });
    require(!deadline.expired(),
            "{} connects to {} and is cut off: what listens there is not {} of this job, or "
            "strangers connect to it faster than it can turn them away",
            who(), to_text(endpoints), name_of_rank(r));
  }
}

// False if the other side has closed the connection without an answer: it may have had too many.
bool MeshBuilder::exchange_proofs(int r, tcp::socket& socket, const Deadline& deadline,
                                  Handshake::Purpose purpose) {
  Handshake handshake{.purpose = purpose,
                      .nonce = new_nonce(),
                      .rank = rank_info_.rank,
                      .size = rank_info_.size,
                      .listens_on = addresses()[rank_info_.rank]};
  rank_info_.backend.copy(handshake.backend, sizeof handshake.backend);
  error_code error;
  const auto there = socket.remote_endpoint(error);
  if (!error) socket.set_option(tcp::no_delay(true), error);
  if (!error) asio::write(socket, asio::buffer(&handshake, sizeof handshake), error);
  if (error) return false;

  Challenge challenge;
  std::optional<std::size_t> received;
  asio::async_read(socket, asio::buffer(&challenge, sizeof challenge),
                   [&](error_code, std::size_t n) { received = n; });
  const auto done = [&] { return received.has_value(); };
  const auto cancel = [&] {  // the handler refers to this function's variables
    socket.close(error);
    run_until(io(), Deadline::after(Seconds(1)), done);
  };
  try {
    if (!wait_until(deadline, done)) cancel();
  } catch (...) {
    cancel();
    throw;
  }
  if (received == 0u && socket.is_open()) return false;
  require(socket.is_open(),
          "{} does not answer at {} within {:.0f} s: it hangs, or is not of this job",
          name_of_rank(r), to_text(there), deadline.total().count());
  require(received == sizeof challenge && proves_key(challenge, handshake, rank_info_.job_key),
          "what listens at {} did not prove to {} that it has the key of this job: it is not {}, "
          "or it has another RINGSIDE_JOB_KEY or another version of Ringside",
          to_text(there), who(), name_of_rank(r));
  const Digest proof = proof_for(challenge, handshake, rank_info_.job_key);
  asio::write(socket, asio::buffer(proof), error);
  return !error;
}

// Ranks that share memory send nothing through these sockets.
bool MeshBuilder::needs_data() const {
  const bool may_share = rank_info_.backend == "auto" || rank_info_.backend == "shm";
  return !may_share || !mesh_.on_one_host();
}

// Ranks that do not see each other in /proc may run on different hosts.
std::string MeshBuilder::hint_for(int r) const {
  const Address &there = mesh_.addresses[r], &here = mesh_.addresses[rank_info_.rank];
  if (there.proc_domain == here.proc_domain || !endpoint_of(there).address().is_loopback())
    return "";
  return fmt::format(
      "{} is a loopback address, by which only ranks of its own host reach {}: set "
      "RINGSIDE_INTERFACE there to a network interface that the other hosts reach",
      endpoint_of(there).address().to_string(), name_of_rank(r));
}

void MeshBuilder::connect_all() {
  const bool data = needs_data();
  const Deadline deadline = Deadline::after(rank_info_.connect_timeout);
  for (int r = 0; r < rank_info_.rank; ++r) {
    const std::string whom = name_of_rank(r) + " has come and gone: it";
    const std::vector<tcp::endpoint> there = {endpoint_of(addresses()[r])};
    const std::string hint = hint_for(r);
    if (data) mesh_.data[r] = connect(r, there, deadline, whom, hint, Handshake::data);
    mesh_.control[r] = connect(r, there, deadline, whom, hint, Handshake::control);
  }
  const auto first_missing = [&] {
    int r = rank_info_.rank + 1;
    while (r < rank_info_.size && (mesh_.data[r] || !data) && mesh_.control[r]) ++r;
    return r;
  };
  const Deadline patience = Deadline::after(deadline.remaining() + extra_time);
  const bool all = wait_until(patience, [&] { return first_missing() == rank_info_.size; });
  require(all, "{} came, but did not connect to {} within {:.0f} s", name_of_rank(first_missing()),
          who(), deadline.total().count());
}

// Keeps a connection with a valid handshake, or closes it if no rank of this job would make it.
void MeshBuilder::welcome(const Handshake& handshake, tcp::socket socket) {
  if (handshake.purpose == Handshake::join) return welcome_joiner_(handshake, std::move(socket));
  const bool from_above = handshake.rank > rank_info_.rank && handshake.rank < rank_info_.size;
  auto* sockets = handshake.purpose == Handshake::data      ? &mesh_.data
                  : handshake.purpose == Handshake::control ? &mesh_.control
                                                            : nullptr;
  if (!sockets || !from_above || (*sockets)[handshake.rank]) return;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  (*sockets)[handshake.rank] = std::move(socket);
}

Mesh MeshBuilder::take() {
  acceptors_.clear();
  return std::move(mesh_);
}

}  // namespace ringside::collectives
