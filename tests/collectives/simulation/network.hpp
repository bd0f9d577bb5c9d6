// What the kernel keeps for the processes of a simulation: descriptors, TCP sockets, epoll.
//
// A connection is two sockets that know each other. Bytes, the end of a stream and resets arrive in
// order, after the latency of the link. As in Linux, a socket that is closed with unread bytes
// resets its connection, and a peer reads what arrived before the reset.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include <sys/epoll.h>
#include <sys/uio.h>

#include "tests/collectives/simulation/simulation.hpp"

namespace ringside::collectives {

std::string to_text(const SocketAddress& address);

// What a descriptor stands for.
struct KernelObject {
  explicit KernelObject(Process& process) : owner(process) {}
  virtual ~KernelObject() = default;
  virtual unsigned ready() const { return EPOLLIN; }  // of the bits of EPOLLIN, ...
  virtual void close() {}                             // the last descriptor is closed
  void changed();                                     // wakes the owner
  Process& owner;
  bool nonblocking = false;
  std::uint64_t changes = 1;  // an edge-triggered epoll reports each once
};

struct Epoll final : KernelObject {
  struct Watch {
    std::weak_ptr<KernelObject> object;
    epoll_event event{};
    std::uint64_t seen = 0;  // changes of the object
  };
  using KernelObject::KernelObject;
  int collect(epoll_event* events, int most);
  std::map<int, Watch> watches;  // [descriptor]
};

struct Socket final : KernelObject, std::enable_shared_from_this<Socket> {
  enum State { fresh, listening, connecting, connected };

  using KernelObject::KernelObject;
  unsigned ready() const override;
  void close() override;

  // As the system calls of these names: 0, a number of bytes or of an error, negated.
  int bind(SocketAddress to);
  int listen();
  void connect(SocketAddress to);  // begins: `state` tells the result
  long send(const iovec* pieces, std::size_t count);
  long receive(const iovec* pieces, std::size_t count);
  void answered(bool is_there, std::weak_ptr<Socket> by);  // what connect() began
  void send_end();
  void reset_connection(int why);  // this end is told at once
  std::size_t space() const;

  State state = fresh;
  SocketAddress local, remote;
  std::deque<std::shared_ptr<Socket>> accepted;
  std::string inbox;          // has arrived, and is not read yet
  std::size_t under_way = 0;  // bytes that will arrive here
  bool ended = false, sent_end = false, was_reset = false;
  int error = 0;
  std::weak_ptr<Socket> peer;

 private:
  // `what` happens at the peer, after all that was sent to it before. A peer that is closed resets
  // this end instead.
  void transmit(std::function<void(Socket&)> what);
  Clock::time_point last_sent_{}, last_coming_{};  // when the last of either direction arrives
};

// Of one process. Numbers are beyond those of real descriptors.
class Descriptors {
 public:
  static constexpr int first = 1 << 20;
  int add(std::shared_ptr<KernelObject> object);  // -EMFILE: the table is full
  std::shared_ptr<KernelObject> find(int number) const;
  template <class T>
  std::shared_ptr<T> find_as(int number) const {
    return std::dynamic_pointer_cast<T>(find(number));
  }
  bool close(int number);
  void close_all();
  std::size_t count() const { return open_.size(); }
  const std::map<int, std::shared_ptr<KernelObject>>& open() const { return open_; }
  std::size_t most = 1024;

 private:
  std::map<int, std::shared_ptr<KernelObject>> open_;
};

}  // namespace ringside::collectives
