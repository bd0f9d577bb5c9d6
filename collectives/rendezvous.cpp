#include "collectives/rendezvous.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <functional>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <sys/stat.h>

#include "base/error.hpp"
#include "base/random.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::uint32_t magic = 0x4a474e52;  // "RNGJ"
constexpr std::uint16_t version = 1;
constexpr Seconds hello_patience{5};
constexpr Seconds grace{2};  // for the reason to reach everybody when the meeting fails

using Key = std::array<std::uint64_t, 2>;

std::uint64_t hash_of_text(const std::string& text, std::uint64_t hash) {
  for (const char c : text) hash = mix_bits(hash * 0x100000001b3ULL + static_cast<unsigned char>(c));
  return hash;
}

// The job key is never sent as it is: a log or a stranger's socket shows only its hash.
Key hash_of(const std::string& job_key) {
  return {hash_of_text(job_key, 1), hash_of_text(job_key, 2)};
}

// The boot id tells one running kernel from another, and memory is reached through /proc, which a process-ID namespace confines.
std::uint64_t this_host() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  struct stat ns {};
  if (::stat("/proc/self/ns/pid", &ns) != 0) ns.st_ino = 0;
  return hash_of_text(boot_id, ns.st_ino);
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

// The first words on every connection.
struct Hello {
  enum Purpose : std::uint16_t { join = 1, data, lifeline };
  std::uint32_t magic = ringside::collectives::magic;
  std::uint16_t version = ringside::collectives::version;
  std::uint16_t purpose = join;
  Key key{};
  std::int32_t rank = 0;
  std::int32_t size = 0;
  Address listens_on;
  char unused[8] = {};
};
static_assert(sizeof(Hello) == 96, "the layout is the wire format");

// What rank 0 answers to a join: the table of addresses, or why there will be none.
struct Answer {
  enum Kind : std::uint32_t { table = 1, refusal };
  std::uint32_t magic = ringside::collectives::magic;
  std::uint32_t kind = table;
  std::uint32_t bytes = 0;
};

