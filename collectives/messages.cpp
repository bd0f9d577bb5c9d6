#include "collectives/messages.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/system/start_thread.hpp"
#include "collectives/bootstrap/connections.hpp"
#include "collectives/calls/work_state.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/execution/wait_monitor.hpp"
#include "collectives/transport/emulated_link.hpp"
#include "collectives/transport/message_header.hpp"

namespace ringside::collectives {

// What one rank has under way. Its thread moves all bytes; a mutex guards everything but the
// control channel, which only that thread uses.
class Messages::Engine {
 public:
  explicit Engine(Streams streams)
      : rank_(streams.control->rank()),
        job_(streams.job),
        control_(std::move(streams.control)),
        monitor_(*control_, streams.options, WaitMonitor::Numbers::of_this_rank),
        wire_(std::move(streams.wire)),
        peers_(streams.sockets.size()),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        shared_(std::make_shared<Work::Shared>()) {
    require(wake_.is_open(), "messages need a descriptor for events: {}", std::strerror(errno));
    monitor_.set_names(RankNames(control_->names()));
    for (std::size_t r = 0; r < peers_.size(); ++r)
      peers_[r].socket = std::move(streams.sockets[r]);
    thread_ = start_thread("messages", [this] { serve(); });
  }

  ~Engine() {
    {
      const std::lock_guard lock(shared_->mutex);
      closing_ = true;
    }
    wake();
    thread_.join();
  }

  Work send(const ConstBuffer& data, int to, std::int32_t tag, std::string_view label) {
    return start(to, {call_of(data, rank_, to, label), data.address, nullptr}, tag);
  }

  Work recv(const Buffer& data, int from, std::int32_t tag, std::string_view label) {
    return start(from, {call_of(data, from, rank_, label), nullptr, data.address}, tag);
  }

  int size() const { return static_cast<int>(peers_.size()); }

  Traffic traffic() const {
    const auto lock = shared_->lock_if_shared();
    return traffic_;
  }

  CallTimes times() const {
    const auto lock = shared_->lock_if_shared();
    return shared_->times;
  }

  void abort(const std::string& cause) noexcept {
    if (!shared_->owner.is_this()) return;
    std::unique_lock lock(shared_->mutex);
    if (ended_) return;  // the others have been told a cause, and the control channel is closed
    monitor_.interrupt(cause);
    wake();
    shared_->changed.wait(lock, [this] { return ended_; });
  }

 private:
  // Precedes the bytes of a message.
  struct Head {
    std::uint32_t magic = MessageHeader::expected_magic;
    std::uint32_t job = 0;
    std::uint64_t bytes = 0;
    std::int32_t tag = 0;
    DataType type{};
    std::uint8_t unused[3] = {};
  };
  static_assert(sizeof(Head) == 24, "the layout is the wire format");

  struct Outgoing {
    std::shared_ptr<Work::State> work;
    Head head;
    Clock::time_point due;  // when an emulated link has carried it
    std::size_t done = 0;   // bytes of head and payload together
  };
  struct Expected {
    std::shared_ptr<Work::State> work;
    int source;
    std::int32_t tag;
  };
  // A message that arrives, or has arrived: in the buffer of `work`, or kept until a recv comes.
  struct Incoming {
    int source = -1;
    Head head;
    std::size_t done = 0;  // bytes of head and payload together
    std::shared_ptr<Work::State> work = nullptr;
    std::unique_ptr<std::byte[]> kept = nullptr;

    bool complete() const { return done == sizeof head + head.bytes; }
    std::byte* payload() { return work ? static_cast<std::byte*>(work->what.output) : kept.get(); }
  };
  struct Peer {
    FileDescriptor socket;
    bool left = false;
    std::deque<Outgoing> outgoing;
    Incoming incoming;
  };

  static Call call_of(const ConstBuffer& data, int from, int to, std::string_view label) {
    return {.collective = Collective::point_to_point,
            .type = data.type,
            .root = from,
            .count = data.count,
            .peer = to,
            .label = label};
  }

