#include "collectives/bootstrap/rendezvous.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <functional>

#include <sys/stat.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/bootstrap/handshake.hpp"
#include "collectives/bootstrap/network_interface.hpp"
#include "collectives/bootstrap/resources.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr Seconds hello_patience{5};
constexpr Seconds longest_attempt{5};  // to connect
constexpr Seconds grace{2};            // for the reason to reach everybody when the meeting fails

// The boot id tells one running kernel from another, and memory is reached through /proc, which a
// process-ID namespace confines.
std::uint64_t this_host() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  struct stat ns {};
  if (::stat("/proc/self/ns/pid", &ns) != 0) ns.st_ino = 0;
  return hash_of(boot_id)[0] ^ mix_bits(ns.st_ino);
}

Address address_of(const tcp::endpoint& endpoint) {
  Address address;
  address.host = this_host();
  endpoint.address().to_string().copy(address.text, sizeof address.text - 1);
  address.port = endpoint.port();
  return address;
}

tcp::endpoint endpoint_of(const Address& address) {
  const std::string text(address.text, ::strnlen(address.text, sizeof address.text));
  error_code error;
  const auto parsed = asio::ip::make_address(text, error);
  require(!error, "this was said to be the address of a rank, and is none: '{}'", text);
  return {parsed, address.port};
}

std::string to_text(const tcp::endpoint& endpoint) {
  return endpoint.address().is_v6()
             ? fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port())
             : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

template <class Done>
bool run_until(asio::io_context& io, const Deadline& deadline, Done done) {
  while (!done()) {
    if (deadline.expired()) return false;
    io.restart();
    const auto left = std::chrono::duration_cast<Clock::duration>(deadline.remaining());
    if (io.run_one_for(std::max(left, Clock::duration(std::chrono::milliseconds(1)))) == 0 &&
        io.stopped() && !done())
      asio::steady_timer(io, std::chrono::milliseconds(5))
          .wait();  // nothing is under way, and nothing ever will be: no busy loop
  }
  return true;
}

// Reads exactly buffer.size() bytes before the deadline. Returns what went wrong, nothing if all is
// well.
error_code read_all(asio::io_context& io, tcp::socket& socket, asio::mutable_buffer buffer,
                    const Deadline& deadline) {
  std::optional<error_code> result;
  asio::async_read(socket, buffer, [&](error_code error, std::size_t) { result = error; });
  if (run_until(io, deadline, [&] { return result.has_value(); })) return *result;
  socket.cancel();
  run_until(io, Deadline::after(Seconds(1)), [&] { return result.has_value(); });
  return asio::error::timed_out;
}

// Whoever connects to a port from which the kernel also takes ports for outgoing connections, while
// nobody listens there, may be given this very port, and is then connected to itself.
bool with_itself(const tcp::socket& socket) {
  error_code error;
  return socket.local_endpoint(error) == socket.remote_endpoint(error);
}

// Tries again, with pauses that grow, until somebody listens there or the deadline passes. `who`
// connects, `whom` is sought.
tcp::socket connect_to(asio::io_context& io, const std::vector<tcp::endpoint>& endpoints,
                       const Deadline& deadline, const std::string& who, const std::string& whom) {
  error_code last = asio::error::in_progress;
  for (auto pause = std::chrono::milliseconds(5);;
       pause = std::min(pause * 2, std::chrono::milliseconds(500))) {
    for (const auto& endpoint : endpoints) {
      tcp::socket socket(io);
      std::optional<error_code> result;
      socket.async_connect(endpoint, [&](error_code error) { result = error; });
      const Seconds patience =
          std::min(deadline.remaining(),
                   longest_attempt);  // a name may have several addresses, one of them dead
      if (!run_until(io, Deadline::after(patience), [&] { return result.has_value(); })) {
        if (patience == longest_attempt || last == asio::error::in_progress)
          last = asio::error::timed_out;  // else: cut short by the end
        socket.close();
        run_until(io, Deadline::after(Seconds(1)), [&] { return result.has_value(); });
      } else if (last = *result; !last && !with_itself(socket)) {
        return socket;
      }
      check_open_files(last.value(), who);
    }
    require(!deadline.expired() || last.value() != EADDRNOTAVAIL, "{}", no_free_port(who));
    require(!deadline.expired(), "{} cannot be reached at {} within {:.0f} s ({})", whom,
            to_text(endpoints.front()), deadline.total().count(), last.message());
    asio::steady_timer(io, pause).wait();
  }
}

