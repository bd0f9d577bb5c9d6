#include "collectives/bootstrap/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "collectives/bootstrap/acceptor.hpp"
#include "collectives/bootstrap/handshake.hpp"
#include "collectives/bootstrap/network_interface.hpp"
#include "collectives/bootstrap/sockets.hpp"
#include "collectives/diagnostics/resources.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// How long rank 0 waits for more ranks after a failure, so that all of them learn the reason; and
// how much longer than the deadline another rank waits for rank 0's answer.
constexpr Seconds grace{2};

constexpr Seconds between_checks{0.05};

// One rank's part of a rendezvous.
class Rendezvous {
 public:
  explicit Rendezvous(
      const RankInfo& rank_info,
      std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>(),
      std::function<void()> check = [] {})
      : rank_info_(rank_info),
        key_(hash_of(rank_info.job_key)),
        deadline_(Deadline::after(rank_info.connect_timeout)),
        io_(std::move(io)),
        check_(std::move(check)) {
    require(rank_info.size >= 1 && rank_info.rank >= 0 && rank_info.rank < rank_info.size,
            "rank {} is not in a world of {}", rank_info.rank, rank_info.size);
    mesh_.data.resize(rank_info.size);
    mesh_.control.resize(rank_info.size);
    table_.resize(rank_info.size);
    joined_.resize(rank_info.size);
  }

  Mesh through_rank_0() {
    if (rank_info_.size == 1) {
      table_[0] = address_of({asio::ip::address_v4::loopback(), 0});
      return take_mesh();
    }
    const auto masters = resolve_master();
    if (rank_info_.rank == 0) {
      gather_all(masters);
      connect_all();
      wait_until_all_connected();
    } else {
      join(masters);
      expect_verdict();
      connect_all();
      report_connected();
    }
    return take_mesh();
  }

  Mesh among(std::vector<Address> addresses, tcp::acceptor acceptor) {
    table_ = std::move(addresses);
    accept_from(std::move(acceptor));
    connect_all();
    return take_mesh();
  }

 private:
  std::string who() const { return fmt::format("rank {}", rank_info_.rank); }

  std::vector<tcp::endpoint> resolve_master() {
    error_code error;
    const auto found = tcp::resolver(*io_).resolve(rank_info_.master_address,
                                                   std::to_string(rank_info_.master_port), error);
    require(!error && !found.empty(), "MASTER_ADDR={} is not a host that rank {} knows ({})",
            rank_info_.master_address, rank_info_.rank, error.message());
    std::vector<tcp::endpoint> endpoints;
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
    return endpoints;
  }

  Mesh take_mesh() {
    joined_.clear();
    to_rank_0_.reset();
    acceptors_.clear();
    mesh_.io = std::move(io_);
    mesh_.addresses = std::move(table_);
    return std::move(mesh_);
  }

  void accept_from(tcp::acceptor acceptor) {
    acceptors_.push_back(
        std::make_unique<Acceptor>(std::move(acceptor), key_, rank_info_.rank,
                                   [this](const Handshake& handshake, tcp::socket socket) {
                                     welcome(handshake, std::move(socket));
                                   }));
  }

  void listen_on(const tcp::endpoint& endpoint) {
    auto acceptor = listen_at(*io_, endpoint, who(), 2 * rank_info_.size);
    table_[rank_info_.rank] = address_of(acceptor.local_endpoint());
    accept_from(std::move(acceptor));
  }

