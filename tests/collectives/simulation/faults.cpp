#include "tests/collectives/simulation/faults.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/system/file_descriptor.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/bootstrap/rendezvous/handshake.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"
#include "collectives/selection/calibration.hpp"
#include "tests/collectives/simulation/network.hpp"

namespace ringside::collectives {
namespace {

constexpr Seconds connect_timeout{8}, timeout{5}, longest_life{60};
constexpr std::uint16_t master_port = 29500;

std::uint32_t host_of_rank(int r) {
  return (10u << 24) + static_cast<std::uint32_t>(r) + 1;
}

// What the processes print belongs to the events.
class CapturedOutput {
 public:
  CapturedOutput() {
    cookie_io_functions_t functions{};
    functions.write = [](void*, const char* text, std::size_t bytes) {
      std::string line(text, bytes);
      while (!line.empty() && line.back() == '\n') line.pop_back();
      Simulation::here()->note(Simulation::process() ? Simulation::process()->name : "", line);
      return static_cast<ssize_t>(bytes);
    };
    stderr = ::fopencookie(nullptr, "w", functions);
    std::setvbuf(stderr, nullptr, _IONBF, 0);
  }
  ~CapturedOutput() {
    std::fclose(stderr);
    stderr = stderr_;
  }

 private:
  std::FILE* const stderr_ = stderr;
};

class Job {
 public:
  explicit Job(std::uint64_t seed) : room_(seed), seed_(seed) {
    job_.seed = seed;
    job_.ranks = 2 + static_cast<int>(room_.below(7));
    draw_job();
    draw_harmless_faults();
    draw_strangers();
    draw_fatal_fault();
  }

  FaultyJob run() {
    const CapturedOutput captured;
    const auto all_done = [this] {
      return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
        return rank.process->done() || rank.process->killed() || rank.process->stopped_for_ever();
      });
    };
    room_.run(Simulation::begin() + std::chrono::duration_cast<Clock::duration>(longest_life),
              all_done);
    job_.time = room_.elapsed();
    check();
    job_.lines = std::move(room_.lines);
    if (!room_.end_all()) broke("a process goes on for ever, although each of its calls fails");
    return std::move(job_);
  }

 private:
  struct Rank {
    Process* process = nullptr;
    std::string key = "the key of the job";
    bool well = false;
    std::string error;
    std::size_t left_open = 0;  // descriptors
  };

  template <class... Args>
  void drawn(fmt::format_string<Args...> format, Args&&... args) {
    job_.faults.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void broke(const std::string& what) { job_.broken.push_back(what); }
  int some_rank() { return static_cast<int>(room_.below(job_.ranks)); }
  Clock::time_point later(Seconds least, Seconds most) {
    return Simulation::begin() + room_.some_time(least, most);
  }

  // ---- What the seed draws

  void draw_job() {
    inherits_ = room_.happens(0.5);
    pipelined_ = room_.happens(0.3);
    sub_groups_ = room_.happens(0.6);
    calls_ = 1 + static_cast<int>(room_.below(4));
    count_ = room_.happens(0.2) ? 20'000 + room_.below(20'000) : 1 + room_.below(200);
    room_.pieces = room_.happens(0.5) ? 0.05 * static_cast<double>(room_.below(10)) : 0;
    ranks_.resize(job_.ranks);
    for (int r = 0; r < job_.ranks; ++r)
      ranks_[r].process =
          &room_.start(fmt::format("rank {}", r), host_of_rank(r),
                       later(Seconds(0), Seconds(r == 0 ? 0.05 : 0.2)), [this, r] { run_rank(r); });
    if (room_.pieces > 0) drawn("{:.0f} % of all calls move only some bytes", 100 * room_.pieces);
  }

  // The number of a call to the system, early ones more often.
  std::uint64_t some_call() {
    return static_cast<std::uint64_t>(std::exp(random_uniform(seed_, 3, room_.below(1 << 30)) *
                                               std::log(20.0 * (60 + 30 * job_.ranks))));
  }

  void at_call(int r, std::uint64_t call, std::function<void()> fault) {
    Process& process = *ranks_[r].process;
    if (process.fault_at != 0) return;
    process.fault_at = call;
    process.fault = std::move(fault);
  }

  void draw_harmless_faults() {
    if (room_.happens(0.15)) {
      const int r = some_rank();
      const std::uint64_t call = some_call();
      const auto time = room_.some_time(Seconds(0.05), Seconds(1.5));
      drawn("rank {} is stopped for {:.2f} s in its call {}", r, Seconds(time).count(), call);
      at_call(r, call, [this, r, time] { room_.stop(*ranks_[r].process, room_.now() + time); });
    }
    if (room_.happens(0.15)) {
      const auto [a, b] = two_ranks();
      const auto from = later(Seconds(0), Seconds(0.5));
      const auto time = room_.some_time(Seconds(0.05), Seconds(1));
      drawn("the link between ranks {} and {} delivers nothing for {:.2f} s", a, b,
            Seconds(time).count());
      room_.at(from, [this, a = a, b = b, time] {
        room_.hold(host_of_rank(a), host_of_rank(b), room_.now() + time);
      });
    }
  }