// Accepts connections, several at a time, and passes on those that belong here.
class Doorman {
 public:
  using Visitor = std::function<void(const Hello&, tcp::socket)>;

  Doorman(tcp::acceptor acceptor, Key key, int rank, Visitor welcome)
      : acceptor_(std::move(acceptor)), key_(key), rank_(rank), welcome_(std::move(welcome)) {
    accept();
  }

 private:
  struct Guest {
    explicit Guest(tcp::socket s) : socket(std::move(s)), timer(socket.get_executor()) {}
    tcp::socket socket;
    asio::steady_timer timer;
    Hello hello;
  };

  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      check_open_files(error.value(), fmt::format("rank {}", rank_));
      if (!error) greet(std::make_shared<Guest>(std::move(socket)));
      accept();
    });
  }

  void greet(const std::shared_ptr<Guest>& guest) {
    guest->timer.expires_after(std::chrono::duration_cast<Clock::duration>(hello_patience));
    guest->timer.async_wait([guest](error_code error) {
      if (!error) guest->socket.cancel();
    });
    asio::async_read(
        guest->socket, asio::buffer(&guest->hello, sizeof(Hello)),
        [this, guest](error_code error, std::size_t n) {
          guest->timer.cancel();
          const Hello& hello = guest->hello;
          if (error)
            return turn_away(
                *guest, fmt::format("it sent {} of the {} bytes of a greeting", n, sizeof(Hello)));
          if (const auto reason = reason_to_turn_away(hello, key_))
            return turn_away(*guest, *reason);
          welcome_(hello, std::move(guest->socket));
        });
  }

  void turn_away(Guest& guest, const std::string& why) {
    error_code error;
    const auto endpoint = guest.socket.remote_endpoint(error);
    fmt::print(stderr, "ringside: rank {} turned away a connection from {}: {}\n", rank_,
               error ? "nowhere" : to_text(endpoint), why);
    if (guest.hello.magic != Hello::expected_magic) return;
    const Answer answer{.kind = Answer::refusal, .bytes = static_cast<std::uint32_t>(why.size())};
    asio::write(guest.socket, std::array{asio::buffer(&answer, sizeof answer), asio::buffer(why)},
                error);
    error_code ignored;
    guest.socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  tcp::acceptor acceptor_;
  Key key_;
  int rank_;
  Visitor welcome_;
};

tcp::acceptor listen_at(asio::io_context& io, const tcp::endpoint& endpoint, const std::string& who,
                        int at_once) {
  tcp::acceptor acceptor(io);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(std::max(128, at_once), error);
  check_open_files(error.value(), who);
  require(error != asio::error::address_in_use || endpoint.port() != 0, "{}", no_free_port(who));
  require(error != asio::error::address_in_use,
          "{} cannot listen on {}: the port is taken. Choose another with MASTER_PORT (or "
          "--master-port)",
          who, to_text(endpoint));
  require(!error,
          "{} cannot listen on {}: {}. MASTER_ADDR must be an address of the host of rank 0", who,
          to_text(endpoint), error.message());
  return acceptor;
}

class Meeting {
 public:
  explicit Meeting(const RankInfo& rank_info,
                   std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>())
      : rank_info_(rank_info),
        key_(hash_of(rank_info.job_key)),
        deadline_(Deadline::after(rank_info.connect_timeout)),
        io_(std::move(io)) {
    mesh_.data.resize(rank_info.size);
    mesh_.lifelines.resize(rank_info.size);
    table_.resize(rank_info.size);
    joined_.resize(rank_info.size);
  }

  Mesh by_way_of_rank_0() {
    if (rank_info_.size == 1) {
      table_[0] = address_of({asio::ip::address_v4::loopback(), 0});
      return leave();
    }
    const auto masters = resolve_master();
    if (rank_info_.rank == 0)
      gather_all(masters);
    else
      join(masters);
    connect_all();
    return leave();
  }