  // Rank 0: waits for all others, then sends everybody the table, or the reason why there is none.
  void gather_all(const std::vector<tcp::endpoint>& masters) {
    listen_on(masters.front());
    if (!rank_info_.interface.empty())
      listen_on({address_of_interface(rank_info_.interface, masters.front().address()), 0});
    const bool all_came = wait_for_all();
    if (refusal_)
      run_until(*io_, Deadline::after(grace), [this] { return arrived_ == rank_info_.size - 1; });
    if (!all_came) {
      const auto ranks = missing();
      refusal_ = fmt::format("rank{} {} of {} never came to {} within {:.0f} s",
                             ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), rank_info_.size,
                             to_text(masters.front()), rank_info_.connect_timeout.count());
    }
    throw_refusal();
    answer_all(Answer::table,
               {reinterpret_cast<const char*>(table_.data()), table_.size() * sizeof(Address)});
    check_ = [this] { throw_refusal(); };
  }

  // Rank 0: tells every rank the refusal, if there is one, and throws it.
  void throw_refusal() {
    if (!refusal_) return;
    answer_all(Answer::refusal, *refusal_);
    throw Error(*refusal_);
  }

  void answer_all(Answer::Kind kind, std::string_view body) {
    const Answer answer{.kind = kind, .bytes = static_cast<std::uint32_t>(body.size())};
    for (const auto& each : joined_) {
      if (!each) continue;
      error_code ignored;  // of a rank that has died: its connection is watched
      asio::write(each->socket,
                  std::array{asio::buffer(&answer, sizeof answer), asio::buffer(body)}, ignored);
    }
  }

  // Rank 0: all ranks have its connections by now, or soon.
  void wait_until_all_connected() {
    const bool all = wait_until(Deadline::after(rank_info_.connect_timeout),
                                [this] { return connected_ == rank_info_.size - 1; });
    if (!all)
      refusal_ = fmt::format("the ranks were not all connected within {:.0f} s",
                             rank_info_.connect_timeout.count());
    throw_refusal();
    answer_all(Answer::connected, {});
  }

  // Until all have joined, or until it is certain that the job fails; false at the deadline.
  bool wait_for_all() {
    try {
      return run_until(*io_, deadline_, [this] { return missing().empty() || refusal_; });
    } catch (const Error& error) {
      refusal_ = error.what();  // the ranks that joined learn it too
      return true;
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 1; r < rank_info_.size; ++r)
      if (!joined_[r]) ranks.push_back(r);
    return ranks;
  }

  // Every other rank: listens, tells rank 0 the address, and waits for the table.
  void join(const std::vector<tcp::endpoint>& masters) {
    to_rank_0_ = connect_to(*io_, masters, deadline_, who(), "rank 0 is not there: it", check_);
    tcp::socket& socket = *to_rank_0_;
    const auto here = socket.local_endpoint().address();
    listen_on(
        {rank_info_.interface.empty() ? here : address_of_interface(rank_info_.interface, here),
         0});
    send_handshake(socket, Handshake::join);

    Answer answer;
    // Rank 0 may have started later than this rank.
    const Deadline patience = Deadline::after(rank_info_.connect_timeout + grace);
    error_code error = read_all(*io_, socket, asio::buffer(&answer, sizeof answer), patience);
    require(error != asio::error::timed_out,
            "rank 0 has not brought the ranks together within {:.0f} s", patience.total().count());
    require(!error && plausible(answer, rank_info_.size),
            "what listens at {} is not rank 0 of this job, or it has gone ({})",
            to_text(masters.front()), error.message());
    std::string body(answer.bytes, '\0');
    error = read_all(*io_, socket, asio::buffer(body), patience);
    require(!error, "rank 0 went away while the ranks were connecting ({})", error.message());
    table_ = table_from(answer, body, rank_info_.size);
  }

  // Every other rank: while it connects, rank 0 may tell it that another rank has died.
  void expect_verdict() {
    asio::async_read(*to_rank_0_, asio::buffer(&verdict_, sizeof verdict_),
                     [this](error_code error, std::size_t) { take_verdict(error); });
    check_ = [this] { require(!refusal_, "{}", refusal_.value_or("")); };
  }

  void take_verdict(error_code error) {
    if (error == asio::error::operation_aborted) return;
    if (!error && verdict_.kind == Answer::connected) {
      all_connected_ = true;
    } else if (!error && plausible(verdict_, rank_info_.size) && verdict_.kind == Answer::refusal) {
      std::string body(verdict_.bytes, '\0');
      asio::read(*to_rank_0_, asio::buffer(body), error);
      refusal_ = fmt::format("rank 0 refuses: {}", printable_line(body));
    } else {
      refusal_ =
          fmt::format("rank 0 went away while the ranks were connecting ({})", error.message());
    }
  }

  // Every other rank: has all its connections, and waits until all ranks have theirs.
  void report_connected() {
    error_code ignored;  // if rank 0 has gone, take_verdict() learns it
    asio::write(*to_rank_0_, asio::buffer("c", 1), ignored);
    const Deadline deadline = Deadline::after(rank_info_.connect_timeout + grace);
    const bool told = wait_until(deadline, [this] { return all_connected_; });
    require(told, "rank 0 has not brought the ranks together within {:.0f} s",
            deadline.total().count());
  }

  // Runs handlers until `done()`, or until the deadline. Returns whether it is done. Throws what
  // check_() throws.
  template <class Done>
  bool wait_until(const Deadline& deadline, Done done) {
    while (
        !run_until(*io_, Deadline::after(std::min(deadline.remaining(), between_checks)), done)) {
      check_();
      if (deadline.expired()) return false;
    }
    return true;
  }

  void send_handshake(tcp::socket& socket, Handshake::Purpose purpose) {
    Handshake handshake{.purpose = purpose,
                        .key = key_,
                        .rank = rank_info_.rank,
                        .size = rank_info_.size,
                        .listens_on = table_[rank_info_.rank]};
    rank_info_.backend.copy(handshake.backend, sizeof handshake.backend);
    error_code error;
    socket.set_option(tcp::no_delay(true), error);
    if (!error) asio::write(socket, asio::buffer(&handshake, sizeof handshake), error);
    require(!error, "rank {} lost a connection as soon as it was made: {}", rank_info_.rank,
            error.message());
  }

  void connect_all() {
    const Deadline deadline = Deadline::after(rank_info_.connect_timeout);
    for (int r = 0; r < rank_info_.rank; ++r) {
      const std::string whom = fmt::format("rank {} has come and gone: it", r);
      for (const auto purpose : {Handshake::data, Handshake::control}) {
        auto& socket = purpose == Handshake::data ? mesh_.data[r] : mesh_.control[r];
        socket = connect_to(*io_, {endpoint_of(table_[r])}, deadline, who(), whom, check_);
        send_handshake(*socket, purpose);
      }
    }
    const auto first_missing = [this] {
      int r = rank_info_.rank + 1;
      while (r < rank_info_.size && mesh_.data[r] && mesh_.control[r]) ++r;
      return r;
    };
    const bool all = wait_until(deadline, [&] { return first_missing() == rank_info_.size; });
    require(all, "rank {} came, but did not connect to rank {} within {:.0f} s", first_missing(),
            rank_info_.rank, deadline.total().count());
  }

  // Keeps a connection with a valid handshake, or closes it if no rank of this job would make it.
  void welcome(const Handshake& handshake, tcp::socket socket) {
    if (handshake.purpose == Handshake::join) return welcome_joiner(handshake, std::move(socket));
    const bool from_above = handshake.rank > rank_info_.rank && handshake.rank < rank_info_.size;
    auto* sockets = handshake.purpose == Handshake::data      ? &mesh_.data
                    : handshake.purpose == Handshake::control ? &mesh_.control
                                                              : nullptr;
    if (!sockets || !from_above || (*sockets)[handshake.rank]) return;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    (*sockets)[handshake.rank] = std::move(socket);
  }

  void welcome_joiner(const Handshake& handshake, tcp::socket socket) {
    ++arrived_;
    if (handshake.size != rank_info_.size) {
      refusal_ = fmt::format(
          "the ranks disagree on the world size: rank 0 has WORLD_SIZE={}, but rank {} has "
          "WORLD_SIZE={}",
          rank_info_.size, handshake.rank, handshake.size);
    } else if (const auto backend = backend_of(handshake); backend != rank_info_.backend) {
      refusal_ = fmt::format(
          "the ranks have different backends: rank 0 has {}, but rank {} has {}. Start every rank "
          "with the same --backend (or RINGSIDE_BACKEND)",
          rank_info_.backend, handshake.rank, printable_line(backend));
    } else if (handshake.rank < 1 || handshake.rank >= rank_info_.size || joined_[handshake.rank]) {
      refusal_ = fmt::format(
          "two processes say that they are rank {}: every process needs a RANK of its own",
          handshake.rank);
    } else {
      table_[handshake.rank] = handshake.listens_on;
      joined_[handshake.rank] = std::make_unique<Joined>(std::move(socket));
      watch(handshake.rank);
      return;
    }
    joined_.push_back(std::make_unique<Joined>(std::move(socket)));  // it gets the same answer
  }

  // Rank 0: rank r tells when it has all its connections. If it dies before, its connection closes.
  void watch(int r) {
    Joined& rank = *joined_[r];
    asio::async_read(rank.socket, asio::buffer(&rank.report, 1),
                     [this, r](error_code error, std::size_t) {
                       if (error == asio::error::operation_aborted) return;
                       if (!error) {
                         ++connected_;
                       } else if (!refusal_) {
                         refusal_ = fmt::format(
                             "rank {} came and is gone, before all ranks were connected: it was "
                             "killed, or it failed and says why",
                             r);
                       }
                     });
  }

  static std::string backend_of(const Handshake& handshake) {
    const auto& field = handshake.backend;
    return std::string(field, ::strnlen(field, sizeof field));
  }

  struct Joined {
    explicit Joined(tcp::socket s) : socket(std::move(s)) {}
    tcp::socket socket;
    char report = 0;
  };

  const RankInfo rank_info_;
  const Key key_;
  const Deadline deadline_;
  std::unique_ptr<asio::io_context> io_;
  std::function<void()> check_;  // throws if there is no use in waiting any longer
  Mesh mesh_;
  std::vector<Address> table_;  // [rank]

  // Of rank 0: [rank] its connections to the ranks that joined; refused ones follow at the end.
  std::vector<std::unique_ptr<Joined>> joined_;
  int connected_ = 0;  // ranks that have all their connections

  // Of every other rank that came to rank 0.
  std::optional<tcp::socket> to_rank_0_;
  Answer verdict_;
  bool all_connected_ = false;

  int arrived_ = 0;  // processes of this job that have come to rank 0, refused ones too
  std::optional<std::string> refusal_;  // why no rank gets a table
  // Rank 0 may have two: at MASTER_ADDR, and at RINGSIDE_INTERFACE.
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
};

