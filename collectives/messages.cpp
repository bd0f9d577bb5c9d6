#include "collectives/messages.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/start_thread.hpp"
#include "collectives/bootstrap/connections.hpp"
#include "collectives/calls/work_state.hpp"
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
        wire_(std::move(streams.wire)),
        peers_(streams.sockets.size()),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        shared_(std::make_shared<Work::Shared>()) {
    require(wake_.is_open(), "messages need a descriptor for events: {}", std::strerror(errno));
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

  Work send(const ConstBuffer& data, int to, std::int32_t tag) {
    return start(to, {call_of(data, rank_, to), data.address, nullptr}, tag);
  }

  Work recv(const Buffer& data, int from, std::int32_t tag) {
    return start(from, {call_of(data, from, rank_), nullptr, data.address}, tag);
  }

  void abort(const std::string& cause) noexcept {
    std::unique_lock lock(shared_->mutex);
    if (abort_cause_.empty()) abort_cause_ = cause;
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
    std::vector<std::byte> kept;

    bool complete() const { return done == sizeof head + head.bytes; }
    std::byte* payload() { return work ? static_cast<std::byte*>(work->what.output) : kept.data(); }
  };
  struct Peer {
    FileDescriptor socket;
    bool left = false;
    std::deque<Outgoing> outgoing;
    Incoming incoming;
  };

  static Call call_of(const ConstBuffer& data, int from, int to) {
    return {.collective = Collective::point_to_point,
            .type = data.type,
            .root = from,
            .count = data.count,
            .peer = to,
            .label = {}};
  }

  Work start(int other, CallOnBuffers what, std::int32_t tag) {
    const bool receives = what.call.peer == rank_;
    const int size = static_cast<int>(peers_.size());
    require((receives && other == any_source && size > 1) ||
                (other >= 0 && other < size && other != rank_),
            "rank {} can send messages to and receive them from the other ranks of 0 to {}, not "
            "rank {}",
            rank_, size - 1, other);
    auto work = std::make_shared<Work::State>(Work::State{shared_, std::move(what)});
    const Call& call = work->what.call;
    {
      const std::lock_guard lock(shared_->mutex);
      if (error_) std::rethrow_exception(error_);
      if (receives) {
        expected_.push_back({work, other, tag});
      } else {
        const Head head{
            .job = job_, .bytes = call.count * size_of(call.type), .tag = tag, .type = call.type};
        const auto now = Clock::now();
        const auto due =
            wire_ ? wire_->carry(sizeof head + head.bytes, now) +
                        std::chrono::duration_cast<Clock::duration>(wire_->link().latency)
                  : now;
        peers_[other].outgoing.push_back({work, head, due});
      }
    }
    wake();
    return Work(std::move(work));
  }

  void wake() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));  // fails only if it is set already
  }

  // ---- What follows runs on the engine's thread.

  void serve() {
    std::unique_lock lock(shared_->mutex);
    try {
      while (!closing_ || !all_sent()) {
        give_kept_messages();
        for (int r = 0; r < size(); ++r) write_to(r);
        // Before the mutex is free: a recv that is made then may fit a message that is kept.
        const int gone = departed_peer();
        lock.unlock();
        if (gone >= 0) control_->explain(gone, "it has left");
        const std::vector<pollfd> ready = wait();
        if (seconds_since(listened_) >= ControlChannel::poll_interval.count()) {
          control_->listen();
          listened_ = Clock::now();
        }
        lock.lock();
        if (!abort_cause_.empty())
          throw RankFailure(rank_, fmt::format("{} (this rank gave up)", abort_cause_),
                            abort_cause_);
        give_kept_messages();  // those that are here already come before those that arrive now
        for (int r = 0; r < size(); ++r)
          if (ready[r].revents != 0 && (ready[r].events & POLLIN) != 0) read_from(r);
      }
      fail("rank {} has closed its messages while a recv waited", rank_);
    } catch (const RankFailure& failure) {
      if (!lock.owns_lock()) lock.lock();
      control_->abort(failure);
      end_all();
    } catch (const std::exception& error) {
      if (!lock.owns_lock()) lock.lock();
      if (!closing_) control_->abort(RankFailure(rank_, error.what()));
      end_all();
    }
    control_.reset();  // says goodbye
  }

  int size() const { return static_cast<int>(peers_.size()); }

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
      if (expected_.empty() && all_sent()) patience = 10 * ControlChannel::poll_interval;
    }
    watched.push_back({wake_.get(), POLLIN, 0});
    const timespec limit = to_timespec(patience);
    ::ppoll(watched.data(), watched.size(), &limit, nullptr);
    std::uint64_t events = 0;
    static_cast<void>(!::read(wake_.get(), &events, sizeof events));
    return watched;
  }

  void write_to(int r) {
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
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) control_->explain(r, std::strerror(errno));
      done += static_cast<std::size_t>(n);
      if (done < sizeof head + head.bytes) continue;
      end(*work);
      peer.outgoing.pop_front();
    }
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
      incoming.done += static_cast<std::size_t>(n);
      if (in_head && incoming.done == sizeof incoming.head) begin_payload(r);
      if (incoming.done >= sizeof incoming.head && incoming.complete()) break;
    }
    if (incoming.work)
      end(*incoming.work, r);
    else
      kept_.push_back(std::move(incoming));
    incoming = {};
    give_kept_messages();
  }

  void begin_payload(int r) {
    Incoming& incoming = peers_[r].incoming;
    incoming.source = r;
    require(incoming.head.magic == MessageHeader::expected_magic && incoming.head.job == job_,
            "rank {} received bytes from rank {} that are not a message of this job", rank_, r);
    if (!(incoming.work = take_expected(incoming))) incoming.kept.resize(incoming.head.bytes);
  }

  void give_kept_messages() {
    for (auto message = kept_.begin(); message != kept_.end();) {
      const auto work = take_expected(*message);
      if (!work) {
        ++message;
        continue;
      }
      if (!message->kept.empty())
        std::memcpy(work->what.output, message->kept.data(), message->kept.size());
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
            rank_, call.count, name_of(call.type), head.tag, message.source,
            head.bytes / size_of(head.type), name_of(head.type));
    auto work = std::move(found->work);
    expected_.erase(found);
    return work;
  }

  void end(Work::State& work, int source = -1) {
    work.source = source;
    work.done = true;
    shared_->changed.notify_all();
  }

  // With the exception that is being handled. Nothing is read or written afterwards.
  void end_all() {
    error_ = std::current_exception();
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
  const std::shared_ptr<Wire> wire_;  // of an emulated link, or none
  std::vector<Peer> peers_;           // [rank]
  std::vector<Expected> expected_;    // in the order in which they were made
  std::deque<Incoming> kept_;         // in the order of their arrival
  FileDescriptor wake_;
  std::shared_ptr<Work::Shared> shared_;
  std::exception_ptr error_;  // what ended everything
  std::string abort_cause_;
  bool closing_ = false, ended_ = false;
  Clock::time_point listened_{};
  std::thread thread_;
};

Messages::Messages(ProcessGroup& group) : engine_(std::make_unique<Engine>(connect(group))) {}
Messages::~Messages() = default;
Messages::Messages(Messages&&) noexcept = default;

Work Messages::send(ConstBuffer data, int to, std::int32_t tag) {
  return engine_->send(data, to, tag);
}

Work Messages::recv(Buffer data, int from, std::int32_t tag) {
  return engine_->recv(data, from, tag);
}

void Messages::abort(const std::string& cause) noexcept {
  engine_->abort(cause);
}

}  // namespace ringside::collectives