  std::pair<int, int> two_ranks() {
    const int a = some_rank();
    const int b = (a + 1 + static_cast<int>(room_.below(job_.ranks - 1))) % job_.ranks;
    return {a, b};
  }

  void draw_strangers() {
    const std::uint64_t strangers = room_.happens(0.4) ? 1 + room_.below(4) : 0;
    for (std::uint64_t i = 0; i < strangers; ++i) {
      constexpr std::array kinds = {"says nothing", "sends random bytes", "sends half a handshake",
                                    "has another key"};
      const auto kind = room_.below(kinds.size());
      const int r = some_rank();
      drawn("a stranger connects to rank {} and {}", r, kinds[kind]);
      const std::uint32_t address = (10u << 24) + (1u << 16) + static_cast<std::uint32_t>(i) + 1;
      room_.start(fmt::format("stranger {}", i + 1), address, later(Seconds(0), Seconds(0.5)),
                  [this, kind, r] { run_stranger(static_cast<int>(kind), r); });
    }
  }

  // At most one, so that it is clear who is at fault.
  void draw_fatal_fault() {
    const int r = some_rank();
    const std::uint64_t call = some_call();
    const auto kind = room_.below(100);
    if (kind < 30) return;
    if (kind < 55) {
      at_fault_ = {r};
      drawn("rank {} is killed in its call {}", r, call);
      at_call(r, call, [this, r] { room_.kill(*ranks_[r].process); });
    } else if (kind < 70) {
      at_fault_ = {r};
      drawn("rank {} is stopped for ever in its call {}", r, call);
      at_call(r, call, [this, r] { room_.stop(*ranks_[r].process, Clock::time_point::max()); });
    } else if (kind < 80) {
      const auto [a, b] = two_ranks();
      at_fault_ = {a, b};
      drawn("a connection between ranks {} and {} is reset in call {} of rank {}", a, b, call, a);
      at_call(a, call, [this, a = a, b = b] { reset_between(a, b); });
    } else if (kind < 88) {
      const auto [a, b] = two_ranks();
      at_fault_ = {a, b};
      drawn("the link between ranks {} and {} delivers nothing from call {} of rank {} on", a, b,
            call, a);
      at_call(a, call, [this, a = a, b = b] {
        room_.note("network", fmt::format("delivers nothing between ranks {} and {}", a, b));
        room_.hold(host_of_rank(a), host_of_rank(b), Clock::time_point::max());
      });
    } else if (kind < 93) {
      at_fault_ = {r};
      drawn("rank {} never starts", r);
      room_.kill(*ranks_[r].process);
    } else if (kind < 97) {
      at_fault_ = {r};
      drawn("rank {} has another key", r);
      ranks_[r].key = "another key";
    } else {
      at_fault_ = {0};
      inherits_ = false;
      false_host_ = true;
      drawn("a stranger without the key listens where rank 0 should");
      room_.start("false rank 0", host_of_rank(0), Simulation::begin(),
                  [this] { run_false_host(); });
    }
  }

  void reset_between(int a, int b) {
    std::vector<Socket*> ends;
    for (const auto& [number, object] : ranks_[a].process->descriptors->open())
      if (auto* socket = dynamic_cast<Socket*>(object.get()))
        if (socket->state == Socket::connected && socket->remote.host == host_of_rank(b))
          ends.push_back(socket);
    if (ends.empty()) return;
    Socket& end = *ends[room_.below(ends.size())];
    room_.note("network", fmt::format("resets the connection {} - {}", to_text(end.local),
                                      to_text(end.remote)));
    end.reset_connection(ECONNRESET);
    if (const auto other = end.peer.lock()) other->reset_connection(ECONNRESET);
  }

  // ---- What the processes run

  void run_rank(int r) {
    Rank& rank = ranks_[r];
    {
      FileDescriptor inherited;
      try {
        if (r == 0 && inherits_) inherited = listening();
        connect_and_add_up(r, inherited.get());
        rank.well = true;
        room_.note(rank.process->name, "ends well");
      } catch (const std::exception& error) {
        rank.error = error.what();
        room_.note(rank.process->name, fmt::format("ends with an error: {}", error.what()));
      }
    }
    rank.left_open = rank.process->descriptors->count();
    rank.process->descriptors->close_all();  // the process exits
  }