  Work start(int other, CallOnBuffers what, std::int32_t tag) {
    shared_->owner.require_this();
    const bool receives = what.call.peer == rank_;
    require((receives && other == any_source && size() > 1) ||
                (other >= 0 && other < size() && other != rank_),
            "rank {} can send messages to and receive them from the other ranks of 0 to {}, not "
            "rank {}",
            rank_, size() - 1, other);
    auto work = std::make_shared<Work::State>(Work::State{shared_, std::move(what)});
    const Call& call = work->what.call;
    const auto now = Clock::now();
    work->queued = now;
    work->trace = Trace::here();
    {
      const std::lock_guard lock(shared_->mutex);
      if (error_) std::rethrow_exception(error_);
      if (receives) {
        expected_.push_back({work, other, tag});
      } else {
        const Head head{
            .job = job_, .bytes = call.count * size_of(call.type), .tag = tag, .type = call.type};
        const auto due =
            wire_ ? wire_->carry(sizeof head + head.bytes, now) +
                        std::chrono::duration_cast<Clock::duration>(wire_->link().latency)
                  : now;
        peers_[other].outgoing.push_back({work, head, due});
        ++traffic_.messages_sent;
        traffic_.payload_bytes_sent += head.bytes;
        note_message(*work, Trace::Message::sent, other);
        // What the socket takes at once needs no other thread. That thread meets an error again.
        if (peers_[other].outgoing.size() == 1) static_cast<void>(write_to(other));
      }
      if (work->done) return Work(std::move(work));
    }
    wake();
    return Work(std::move(work));
  }

