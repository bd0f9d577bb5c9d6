#include "collectives/bootstrap/rendezvous/guest.hpp"

#include <array>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "base/text/printable.hpp"
#include "collectives/bootstrap/network_interface.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// How much longer than the deadline a guest waits for rank 0's table, and for its verdict: rank 0
// waits longer for a rank that cannot connect, which knows why (host.cpp).
constexpr Seconds extra_time{2}, extra_time_for_verdict{5};

class Guest {
 public:
  Guest(const RankInfo& rank_info, MeshBuilder& builder)
      : rank_info_(rank_info),
        builder_(builder),
        deadline_(Deadline::after(rank_info.connect_timeout)) {}

  Mesh come_together(const std::vector<tcp::endpoint>& masters, const std::string& hint) {
    join(masters, hint);
    expect_verdict();
    connect_all();
    report(Answer::connected, {});
    wait_until_all_connected();
    to_rank_0_.reset();
    return builder_.take();
  }

 private:
  // Listens, tells rank 0 the address, and waits for the table.
  void join(const std::vector<tcp::endpoint>& masters, const std::string& hint) {
    bool listening = false;
    to_rank_0_ = builder_.connect(
        0, masters, deadline_, "rank 0 is not there: it", hint, Handshake::join,
        [&](const tcp::socket& to_rank_0) {
          if (std::exchange(listening, true)) return;
          const auto here = to_rank_0.local_endpoint().address();
          builder_.listen_on(
              rank_info_.interface.empty()
                  ? builder_.open_to_others({here, 0})
                  : tcp::endpoint(address_of_interface(rank_info_.interface, here), 0));
        });
    tcp::socket& socket = *to_rank_0_;
    Answer answer;
    // Rank 0 may have started later than this rank.
    const Deadline patience = Deadline::after(rank_info_.connect_timeout + extra_time);
    error_code error =
        read_all(builder_.io(), socket, asio::buffer(&answer, sizeof answer), patience);
    require(error != asio::error::timed_out,
            "rank 0 has not brought the ranks together within {:.0f} s", patience.total().count());
    require(!error && plausible(answer, rank_info_.size),
            "rank 0 went away while the ranks were connecting ({})",
            error ? error.message() : "it sent an answer of another kind");
    std::string body(answer.bytes, '\0');
    error = read_all(builder_.io(), socket, asio::buffer(body), patience);
    require(!error, "rank 0 went away while the ranks were connecting ({})", error.message());
    builder_.addresses() = table_from(answer, body, rank_info_.size);
  }

  // While this rank connects, rank 0 may tell it that another rank has died.
  void expect_verdict() {
    asio::async_read(*to_rank_0_, asio::buffer(&verdict_, sizeof verdict_),
                     [this](error_code error, std::size_t) { take_verdict(error); });
    builder_.set_check([this] { require(!refusal_, "{}", refusal_.value_or("")); });
  }

  void take_verdict(error_code error) {
    if (error == asio::error::operation_aborted) return;
    if (!error && verdict_.kind == Answer::connected) {
      all_connected_ = true;
    } else if (!error && plausible(verdict_, rank_info_.size) && verdict_.kind == Answer::refusal) {
      reason_.resize(verdict_.bytes);
      asio::async_read(*to_rank_0_, asio::buffer(reason_), [this](error_code cut, std::size_t n) {
        if (cut == asio::error::operation_aborted) return;
        refusal_ = fmt::format("rank 0 refuses: {}", printable_line(reason_.substr(0, n)));
      });
    } else {
      refusal_ =
          fmt::format("rank 0 went away while the ranks were connecting ({})", error.message());
    }
  }

  // If it fails, rank 0 learns why, and tells the others: they would blame this rank, which leaves.
  void connect_all() {
    try {
      builder_.connect_all();
    } catch (const Error& error) {
      if (!refusal_) report(Answer::refusal, error.what());
      throw;
    }
  }

  void report(Answer::Kind kind, std::string_view reason) {
    const Answer answer{.kind = kind, .bytes = static_cast<std::uint32_t>(reason.size())};
    error_code ignored;  // if rank 0 has gone, take_verdict() learns it
    asio::write(*to_rank_0_, std::array{asio::buffer(&answer, sizeof answer), asio::buffer(reason)},
                ignored);
  }

  void wait_until_all_connected() {
    const Deadline deadline = Deadline::after(rank_info_.connect_timeout + extra_time_for_verdict);
    const bool told = builder_.wait_until(deadline, [this] { return all_connected_; });
    require(told, "rank 0 has not brought the ranks together within {:.0f} s",
            deadline.total().count());
  }

  const RankInfo& rank_info_;
  MeshBuilder& builder_;
  const Deadline deadline_;
  std::optional<tcp::socket> to_rank_0_;
  Answer verdict_;
  std::string reason_;  // of a refusal, as it arrives
  bool all_connected_ = false;
  std::optional<std::string> refusal_;  // why this job cannot be
};

}  // namespace

Mesh join_rendezvous(const RankInfo& rank_info, const std::vector<tcp::endpoint>& masters,
                     const std::string& hint, MeshBuilder& builder) {
  return Guest(rank_info, builder).come_together(masters, hint);
}

}  // namespace ringside::collectives