// Calls `connect`, and turns an exception of asio into an Error.
template <class Connect>
auto with_errors_in_words(const std::string& who, Connect connect) {
  try {
    return connect();
  } catch (const boost::system::system_error& error) {
    check_open_files(error.code().value(), who);
    fail("{} cannot connect with the other ranks: {}", who, error.what());
  }
}

}  // namespace

Mesh connect_mesh(const RankInfo& rank_info) {
  return with_errors_in_words(fmt::format("rank {}", rank_info.rank),
                              [&] { return Rendezvous(rank_info).through_rank_0(); });
}

bool Mesh::on_one_host() const {
  return std::all_of(addresses.begin(), addresses.end(),
                     [&](const Address& each) { return each.host == addresses.front().host; });
}

struct Listener::Listening {
  std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>();
  tcp::acceptor acceptor;
  explicit Listening(const tcp::endpoint& endpoint)
      : acceptor(listen_at(*io, endpoint, "a rank of a sub-group", 0)) {}
};

Listener::Listener(const Address& other) {
  auto endpoint = endpoint_of(other);
  endpoint.port(0);
  listening_ = with_errors_in_words("a rank of a sub-group",
                                    [&] { return std::make_unique<Listening>(endpoint); });
  address_ = address_of(listening_->acceptor.local_endpoint());
}

Listener::~Listener() = default;
Listener::Listener(Listener&&) noexcept = default;

Mesh Listener::connect_mesh(const RankInfo& rank_info, std::vector<Address> addresses,
                            const std::function<void()>& check) {
  return with_errors_in_words(fmt::format("rank {}", rank_info.rank), [&] {
    return Rendezvous(rank_info, std::move(listening_->io), check)
        .among(std::move(addresses), std::move(listening_->acceptor));
  });
}

}  // namespace ringside::collectives