std::string to_text(const tcp::endpoint& endpoint) {
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", endpoint.address().to_string(), endpoint.port())
                                    : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

template <class Done>
bool run_until(asio::io_context& io, const Deadline& deadline, Done done) {
  while (!done()) {
    if (deadline.expired()) return false;
    io.restart();
    const auto left = std::chrono::duration_cast<Clock::duration>(deadline.remaining());
    if (io.run_one_for(std::max(left, Clock::duration(std::chrono::milliseconds(1)))) == 0 && io.stopped() && !done())
      asio::steady_timer(io, std::chrono::milliseconds(5)).wait();  // nothing is under way, and nothing ever will be: no busy loop
  }
  return true;
}

// Reads exactly buffer.size() bytes before the deadline. Returns what went wrong, nothing if all is well.
error_code read_all(asio::io_context& io, tcp::socket& socket, asio::mutable_buffer buffer, const Deadline& deadline) {
  std::optional<error_code> result;
  asio::async_read(socket, buffer, [&](error_code error, std::size_t) { result = error; });
  if (run_until(io, deadline, [&] { return result.has_value(); })) return *result;
  socket.cancel();
  run_until(io, Deadline::after(Seconds(1)), [&] { return result.has_value(); });
  return asio::error::timed_out;
}

// Tries again, with pauses that grow, until somebody listens there or the deadline passes.
tcp::socket connect_to(asio::io_context& io, const std::vector<tcp::endpoint>& endpoints, const Deadline& deadline,
                       const std::string& whom) {
  error_code last = asio::error::timed_out;
  for (auto pause = std::chrono::milliseconds(5);; pause = std::min(pause * 2, std::chrono::milliseconds(500))) {
    for (const auto& endpoint : endpoints) {
      tcp::socket socket(io);
      std::optional<error_code> result;
      socket.async_connect(endpoint, [&](error_code error) { result = error; });
      if (!run_until(io, deadline, [&] { return result.has_value(); })) {
        socket.close();
        run_until(io, Deadline::after(Seconds(1)), [&] { return result.has_value(); });
      } else if (last = *result; !last) {
        return socket;
      }
    }
    require(!deadline.expired(), "{} cannot be reached at {} within {:.0f} s ({})", whom, to_text(endpoints.front()),
            deadline.total().count(), last.message());
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
      if (!error) greet(std::make_shared<Guest>(std::move(socket)));
      accept();
    });
  }

  void greet(const std::shared_ptr<Guest>& guest) {
    guest->timer.expires_after(std::chrono::duration_cast<Clock::duration>(hello_patience));
    guest->timer.async_wait([guest](error_code error) {
      if (!error) guest->socket.cancel();
    });
    asio::async_read(guest->socket, asio::buffer(&guest->hello, sizeof(Hello)), [this, guest](error_code error, std::size_t n) {
      guest->timer.cancel();
      const Hello& hello = guest->hello;
      if (error) return turn_away(*guest, fmt::format("it sent {} of the {} bytes of a greeting", n, sizeof(Hello)));
      if (hello.magic != magic) return turn_away(*guest, "it does not speak Ringside's language");
      if (hello.version != version)
        return turn_away(*guest, fmt::format("it speaks version {} of the protocol, and this rank version {}", hello.version, version));
      if (hello.key != key_) return turn_away(*guest, "its job key is not the key of this job");
      welcome_(hello, std::move(guest->socket));
    });
  }

  void turn_away(Guest& guest, const std::string& why) {
    error_code error;
    const auto endpoint = guest.socket.remote_endpoint(error);
    fmt::print(stderr, "ringside: rank {} turned away a connection from {}: {}\n", rank_, error ? "nowhere" : to_text(endpoint), why);
    if (guest.hello.magic != magic) return;
    const Answer answer{.kind = Answer::refusal, .bytes = static_cast<std::uint32_t>(why.size())};
    asio::write(guest.socket, std::array{asio::buffer(&answer, sizeof answer), asio::buffer(why)}, error);
    error_code ignored;
    guest.socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  tcp::acceptor acceptor_;
  Key key_;
  int rank_;
  Visitor welcome_;
};

tcp::acceptor listen_at(asio::io_context& io, const tcp::endpoint& endpoint, const std::string& who, int at_once) {
  tcp::acceptor acceptor(io);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(std::max(128, at_once), error);
  require(error != asio::error::address_in_use,
          "{} cannot listen on {}: the port is taken. Choose another with MASTER_PORT (or --master-port)", who, to_text(endpoint));
  require(!error, "{} cannot listen on {}: {}. MASTER_ADDR must be an address of the host of rank 0", who, to_text(endpoint),
          error.message());
  return acceptor;
}

class Meeting {
 public:
  explicit Meeting(const Place& place, std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>())
      : place_(place), key_(hash_of(place.job_key)), deadline_(Deadline::after(place.connect_timeout)), io_(std::move(io)) {
    mesh_.data.resize(place.size);
    mesh_.lifelines.resize(place.size);
    table_.resize(place.size);
    joined_.resize(place.size);
  }