  void connect_and_add_up(int r, int inherited) {
    RankInfo rank_info;
    rank_info.rank = r;
    rank_info.size = job_.ranks;
    rank_info.master_address = "10.0.0.1";
    rank_info.master_port = master_port;
    rank_info.listening = inherited;
    rank_info.job_key = ranks_[r].key;
    rank_info.connect_timeout = connect_timeout;
    GroupOptions options;
    options.executor.kind = pipelined_ ? ExecutorKind::pipelined : ExecutorKind::simple;
    options.executor.timeout = timeout;
    options.executor.warn_after = Seconds(2);
    options.algorithms = AlgorithmSelection("all_reduce=ring");
    options.algorithms.set_costs(built_in_costs("tcp"));  // not those of this machine
    ProcessGroup group = ProcessGroup::over("tcp", rank_info, options);
    room_.note(ranks_[r].process->name, "is connected with all ranks");

    std::vector<int> all(job_.ranks), members;
    std::iota(all.begin(), all.end(), 0);
    for (const int other : all)
      if (other % 2 == r % 2) members.push_back(other);
    std::optional<ProcessGroup> sub_group;
    if (sub_groups_) sub_group = group.split(r % 2);
    for (int call = 0; call < calls_; ++call) {
      add_up(group, r, all, call);
      if (sub_group) add_up(*sub_group, r, members, call);
    }
    if (sub_group) sub_group->finish();
    group.finish();
  }

  void add_up(ProcessGroup& group, int r, const std::vector<int>& members, int call) {
    const auto value = [call](int rank, std::size_t i) {
      return static_cast<std::int64_t>(mix_bits(rank * 1000 + call) >> 8) +
             static_cast<std::int64_t>(i) * (rank + 1);
    };
    std::vector<std::int64_t> data(count_);
    for (std::size_t i = 0; i < count_; ++i) data[i] = value(r, i);
    group.all_reduce(std::span(data));
    for (std::size_t i = 0; i < count_; ++i) {
      std::int64_t sum = 0;
      for (const int member : members) sum += value(member, i);
      if (data[i] != sum)
        return broke(fmt::format("rank {} has a wrong sum in call {} of {} ranks, at element {}", r,
                                 call, members.size(), i));
    }
    room_.note(ranks_[r].process->name,
               fmt::format("has the sums of {} ranks, call {}", members.size(), call + 1));
  }

  static sockaddr_in address(std::uint32_t host, std::uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(host);
    to.sin_port = htons(port);
    return to;
  }