  void wake() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));  // fails only if it is set already
  }

  // ---- What follows runs on the engine's thread, unless it says otherwise.

  void serve() {
    std::unique_lock lock(shared_->mutex);
    try {
      while (!closing_ || !all_sent()) {
        give_kept_messages();
        for (int r = 0; r < size(); ++r)
          if (const int code = write_to(r)) control_->explain(r, std::strerror(code));
        // Before the mutex is free: a recv that is made then may fit a message that is kept.
        const int gone = departed_peer();
        watch_first_awaited();
        lock.unlock();
        if (gone >= 0) control_->explain(gone, "it has left");
        const std::vector<pollfd> ready = wait();
        look_round();
        lock.lock();
        monitor_.throw_if_interrupted();
        give_kept_messages();  // those that are here already come before those that arrive now
        for (int r = 0; r < size(); ++r)
          if (ready[r].revents != 0 && (ready[r].events & POLLIN) != 0) read_from(r);
      }
      fail("rank {} has closed its messages while a recv waited", control_->names()(rank_));
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      end_all();
    }
    control_.reset();  // says goodbye
  }

  // The first that a caller waits for, of messages to or from one rank; while closing, any.
  void watch_first_awaited() {
    if (watched_) return;
    const auto watch = [this](const std::shared_ptr<Work::State>& work, int peer) {
      if (watched_ || !work || !(work->waited_for || closing_) || work->done || peer < 0) return;
      watched_ = work.get();
      watched_peer_ = peer;
      monitor_.begin(++numbered_, work->what.call, 1);
      monitor_.record().waiting_for = work->what.output ? peer : -1;
      monitor_.begin_wait(peer, 0);
      monitor_.nothing_came(Clock::now());
    };
    for (const Expected& each : expected_) watch(each.work, each.source);
    for (int r = 0; r < size(); ++r) {
      watch(peers_[r].incoming.work, r);
      for (const Outgoing& each : peers_[r].outgoing) watch(each.work, r);
    }
  }

  // Another rank may have failed, or a caller may have waited for long.
  void look_round() {
    if (seconds_since(listened_) < ControlChannel::poll_interval.count()) return;
    listened_ = Clock::now();
    if (progress_.exchange(false)) monitor_.note_progress();
    watched_ ? monitor_.look() : control_->listen();
  }

  bool all_sent() const {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const Peer& peer) { return peer.outgoing.empty(); });
  }

  // A rank that something under way waits for, although it has left; -1: none.
  int departed_peer() const {
    int left = 0, last = -1;
    for (int r = 0; r < size(); ++r) {
      if (!peers_[r].left) continue;
      ++left, last = r;
      if (!peers_[r].outgoing.empty()) return r;
      for (const Expected& expected : expected_)
        if (expected.source == r) return r;
    }
    const bool any = std::any_of(expected_.begin(), expected_.end(), [](const Expected& expected) {
      return expected.source == any_source;
    });
    return any && left == size() - 1 ? last : -1;
  }

  // Until something can be read or written, or a call wakes this thread. Element r is rank r's
  // socket; the last is the event.
  std::vector<pollfd> wait() {
    std::vector<pollfd> watched;
    Seconds patience = ControlChannel::poll_interval;
    {
      const std::lock_guard lock(shared_->mutex);
      for (const Peer& peer : peers_) {
        short events = peer.left ? 0 : POLLIN;
        if (!peer.outgoing.empty()) {
          const Seconds until = peer.outgoing.front().due - Clock::now();
          if (until <= Seconds(0)) events |= POLLOUT;
          if (until > Seconds(0)) patience = std::min(patience, until);
        }
        watched.push_back({events == 0 ? -1 : peer.socket.get(), events, 0});
      }
      // Nothing is late while nothing is under way.
      if (expected_.empty() && all_sent() && !watched_)
        patience = 10 * ControlChannel::poll_interval;
    }
    watched.push_back({wake_.get(), POLLIN, 0});
    const timespec limit = to_timespec(patience);
    ::ppoll(watched.data(), watched.size(), &limit, nullptr);
    std::uint64_t events = 0;
    static_cast<void>(!::read(wake_.get(), &events, sizeof events));
    return watched;
  }

  // Any thread, with the mutex. Returns the error of a connection that is broken, or 0.
  int write_to(int r) {
    Peer& peer = peers_[r];
    while (!peer.outgoing.empty() && !peer.left && peer.outgoing.front().due <= Clock::now()) {
      auto& [work, head, due, done] = peer.outgoing.front();
      const std::size_t of_head = std::min(done, sizeof head), of_payload = done - of_head;
      auto* payload = static_cast<std::byte*>(const_cast<void*>(work->what.input));
      std::array<iovec, 2> rest{
          iovec{reinterpret_cast<std::byte*>(&head) + of_head, sizeof head - of_head},
          iovec{payload + of_payload, head.bytes - of_payload}};
      msghdr message{};
      message.msg_iov = rest.data();
      message.msg_iovlen = rest.size();
      const auto n = ::sendmsg(peer.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      if (watched_ && r == watched_peer_) progress_ = true;
      done += static_cast<std::size_t>(n);
      if (done < sizeof head + head.bytes) continue;
      end(*work);
      peer.outgoing.pop_front();
    }
    return 0;
  }

  // Takes what has arrived of one message.
  void read_from(int r) {
    Incoming& incoming = peers_[r].incoming;
    for (;;) {
      const bool in_head = incoming.done < sizeof incoming.head;
      auto* into = in_head ? reinterpret_cast<std::byte*>(&incoming.head) + incoming.done
                           : incoming.payload() + (incoming.done - sizeof incoming.head);
      const std::size_t end = sizeof incoming.head + (in_head ? 0 : incoming.head.bytes);
      const auto n = ::recv(peers_[r].socket.get(), into, end - incoming.done, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) control_->explain(r, std::strerror(errno));
      if (n == 0 && incoming.done > 0) control_->explain(r, "End of file");
      if (n == 0) {
        peers_[r].left = true;
        return;
      }
      if (watched_ && r == watched_peer_) progress_ = true;
      incoming.done += static_cast<std::size_t>(n);
      if (in_head && incoming.done == sizeof incoming.head) begin_payload(r);
      if (incoming.done >= sizeof incoming.head && incoming.complete()) break;
    }
    incoming.work ? end(*incoming.work, r) : kept_.push_back(std::move(incoming));
    incoming = {};
    give_kept_messages();
  }

  void begin_payload(int r) {
    Incoming& incoming = peers_[r].incoming;
    incoming.source = r;
    require(incoming.head.magic == MessageHeader::expected_magic && incoming.head.job == job_ &&
                size_of(incoming.head.type) > 0,
            "rank {} received bytes from rank {} that are not a message of this job",
            control_->names()(rank_), control_->names()(r));
    if (!(incoming.work = take_expected(incoming)))
      incoming.kept = std::make_unique_for_overwrite<std::byte[]>(incoming.head.bytes);
  }

  void give_kept_messages() {
    for (auto message = kept_.begin(); message != kept_.end();) {
      const auto work = take_expected(*message);
      if (!work) {
        ++message;
        continue;
      }
      if (message->head.bytes > 0)
        std::memcpy(work->what.output, message->kept.get(), message->head.bytes);
      end(*work, message->source);
      message = kept_.erase(message);
    }
  }

  // The first recv that the message fits; null if there is none yet.
  std::shared_ptr<Work::State> take_expected(const Incoming& message) {
    const Head& head = message.head;
    const auto found = std::find_if(expected_.begin(), expected_.end(), [&](const Expected& each) {
      return each.tag == head.tag && (each.source == any_source || each.source == message.source);
    });
    if (found == expected_.end()) return nullptr;
    const Call& call = found->work->what.call;
    require(call.type == head.type && call.count * size_of(call.type) == head.bytes,
            "rank {} expects {} {} with tag {} from rank {}, which sends {} {}: both ranks must "
            "give the same type and count",
            control_->names()(rank_), call.count, name_of(call.type), head.tag,
            control_->names()(message.source), head.bytes / size_of(head.type), name_of(head.type));
    auto work = std::move(found->work);
    expected_.erase(found);
    return work;
  }

  void end(Work::State& work, int source = -1) {
    work.source = source;
    work.done = true;
    if (&work == watched_) {
      monitor_.end_wait();
      monitor_.end();
      watched_ = nullptr;
    } else if (!watched_) {  // the record of the one that is watched stays the last
      monitor_.begin(++numbered_, work.what.call, 1);
      monitor_.end();
    }
    if (source >= 0) note_message(work, Trace::Message::received, source);
    note_call(work.trace, work.what.call, work.queued, work.queued);
    ++shared_->times.calls;
    shared_->changed.notify_all();
  }

  void note_message(const Work::State& work, Trace::Message::Kind kind, int peer) const {
    if (!work.trace) return;
    const Call& call = work.what.call;
    work.trace->add(Trace::Message{.kind = kind,
                                   .peer = peer,
                                   .bytes = call.count * size_of(call.type),
                                   .time = Clock::now()});
  }

  // Tells the other ranks, in the handler of what ended this one, and throws it.
  [[noreturn]] void give_up() {
    if (watched_ && !closing_) monitor_.give_up();
    try {
      throw;
    } catch (const RankFailure& failure) {
      monitor_.abort(failure);
      throw;
    } catch (const std::exception& error) {
      if (!closing_) monitor_.abort(error.what());
      throw;
    }
  }

  // Nothing is read or written afterwards.
  void end_all() {
    try {
      watch_first_awaited();
      give_up();
    } catch (...) {
      error_ = std::current_exception();
    }
    const auto end_one = [this](const std::shared_ptr<Work::State>& work) {
      if (!work) return;
      work->error = error_;
      work->done = true;
    };
    for (const Expected& each : expected_) end_one(each.work);
    for (const Peer& peer : peers_) {
      end_one(peer.incoming.work);
      for (const Outgoing& each : peer.outgoing) end_one(each.work);
    }
    ended_ = true;
    shared_->changed.notify_all();
  }

  const int rank_;
  const std::uint32_t job_;
  std::unique_ptr<ControlChannel> control_;
  WaitMonitor monitor_;
  const std::shared_ptr<Wire> wire_;  // of an emulated link, or none
  std::vector<Peer> peers_;           // [rank]
  std::vector<Expected> expected_;    // in the order in which they were made
  std::deque<Incoming> kept_;         // in the order of their arrival
  FileDescriptor wake_;
  std::shared_ptr<Work::Shared> shared_;
  std::exception_ptr error_;        // what ended everything
  Work::State* watched_ = nullptr;  // by the monitor; one of those under way
  int watched_peer_ = -1;
  std::atomic<bool> progress_ = false;  // bytes have moved to or from that peer
  std::uint64_t numbered_ = 0;          // messages in the monitor's records
  Traffic traffic_;
  bool closing_ = false, ended_ = false;
  Clock::time_point listened_{};
  std::thread thread_;
};

Messages::Messages(ProcessGroup& group) : engine_(new Engine(connect(group))) {}
Messages::~Messages() = default;
Messages::Messages(Messages&&) noexcept = default;

Work Messages::send(ConstBuffer data, int to, std::int32_t tag, std::string_view label) {
  return engine_->send(data, to, tag, label);
}

Work Messages::recv(Buffer data, int from, std::int32_t tag, std::string_view label) {
  return engine_->recv(data, from, tag, label);
}

int Messages::size() const {
  return engine_->size();
}

Traffic Messages::traffic() const {
  return engine_->traffic();
}

CallTimes Messages::times() const {
  return engine_->times();
}

void Messages::abort(const std::string& cause) noexcept {
  engine_->abort(cause);
}

}  // namespace ringside::collectives