  Mesh by_way_of_rank_0() {
    if (place_.size == 1) {
      table_[0] = address_of({asio::ip::address_v4::loopback(), 0});
      return leave();
    }
    const auto masters = resolve_master();
    if (place_.rank == 0)
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
  std::vector<tcp::endpoint> resolve_master() {
    error_code error;
    const auto found = tcp::resolver(*io_).resolve(place_.master_address, std::to_string(place_.master_port), error);
    require(!error && !found.empty(), "MASTER_ADDR={} is not a host that rank {} knows ({})", place_.master_address, place_.rank,
            error.message());
    std::vector<tcp::endpoint> endpoints;
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
    return endpoints;
  }

  Mesh leave() {
    joined_.clear();
    doorman_.reset();
    mesh_.io = std::move(io_);
    mesh_.addresses = std::move(table_);
    return std::move(mesh_);
  }

  void open_doors(tcp::acceptor acceptor) {
    doorman_ = std::make_unique<Doorman>(std::move(acceptor), key_, place_.rank,
                                         [this](const Hello& hello, tcp::socket socket) { welcome(hello, std::move(socket)); });
  }

  void listen_on(const tcp::endpoint& endpoint) {
    auto acceptor = listen_at(*io_, endpoint, fmt::format("rank {}", place_.rank), 2 * place_.size);
    table_[place_.rank] = address_of(acceptor.local_endpoint());
    open_doors(std::move(acceptor));
  }

  // Rank 0: waits for all others, then tells each where all are.
  void gather_all(const std::vector<tcp::endpoint>& masters) {
    listen_on(masters.front());
    const bool all_came = run_until(*io_, deadline_, [this] { return missing().empty() || refusal_; });
    if (refusal_) run_until(*io_, Deadline::after(grace), [this] { return visitors_ == place_.size - 1; });  // so that all hear it
    if (!all_came) {
      const auto ranks = missing();
      refusal_ = fmt::format("rank{} {} of {} never came to {} within {:.0f} s", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                             place_.size, to_text(masters.front()), place_.connect_timeout.count());
    }
    const auto bytes = static_cast<std::uint32_t>(refusal_ ? refusal_->size() : table_.size() * sizeof(Address));
    const Answer answer{.kind = refusal_ ? Answer::refusal : Answer::table, .bytes = bytes};
    const auto body = refusal_ ? asio::buffer(*refusal_) : asio::buffer(table_.data(), bytes);
    for (auto& socket : joined_) {
      error_code ignored;  // who has gone meanwhile is found missing when the mesh is made
      if (socket) asio::write(*socket, std::array<asio::const_buffer, 2>{asio::buffer(&answer, sizeof answer), body}, ignored);
    }
    if (refusal_) throw Error(*refusal_);
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 1; r < place_.size; ++r)
      if (!joined_[r]) ranks.push_back(r);
    return ranks;
  }

  // Every other rank: listens, tells rank 0 where, and waits for the table.
  void join(const std::vector<tcp::endpoint>& masters) {
    const std::string whom = fmt::format("rank 0 is not there: it");
    tcp::socket socket = connect_to(*io_, masters, deadline_, whom);
    const auto here = socket.local_endpoint();
    listen_on({here.address(), 0});
    say_hello(socket, Hello::join);

    Answer answer;
    const Deadline patience = Deadline::after(place_.connect_timeout + grace);  // rank 0 may have started later than this rank
    error_code error = read_all(*io_, socket, asio::buffer(&answer, sizeof answer), patience);
    require(error != asio::error::timed_out, "rank 0 has not brought the ranks together within {:.0f} s", patience.total().count());
    require(!error && answer.magic == magic && answer.bytes < (1u << 24),
            "what listens at {} is not rank 0 of this job, or it has gone ({})", to_text(masters.front()), error.message());
    std::string body(answer.bytes, '\0');
    error = read_all(*io_, socket, asio::buffer(body), patience);
    require(!error, "rank 0 went away while the ranks were coming together ({})", error.message());
    require(answer.kind == Answer::table, "rank 0 refuses: {}", body);
    require(body.size() == table_.size() * sizeof(Address), "rank 0 sent a table of {} bytes for {} ranks", body.size(), place_.size);
    std::memcpy(table_.data(), body.data(), body.size());
  }

  void say_hello(tcp::socket& socket, Hello::Purpose purpose) {
    socket.set_option(tcp::no_delay(true));
    const Hello hello{.purpose = purpose, .key = key_, .rank = place_.rank, .size = place_.size, .listens_on = table_[place_.rank]};
    error_code error;
    asio::write(socket, asio::buffer(&hello, sizeof hello), error);
    require(!error, "rank {} lost a connection as soon as it was made: {}", place_.rank, error.message());
  }