  Mesh at(std::vector<Address> addresses, tcp::acceptor acceptor) {
    table_ = std::move(addresses);
    open_doors(std::move(acceptor));
    connect_all();
    return leave();
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

  Mesh leave() {
    joined_.clear();
    doormen_.clear();
    mesh_.io = std::move(io_);
    mesh_.addresses = std::move(table_);
    return std::move(mesh_);
  }

  void open_doors(tcp::acceptor acceptor) {
    doormen_.push_back(std::make_unique<Doorman>(
        std::move(acceptor), key_, rank_info_.rank,
        [this](const Hello& hello, tcp::socket socket) { welcome(hello, std::move(socket)); }));
  }

  void listen_on(const tcp::endpoint& endpoint) {
    auto acceptor = listen_at(*io_, endpoint, who(), 2 * rank_info_.size);
    table_[rank_info_.rank] = address_of(acceptor.local_endpoint());
    open_doors(std::move(acceptor));
  }

  // Rank 0: waits for all others, then tells each where all are.
  void gather_all(const std::vector<tcp::endpoint>& masters) {
    listen_on(masters.front());
    if (!rank_info_.interface.empty())
      listen_on({address_of_interface(rank_info_.interface, masters.front().address()), 0});
    const bool all_came = wait_for_all();
    if (refusal_)
      run_until(*io_, Deadline::after(grace),
                [this] { return visitors_ == rank_info_.size - 1; });  // so that all hear it
    if (!all_came) {
      const auto ranks = missing();
      refusal_ = fmt::format("rank{} {} of {} never came to {} within {:.0f} s",
                             ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), rank_info_.size,
                             to_text(masters.front()), rank_info_.connect_timeout.count());
    }
    const auto bytes =
        static_cast<std::uint32_t>(refusal_ ? refusal_->size() : table_.size() * sizeof(Address));
    const Answer answer{.kind = refusal_ ? Answer::refusal : Answer::table, .bytes = bytes};
    const auto body = refusal_ ? asio::buffer(*refusal_) : asio::buffer(table_.data(), bytes);
    for (auto& socket : joined_) {
      error_code ignored;  // who has gone meanwhile is found missing when the mesh is made
      if (socket)
        asio::write(*socket,
                    std::array<asio::const_buffer, 2>{asio::buffer(&answer, sizeof answer), body},
                    ignored);
    }
    if (refusal_) throw Error(*refusal_);
  }

  // Until all have come, or it is clear that the job cannot be; false at the deadline.
  bool wait_for_all() {
    try {
      return run_until(*io_, deadline_, [this] { return missing().empty() || refusal_; });
    } catch (const Error& error) {
      refusal_ = error.what();  // those that came shall hear it
      return true;
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 1; r < rank_info_.size; ++r)
      if (!joined_[r]) ranks.push_back(r);
    return ranks;
  }

  // Every other rank: listens, tells rank 0 where, and waits for the table.
  void join(const std::vector<tcp::endpoint>& masters) {
    const std::string whom = fmt::format("rank 0 is not there: it");
    tcp::socket socket = connect_to(*io_, masters, deadline_, who(), whom);
    const auto here = socket.local_endpoint().address();
    listen_on(
        {rank_info_.interface.empty() ? here : address_of_interface(rank_info_.interface, here),
         0});
    say_hello(socket, Hello::join);

    Answer answer;
    const Deadline patience = Deadline::after(
        rank_info_.connect_timeout + grace);  // rank 0 may have started later than this rank
    error_code error = read_all(*io_, socket, asio::buffer(&answer, sizeof answer), patience);
    require(error != asio::error::timed_out,
            "rank 0 has not brought the ranks together within {:.0f} s", patience.total().count());
    require(!error && plausible(answer, rank_info_.size),
            "what listens at {} is not rank 0 of this job, or it has gone ({})",
            to_text(masters.front()), error.message());
    std::string body(answer.bytes, '\0');
    error = read_all(*io_, socket, asio::buffer(body), patience);
    require(!error, "rank 0 went away while the ranks were coming together ({})", error.message());
    table_ = table_from(answer, body, rank_info_.size);
  }

  void say_hello(tcp::socket& socket, Hello::Purpose purpose) {
    socket.set_option(tcp::no_delay(true));
    const Hello hello{.purpose = purpose,
                      .key = key_,
                      .rank = rank_info_.rank,
                      .size = rank_info_.size,
                      .listens_on = table_[rank_info_.rank]};
    error_code error;
    asio::write(socket, asio::buffer(&hello, sizeof hello), error);
    require(!error, "rank {} lost a connection as soon as it was made: {}", rank_info_.rank,
            error.message());
  }

