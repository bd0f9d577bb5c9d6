#include "collectives/bootstrap/rendezvous/host.hpp"

#include <array>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "base/ports/listening_port.hpp"
#include "base/text/printable.hpp"
#include "base/warn.hpp"
#include "collectives/bootstrap/network_interface.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
namespace ip = asio::ip;
using boost::system::error_code;
using ip::tcp;

// How long rank 0 waits for more ranks after a failure, so that all of them learn the reason.
constexpr Seconds time_to_join{2};

// How much longer rank 0 waits than a rank that cannot connect, which knows why.
constexpr Seconds time_to_report{3};

class Host {
 public:
  Host(const RankInfo& rank_info, MeshBuilder& builder)
      : rank_info_(rank_info),
        builder_(builder),
        deadline_(Deadline::after(rank_info.connect_timeout)),
        joined_(rank_info.size) {
    builder_.set_welcome_joiner([this](const Handshake& handshake, tcp::socket socket) {
      welcome_joiner(handshake, std::move(socket));
    });
  }

  ~Host() {
    if (inherited_.is_open()) stop_listening(inherited_);
  }

  Mesh bring_together(const std::vector<tcp::endpoint>& masters, const std::string& hint) {
    gather_all(listen(masters), hint);
    try {
      builder_.connect_all();
    } catch (const Error& error) {
      if (refusal_) throw;  // all have been told
      refusal_ = error.what();
      throw_refusal();
    }
    wait_until_all_connected();
    joined_.clear();
    return builder_.take();
  }

 private:
  // Listens at those of `masters` that this host has, and says where.
  std::string listen(const std::vector<tcp::endpoint>& masters) {
    std::vector<tcp::endpoint> own;
    for (const auto& each : masters)
      if (is_of_this_host(builder_.io(), each.address())) own.push_back(each);
    if (own.empty()) own = masters;  // listen_on() says what is wrong
    const tcp::endpoint first = builder_.open_to_others(own.front());
    const bool everywhere = first != own.front();
    if (everywhere) own = {first};
    inherited_ = listen_with(rank_info_.listening, rank_info_.master_port);
    if (inherited_.is_open())
      builder_.listen_with(inherited_);
    else
      for (const auto& each : own) builder_.listen_on(each);
    if (!rank_info_.interface.empty())
      builder_.listen_on(
          {address_of_interface(rank_info_.interface, masters.front().address()), 0});
    return everywhere ? fmt::format("port {} of the host of rank 0", first.port()) : to_text(own);
  }