  void connect_all() {
    const Deadline deadline = Deadline::after(place_.connect_timeout);
    for (int r = 0; r < place_.rank; ++r) {
      const std::string whom = fmt::format("rank {} has come and gone: it", r);
      for (const auto purpose : {Hello::data, Hello::lifeline}) {
        auto& place = purpose == Hello::data ? mesh_.data[r] : mesh_.lifelines[r];
        place = connect_to(*io_, {endpoint_of(table_[r])}, deadline, whom);
        say_hello(*place, purpose);
      }
    }
    const auto connected = [this] {
      for (int r = place_.rank + 1; r < place_.size; ++r)
        if (!mesh_.data[r] || !mesh_.lifelines[r]) return false;
      return true;
    };
    if (run_until(*io_, deadline, connected)) return;
    for (int r = place_.rank + 1; r < place_.size; ++r)
      require(mesh_.data[r] && mesh_.lifelines[r], "rank {} came, but did not connect to rank {} within {:.0f} s", r, place_.rank,
              deadline.total().count());
  }

  void welcome(const Hello& hello, tcp::socket socket) {
    if (hello.purpose == Hello::join) return welcome_joiner(hello, std::move(socket));
    const bool from_above = hello.rank > place_.rank && hello.rank < place_.size;
    auto* places = hello.purpose == Hello::data ? &mesh_.data : hello.purpose == Hello::lifeline ? &mesh_.lifelines : nullptr;
    if (!places || !from_above || (*places)[hello.rank]) return;  // closes it: no rank of this job would say that
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    (*places)[hello.rank] = std::move(socket);
  }

  void welcome_joiner(const Hello& hello, tcp::socket socket) {
    ++visitors_;
    if (hello.size != place_.size) {
      refusal_ = fmt::format("the ranks disagree on how many they are: rank 0 has WORLD_SIZE={}, but rank {} has WORLD_SIZE={}", place_.size,
                             hello.rank, hello.size);
    } else if (hello.rank < 1 || hello.rank >= place_.size || joined_[hello.rank]) {
      refusal_ = fmt::format("two processes say that they are rank {}: every process needs a RANK of its own", hello.rank);
    } else {
      table_[hello.rank] = hello.listens_on;
      joined_[hello.rank] = std::move(socket);
      return;
    }
    joined_.push_back(std::move(socket));  // it is told with the others
  }

  const Place place_;
  const Key key_;
  const Deadline deadline_;
  std::unique_ptr<asio::io_context> io_;
  Mesh mesh_;
  std::vector<Address> table_;                       // [rank]
  std::vector<std::optional<tcp::socket>> joined_;   // [rank] rank 0's connections to those that came; refused ones at the end
  int visitors_ = 0;                                 // processes of this job that have come to rank 0, welcome or not
  std::optional<std::string> refusal_;               // why nobody will get a table
  std::unique_ptr<Doorman> doorman_;
};

}  // namespace

static void check_place(const Place& place) {
  require(place.size >= 1 && place.rank >= 0 && place.rank < place.size, "rank {} is not in a world of {}", place.rank, place.size);
}

Mesh meet(const Place& place) {
  check_place(place);
  return Meeting(place).by_way_of_rank_0();
}

bool Mesh::on_one_host() const {
  return std::all_of(addresses.begin(), addresses.end(), [&](const Address& each) { return each.host == addresses.front().host; });
}

struct Entrance::Listening {
  std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>();
  tcp::acceptor acceptor;
  explicit Listening(const tcp::endpoint& endpoint) : acceptor(listen_at(*io, endpoint, "a rank of a sub-group", 0)) {}
};

Entrance::Entrance(const Address& other) {
  auto endpoint = endpoint_of(other);
  endpoint.port(0);
  listening_ = std::make_unique<Listening>(endpoint);
  address_ = address_of(listening_->acceptor.local_endpoint());
}

Entrance::~Entrance() = default;
Entrance::Entrance(Entrance&&) noexcept = default;

Mesh Entrance::meet(const Place& place, std::vector<Address> addresses) {
  check_place(place);
  return Meeting(place, std::move(listening_->io)).at(std::move(addresses), std::move(listening_->acceptor));
}

}  // namespace ringside::collectives