  void connect_all() {
    const Deadline deadline = Deadline::after(rank_info_.connect_timeout);
    for (int r = 0; r < rank_info_.rank; ++r) {
      const std::string whom = fmt::format("rank {} has come and gone: it", r);
      for (const auto purpose : {Hello::data, Hello::lifeline}) {
        auto& rank_info = purpose == Hello::data ? mesh_.data[r] : mesh_.lifelines[r];
        rank_info = connect_to(*io_, {endpoint_of(table_[r])}, deadline, who(), whom);
        say_hello(*rank_info, purpose);
      }
    }
    const auto connected = [this] {
      for (int r = rank_info_.rank + 1; r < rank_info_.size; ++r)
        if (!mesh_.data[r] || !mesh_.lifelines[r]) return false;
      return true;
    };
    if (run_until(*io_, deadline, connected)) return;
    for (int r = rank_info_.rank + 1; r < rank_info_.size; ++r)
      require(mesh_.data[r] && mesh_.lifelines[r],
              "rank {} came, but did not connect to rank {} within {:.0f} s", r, rank_info_.rank,
              deadline.total().count());
  }

  void welcome(const Hello& hello, tcp::socket socket) {
    if (hello.purpose == Hello::join) return welcome_joiner(hello, std::move(socket));
    const bool from_above = hello.rank > rank_info_.rank && hello.rank < rank_info_.size;
    auto* places = hello.purpose == Hello::data       ? &mesh_.data
                   : hello.purpose == Hello::lifeline ? &mesh_.lifelines
                                                      : nullptr;
    if (!places || !from_above || (*places)[hello.rank])
      return;  // closes it: no rank of this job would say that
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    (*places)[hello.rank] = std::move(socket);
  }

  void welcome_joiner(const Hello& hello, tcp::socket socket) {
    ++visitors_;
    if (hello.size != rank_info_.size) {
      refusal_ = fmt::format(
          "the ranks disagree on how many they are: rank 0 has WORLD_SIZE={}, but rank {} has "
          "WORLD_SIZE={}",
          rank_info_.size, hello.rank, hello.size);
    } else if (hello.rank < 1 || hello.rank >= rank_info_.size || joined_[hello.rank]) {
      refusal_ = fmt::format(
          "two processes say that they are rank {}: every process needs a RANK of its own",
          hello.rank);
    } else {
      table_[hello.rank] = hello.listens_on;
      joined_[hello.rank] = std::move(socket);
      return;
    }
    joined_.push_back(std::move(socket));  // it is told with the others
  }

  const RankInfo rank_info_;
  const Key key_;
  const Deadline deadline_;
  std::unique_ptr<asio::io_context> io_;
  Mesh mesh_;
  std::vector<Address> table_;  // [rank]
  std::vector<std::optional<tcp::socket>>
      joined_;        // [rank] rank 0's connections to those that came; refused ones at the end
  int visitors_ = 0;  // processes of this job that have come to rank 0, welcome or not
  std::optional<std::string> refusal_;  // why nobody will get a table
  std::vector<std::unique_ptr<Doorman>>
      doormen_;  // rank 0 may have two: where all meet, and where RINGSIDE_INTERFACE is
};

}  // namespace

static void check_rank_info(const RankInfo& rank_info) {
  require(rank_info.size >= 1 && rank_info.rank >= 0 && rank_info.rank < rank_info.size,
          "rank {} is not in a world of {}", rank_info.rank, rank_info.size);
}

Mesh meet(const RankInfo& rank_info) {
  check_rank_info(rank_info);
  try {
    return Meeting(rank_info).by_way_of_rank_0();
  } catch (const boost::system::system_error& error) {
    check_open_files(error.code().value(), fmt::format("rank {}", rank_info.rank));
    throw;
  }
}

bool Mesh::on_one_host() const {
  return std::all_of(addresses.begin(), addresses.end(),
                     [&](const Address& each) { return each.host == addresses.front().host; });
}

struct Entrance::Listening {
  std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>();
  tcp::acceptor acceptor;
  explicit Listening(const tcp::endpoint& endpoint)
      : acceptor(listen_at(*io, endpoint, "a rank of a sub-group", 0)) {}
};

Entrance::Entrance(const Address& other) {
  auto endpoint = endpoint_of(other);
  endpoint.port(0);
  listening_ = std::make_unique<Listening>(endpoint);
  address_ = address_of(listening_->acceptor.local_endpoint());
}

Entrance::~Entrance() = default;
Entrance::Entrance(Entrance&&) noexcept = default;

Mesh Entrance::meet(const RankInfo& rank_info, std::vector<Address> addresses) {
  check_rank_info(rank_info);
  return Meeting(rank_info, std::move(listening_->io))
      .at(std::move(addresses), std::move(listening_->acceptor));
}

}  // namespace ringside::collectives