  // A socket that listens where rank 0 does.
  static FileDescriptor listening() {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in here = address(host_of_rank(0), master_port);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0)
      ::listen(socket.get(), 128);
    return socket;
  }

  // Reads for a while. Returns how many bytes came.
  static std::string read_from(const FileDescriptor& socket, std::size_t most) {
    std::string bytes(most, '\0');
    std::size_t got = 0;
    for (long n = 1; n > 0 && got<most; got += n> 0 ? static_cast<std::size_t>(n) : 0)
      n = ::recv(socket.get(), bytes.data() + got, most - got, 0);
    bytes.resize(got);
    return bytes;
  }

  void run_stranger(int kind, int r) {
    if (false_host_ && r == 0) return;
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
    // Where the ranks listen, mostly: rank 0 at the known port, the others at their first.
    const auto port = static_cast<std::uint16_t>(r == 0 ? master_port : 40000 + room_.below(3));
    const sockaddr_in there = address(host_of_rank(r), port);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0)
      return;
    Handshake handshake;
    handshake.purpose = static_cast<std::uint16_t>(1 + room_.below(3));
    handshake.nonce = new_nonce();
    handshake.rank = static_cast<std::int32_t>(room_.below(job_.ranks));
    handshake.size = job_.ranks;
    std::memcpy(handshake.backend, "tcp", 3);
    std::string bytes(reinterpret_cast<const char*>(&handshake), sizeof handshake);
    if (kind == 0) bytes.clear();
    if (kind == 1)
      for (char& byte : bytes) byte = static_cast<char>(room_.below(256));
    if (kind == 2) bytes.resize(room_.below(bytes.size()));
    ::send(socket.get(), bytes.data(), bytes.size(), 0);
    if (kind == 3) {
      Challenge challenge;
      const std::string answer = read_from(socket, sizeof challenge);
      if (answer.size() < sizeof challenge) return;
      std::memcpy(&challenge, answer.data(), sizeof challenge);
      const Digest proof = proof_for(challenge, handshake, "no key");
      ::send(socket.get(), proof.data(), proof.size(), 0);
    }
    if (!read_from(socket, 1).empty())
      broke(fmt::format("rank {} tells a stranger what only the job may know", r));
  }

  void run_false_host() {
    const FileDescriptor listener = listening();
    for (;;) {
      const FileDescriptor guest(::accept(listener.get(), nullptr, nullptr));
      if (!guest.is_open()) return;
      Handshake handshake;
      const std::string bytes = read_from(guest, sizeof handshake);
      if (bytes.size() < sizeof handshake) continue;
      std::memcpy(static_cast<void*>(&handshake), bytes.data(), sizeof handshake);
      const Challenge challenge = challenge_for(handshake, "no key");
      ::send(guest.get(), &challenge, sizeof challenge, 0);
      if (!read_from(guest, 1).empty()) broke("a rank gives a false rank 0 its proof");
    }
  }

  // ---- What must hold

  void check() {
    for (int r = 0; r < job_.ranks; ++r) {
      const Rank& rank = ranks_[r];
      const std::string& name = rank.process->name;
      if (rank.process->killed() || rank.process->stopped_for_ever()) {
        job_.ends.push_back(rank.process->killed() ? "was killed" : "was stopped");
        continue;
      }
      job_.ends.push_back(rank.well ? "ended well" : rank.error);
      if (!rank.process->done()) {
        job_.ends.back() = "did not end";
        broke(fmt::format("{} has not ended after {:.0f} s", name, longest_life.count()));
      }
      if (rank.left_open > 0)
        broke(fmt::format("{} has left {} descriptors open", name, rank.left_open));
      // Who has another key cannot know that it is not rank 0 that has.
      if (rank.error.empty() || rank.key != ranks_[r == 0 ? 1 : 0].key) continue;
      if (at_fault_.empty())
        broke(fmt::format("{} ends with an error, although there was no cause", name));
      else if (!names_fault(r, {}))
        broke(fmt::format("{} blames rank {}, but the fault is that of rank {}", name,
                          fmt::join(ranks_blamed_in(rank.error), ", "),
                          fmt::join(at_fault_, " or ")));
    }
  }

  bool names_fault(int r, std::set<int> before) const {
    const std::set<int> blamed = ranks_blamed_in(ranks_[r].error);
    const bool among = std::ranges::any_of(blamed, [&](int b) { return at_fault_.contains(b); });
    const bool may_follow = sub_groups_ || at_fault_.size() > 1 || at_fault_.contains(0);
    if (!may_follow) return among && std::ranges::includes(at_fault_, blamed);
    if (among) return true;
    before.insert(r);
    return std::ranges::any_of(blamed, [&](int b) {
      return b < job_.ranks && !before.contains(b) && names_fault(b, before);
    });
  }

  Simulation room_;
  const std::uint64_t seed_;
  FaultyJob job_;
  std::vector<Rank> ranks_;
  std::set<int> at_fault_;
  bool inherits_ = false, pipelined_ = false, sub_groups_ = false, false_host_ = false;
  int calls_ = 1;
  std::size_t count_ = 1;
};

}  // namespace

std::set<int> ranks_blamed_in(const std::string& sentence) {
  // A circle blames each of its ranks: a message between two of them is lost.
  if (sentence.starts_with("Ranks wait for each other in a circle: ")) {
    std::set<int> ranks;
    const std::string circle = sentence.substr(0, sentence.find(';'));
    for (auto at = circle.find("rank "); at != std::string::npos; at = circle.find("rank ", at + 1))
      ranks.insert(std::stoi(circle.substr(at + std::strlen("rank "))));
    return ranks;
  }
  // Who tells it, and who waits, is not blamed.
  std::size_t at = 0;
  for (const char* before : {"rank 0 refuses: ", "it is not ", "what listens there is not ",
                             "nothing came to ", "the connection to "})
    if (const auto found = sentence.find(before, at);
        found != std::string::npos && (found == at || std::string_view(before).ends_with("not ")))
      at = found + std::strlen(before);
  if (const std::size_t from = sentence.find(" from rank ", at);
      at > 0 && sentence.compare(0, 16, "nothing came to ") == 0)
    at = from;
  at = sentence.find_first_of("0123456789", std::min(sentence.find("rank", at), sentence.size()));
  // "5", "1, 2 and 5" or "0 to 3"
  std::set<int> ranks;
  bool is_range = false;
  while (at < sentence.size() && std::isdigit(static_cast<unsigned char>(sentence[at]))) {
    std::size_t digits = 0;
    const int rank = std::stoi(sentence.substr(at), &digits);
    for (int r = is_range ? *ranks.rbegin() : rank; r <= rank; ++r) ranks.insert(r);
    at += digits;
    is_range = sentence.compare(at, 4, " to ") == 0;
    if (sentence.compare(at, 2, ", ") == 0)
      at += 2;
    else if (is_range)
      at += 4;
    else if (sentence.compare(at, 5, " and ") == 0)
      at += 5;
    else
      break;
  }
  return ranks;
}

FaultyJob simulate_faults(std::uint64_t seed) {
  return Job(seed).run();
}

}  // namespace ringside::collectives