  // Waits for all others, then sends everybody the table, or the reason why there is none.
  void gather_all(const std::string& where, const std::string& hint) {
    const bool all_came = wait_for_all(hint);
    if (refusal_)
      run_until(builder_.io(), Deadline::after(time_to_join),
                [this] { return arrived_ == rank_info_.size - 1; });
    if (!all_came) {
      const auto ranks = missing();
      refusal_ =
          fmt::format("rank{} {} of {} never came to {} within {:.0f} s{}{}",
                      ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), rank_info_.size, where,
                      rank_info_.connect_timeout.count(), hint.empty() ? "" : ". ", hint);
    }
    try {
      if (!refusal_) complete_addresses();
    } catch (const Error& error) {
      refusal_ = error.what();
    }
    throw_refusal();
    answer_all(Answer::table, {reinterpret_cast<const char*>(builder_.addresses().data()),
                               builder_.addresses().size() * sizeof(Address)});
    builder_.set_check([this] { throw_refusal(); });
  }

  // A rank that listens at several addresses of its host does not know by which one the others
  // reach it. The connections over which the ranks came tell. Throws Error if they cannot reach it.
  void complete_addresses() {
    auto& addresses = builder_.addresses();
    ip::address here;  // of this host, as the others know it
    std::vector<ip::address> host(joined_.size(), ip::address_v4::loopback());  // of rank r
    for (int r = 1; r < rank_info_.size; ++r) {
      error_code gone;  // the rank has died: its connection is watched
      const auto from = unmapped(joined_[r]->socket.remote_endpoint(gone).address());
      if (gone) continue;
      const auto to = unmapped(joined_[r]->socket.local_endpoint().address());
      if (!from.is_loopback() && from != to) host[r] = from;
      if (here.is_unspecified() || (here.is_loopback() && !to.is_loopback())) here = to;
    }
    if (rank_info_.interface.empty()) set_host(addresses[0], here);
    for (int r = 0; r < rank_info_.size; ++r) {
      const tcp::endpoint listens = endpoint_of(addresses[r]);
      if (listens.address().is_unspecified())
        set_host(addresses[r], host[r] == host[0] ? here : host[r]);
      if (!listens.address().is_loopback()) continue;
      for (int above = r + 1; above < rank_info_.size; ++above)
        require(host[above] == host[r],
                "rank {} listens at {}, a loopback address, which rank {} on another host cannot "
                "reach: set RINGSIDE_INTERFACE on the host of rank {} to a network interface that "
                "the other hosts reach",
                r, to_text(listens), above, r);
    }
  }

  // Tells every rank the refusal, if there is one, and throws it.
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

  // All ranks have its connections by now, or soon.
  void wait_until_all_connected() {
    const auto unconnected = [this] {
      return ranks_where([](const Joined* rank) { return !rank->connected; });
    };
    const bool all =
        builder_.wait_until(Deadline::after(rank_info_.connect_timeout + time_to_report),
                            [&] { return unconnected().empty(); });
    if (!all) {
      const auto ranks = unconnected();
      refusal_ = fmt::format("rank{} {} came, but did not connect with all others within {:.0f} s",
                             ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                             rank_info_.connect_timeout.count());
    }
    throw_refusal();
    answer_all(Answer::connected, {});
  }

  // Until all have joined, or until it is certain that the job fails; false at the deadline.
  bool wait_for_all(const std::string& hint) {
    const auto done = [this] { return missing().empty() || refusal_; };
    try {
      if (!hint.empty() && !run_until(builder_.io(), Deadline::after(time_to_hint), done))
        warn("rank{} {} did not come yet. {}", missing().size() == 1 ? "" : "s",
             fmt::join(missing(), ", "), hint);
      return run_until(builder_.io(), deadline_, done);
    } catch (const Error& error) {
      refusal_ = error.what();  // the ranks that joined learn it too
      return true;
    }
  }

  std::vector<int> missing() const {
    return ranks_where([](const Joined* rank) { return rank == nullptr; });
  }

  template <class Condition>
  std::vector<int> ranks_where(Condition condition) const {
    std::vector<int> ranks;
    for (int r = 1; r < rank_info_.size; ++r)
      if (condition(joined_[r].get())) ranks.push_back(r);
    return ranks;
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
      builder_.addresses()[handshake.rank] = handshake.listens_on;
      joined_[handshake.rank] = std::make_unique<Joined>(std::move(socket));
      watch(handshake.rank);
      return;
    }
    joined_.push_back(std::make_unique<Joined>(std::move(socket)));  // it gets the same answer
  }

  // Rank r tells when it has all its connections, or why it cannot. If it dies before, its
  // connection closes.
  void watch(int r) {
    Joined& rank = *joined_[r];
    asio::async_read(rank.socket, asio::buffer(&rank.report, sizeof rank.report),
                     [this, r](error_code error, std::size_t) { take_report(r, error); });
  }

  void take_report(int r, error_code error) {
    Joined& rank = *joined_[r];
    if (error == asio::error::operation_aborted) return;
    if (!error && rank.report.kind == Answer::connected) {
      rank.connected = true;
    } else if (!error && rank.report.kind == Answer::refusal &&
               plausible(rank.report, rank_info_.size)) {
      rank.reason.resize(rank.report.bytes);
      asio::async_read(rank.socket, asio::buffer(rank.reason),
                       [this, r](error_code cut, std::size_t n) {
                         if (cut == asio::error::operation_aborted || refusal_) return;
                         refusal_ = printable_line(joined_[r]->reason.substr(0, n));
                       });
    } else if (!refusal_) {
      refusal_ = fmt::format(
          "rank {} came and is gone, before all ranks were connected: it was killed, or it failed "
          "and says why",
          r);
    }
  }

  static std::string backend_of(const Handshake& handshake) {
    const auto& field = handshake.backend;
    return std::string(field, ::strnlen(field, sizeof field));
  }

  struct Joined {
    explicit Joined(tcp::socket s) : socket(std::move(s)) {}
    tcp::socket socket;
    Answer report;
    std::string reason;  // why it cannot connect
    bool connected = false;
  };

  const RankInfo& rank_info_;
  MeshBuilder& builder_;
  const Deadline deadline_;
  FileDescriptor inherited_;
  // [rank] the connections to the ranks that joined; refused ones follow at the end.
  std::vector<std::unique_ptr<Joined>> joined_;
  int arrived_ = 0;                     // connections that wanted to join
  std::optional<std::string> refusal_;  // why this job cannot be
};

}  // namespace

Mesh host_rendezvous(const RankInfo& rank_info, const std::vector<tcp::endpoint>& masters,
                     const std::string& hint, MeshBuilder& builder) {
  return Host(rank_info, builder).bring_together(masters, hint);
}

}  // namespace ringside::collectives
