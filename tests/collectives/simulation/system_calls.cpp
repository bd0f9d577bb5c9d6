// The calls to the system that the linker passes here (CMakeLists.txt, --wrap): those that
// Ringside, Boost.Asio and the clock of the standard library make. Outside of a simulation they are
// the system's own, for the price of a comparison.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/collectives/simulation/network.hpp"

namespace ringside::collectives {
namespace {

constexpr auto never = Clock::time_point::max();

bool is_simulated(int descriptor) {
  return descriptor >= Descriptors::first && Simulation::process();
}

// As a system call returns it: errors are negative in the simulation.
template <class T>
T result(T value) {
  if (value >= 0) return value;
  errno = static_cast<int>(-value);
  return -1;
}

template <class T>
std::shared_ptr<T> find(int descriptor) {
  Simulation::here()->call();
  return Simulation::process()->descriptors->find_as<T>(descriptor);
}

int add(std::shared_ptr<KernelObject> object) {
  Simulation::here()->call();
  return result(Simulation::process()->descriptors->add(std::move(object)));
}

SocketAddress address_in(const sockaddr* generic) {
  sockaddr_in address;
  std::memcpy(&address, generic, sizeof address);
  return {ntohl(address.sin_addr.s_addr), ntohs(address.sin_port)};
}

void put_address(const SocketAddress& from, sockaddr* to, socklen_t* bytes) {
  if (!to) return;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(from.host);
  address.sin_port = htons(from.port);
  std::memcpy(to, &address, std::min<std::size_t>(*bytes, sizeof address));
  *bytes = sizeof address;
}

Clock::time_point deadline_in(Clock::duration patience) {
  const auto now = Simulation::here()->now();
  return patience > std::chrono::hours(1) ? never : now + patience;
}

// Until `attempt` returns something else than -EAGAIN; a socket that does not block returns that.
template <class Attempt>
long until_possible(const Socket& socket, int flags, Attempt attempt) {
  for (;;) {
    const long value = attempt();
    if (value != -EAGAIN || socket.nonblocking || (flags & MSG_DONTWAIT)) return value;
    if (Simulation::here()->ending()) return -EBADF;
    Simulation::here()->block(never);
  }
}

long send_pieces(int descriptor, const iovec* pieces, std::size_t count, int flags) {
  const auto socket = find<Socket>(descriptor);
  if (!socket) return result(-long{EBADF});
  return result(until_possible(*socket, flags, [&] { return socket->send(pieces, count); }));
}

long receive_pieces(int descriptor, const iovec* pieces, std::size_t count, int flags) {
  const auto socket = find<Socket>(descriptor);
  if (!socket) return result(-long{EBADF});
  return result(until_possible(*socket, flags, [&] { return socket->receive(pieces, count); }));
}

// The bits of poll(2) are those of epoll(7).
static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLERR == EPOLLERR);

int poll_until(pollfd* watched, nfds_t count, Clock::time_point deadline) {
  Simulation& simulation = *Simulation::here();
  simulation.call();
  for (;;) {
    int ready = 0;
    for (nfds_t i = 0; i < count; ++i) {
      pollfd& each = watched[i];
      each.revents = 0;
      if (each.fd < 0) continue;
      const auto object = Simulation::process()->descriptors->find(each.fd);
      const unsigned bits = object ? object->ready() & (each.events | POLLERR | POLLHUP) : POLLNVAL;
      each.revents = static_cast<short>(bits);
      ready += bits != 0;
    }
    if (ready > 0 || simulation.now() >= deadline || simulation.ending()) return ready;
    simulation.block(deadline);
  }
}

bool polls_simulated(const pollfd* watched, nfds_t count) {
  return Simulation::process() && std::all_of(watched, watched + count, [](const pollfd& each) {
           return each.fd < 0 || each.fd >= Descriptors::first;
         });
}

}  // namespace

// ---- What the linker calls: NAME is __wrap_NAME, and the system's own is __real_NAME.

extern "C" {

int __real_socket(int domain, int type, int protocol);
int __real_close(int fd);
int __real_bind(int fd, const sockaddr* address, socklen_t bytes);
int __real_listen(int fd, int backlog);
int __real_connect(int fd, const sockaddr* address, socklen_t bytes);
int __real_accept(int fd, sockaddr* address, socklen_t* bytes);
int __real_getsockname(int fd, sockaddr* address, socklen_t* bytes);
int __real_getpeername(int fd, sockaddr* address, socklen_t* bytes);
int __real_getsockopt(int fd, int level, int name, void* value, socklen_t* bytes);
int __real_setsockopt(int fd, int level, int name, const void* value, socklen_t bytes);
int __real_shutdown(int fd, int how);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_send(int fd, const void* bytes, size_t count, int flags);
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __real_recv(int fd, void* bytes, size_t count, int flags);
int __real_poll(pollfd* watched, nfds_t count, int milliseconds);
int __real_ppoll(pollfd* watched, nfds_t count, const timespec* patience, const sigset_t* mask);
int __real_select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* patience);
int __real_epoll_create1(int flags);
int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
int __real_epoll_wait(int epoll, epoll_event* events, int most, int milliseconds);
int __real_eventfd(unsigned value, int flags);
ssize_t __real_write(int fd, const void* bytes, size_t count);
int __real_timerfd_create(int clock, int flags);
int __real_sched_yield();
pid_t __real_getpid();
ssize_t __real_getrandom(void* bytes, size_t count, unsigned flags);
int __real_ioctl(int fd, unsigned long request, ...);
int __real_fcntl(int fd, int command, ...);

int __wrap_socket(int domain, int type, int protocol) {
  if (!Simulation::process()) return __real_socket(domain, type, protocol);
  if (domain != AF_INET) return result(-EAFNOSUPPORT);
  auto object = std::make_shared<Socket>(*Simulation::process());
  object->nonblocking = (type & SOCK_NONBLOCK) != 0;
  return add(std::move(object));
}

int __wrap_close(int fd) {
  if (!is_simulated(fd)) return __real_close(fd);
  Simulation::here()->call();
  return Simulation::process()->descriptors->close(fd) ? 0 : result(-EBADF);
}

int __wrap_bind(int fd, const sockaddr* address, socklen_t bytes) {
  if (!is_simulated(fd)) return __real_bind(fd, address, bytes);
  const auto object = find<Socket>(fd);
  return object ? result(object->bind(address_in(address))) : result(-EBADF);
}

int __wrap_listen(int fd, int backlog) {
  if (!is_simulated(fd)) return __real_listen(fd, backlog);
  const auto object = find<Socket>(fd);
  return object ? result(object->listen()) : result(-EBADF);
}

int __wrap_connect(int fd, const sockaddr* address, socklen_t bytes) {
  if (!is_simulated(fd)) return __real_connect(fd, address, bytes);
  const auto object = find<Socket>(fd);
  if (!object) return result(-EBADF);
  object->connect(address_in(address));
  if (object->nonblocking) return result(-EINPROGRESS);
  while (object->state == Socket::connecting && !Simulation::here()->ending())
    Simulation::here()->block(never);
  return object->state == Socket::connected ? 0
                                            : result(-std::max(1, std::exchange(object->error, 0)));
}

int __wrap_accept(int fd, sockaddr* address, socklen_t* bytes) {
  if (!is_simulated(fd)) return __real_accept(fd, address, bytes);
  const auto listener = find<Socket>(fd);
  if (!listener || listener->state != Socket::listening) return result(-EINVAL);
  const long waiting =
      until_possible(*listener, 0, [&] { return listener->accepted.empty() ? -EAGAIN : 0L; });
  if (waiting < 0) return static_cast<int>(result(waiting));
  const int accepted = Simulation::process()->descriptors->add(listener->accepted.front());
  if (accepted < 0) return result(accepted);
  put_address(listener->accepted.front()->remote, address, bytes);
  listener->accepted.pop_front();
  return accepted;
}

int __wrap_getsockname(int fd, sockaddr* address, socklen_t* bytes) {
  if (!is_simulated(fd)) return __real_getsockname(fd, address, bytes);
  const auto object = find<Socket>(fd);
  if (!object) return result(-EBADF);
  put_address(object->local, address, bytes);
  return 0;
}

int __wrap_getpeername(int fd, sockaddr* address, socklen_t* bytes) {
  if (!is_simulated(fd)) return __real_getpeername(fd, address, bytes);
  const auto object = find<Socket>(fd);
  if (!object) return result(-EBADF);
  if (object->state != Socket::connected || object->was_reset) return result(-ENOTCONN);
  put_address(object->remote, address, bytes);
  return 0;
}

int __wrap_getsockopt(int fd, int level, int name, void* value, socklen_t* bytes) {
  if (!is_simulated(fd)) return __real_getsockopt(fd, level, name, value, bytes);
  const auto object = find<Socket>(fd);
  if (!object) return result(-EBADF);
  const int number = level == SOL_SOCKET && name == SO_ERROR ? std::exchange(object->error, 0) : 0;
  std::memcpy(value, &number, std::min<std::size_t>(*bytes, sizeof number));
  return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) {
  if (!is_simulated(fd)) return __real_setsockopt(fd, level, name, value, bytes);
  return find<Socket>(fd) ? 0 : result(-EBADF);
}

int __wrap_shutdown(int fd, int how) {
  if (!is_simulated(fd)) return __real_shutdown(fd, how);
  const auto object = find<Socket>(fd);
  if (!object) return result(-EBADF);
  if (object->state == Socket::listening)
    object->close();
  else
    object->send_end();
  return 0;
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  if (!is_simulated(fd)) return __real_sendmsg(fd, message, flags);
  return send_pieces(fd, message->msg_iov, message->msg_iovlen, flags);
}

ssize_t __wrap_send(int fd, const void* bytes, size_t count, int flags) {
  if (!is_simulated(fd)) return __real_send(fd, bytes, count, flags);
  const iovec piece{const_cast<void*>(bytes), count};
  return send_pieces(fd, &piece, 1, flags);
}

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  if (!is_simulated(fd)) return __real_recvmsg(fd, message, flags);
  return receive_pieces(fd, message->msg_iov, message->msg_iovlen, flags);
}

ssize_t __wrap_recv(int fd, void* bytes, size_t count, int flags) {
  if (!is_simulated(fd)) return __real_recv(fd, bytes, count, flags);
  const iovec piece{bytes, count};
  return receive_pieces(fd, &piece, 1, flags);
}

int __wrap_poll(pollfd* watched, nfds_t count, int milliseconds) {
  if (!polls_simulated(watched, count)) return __real_poll(watched, count, milliseconds);
  return poll_until(
      watched, count,
      milliseconds < 0 ? never : deadline_in(std::chrono::milliseconds(milliseconds)));
}

int __wrap_ppoll(pollfd* watched, nfds_t count, const timespec* patience, const sigset_t* mask) {
  if (!polls_simulated(watched, count)) return __real_ppoll(watched, count, patience, mask);
  const auto time = std::chrono::seconds(patience ? patience->tv_sec : 100'000) +
                    std::chrono::nanoseconds(patience ? patience->tv_nsec : 0);
  return poll_until(watched, count, deadline_in(time));
}

// Boost.Asio sleeps with it.
int __wrap_select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* patience) {
  if (!Simulation::process() || in || out || other || !patience)
    return __real_select(count, in, out, other, patience);
  return poll_until(nullptr, 0,
                    deadline_in(std::chrono::seconds(patience->tv_sec) +
                                std::chrono::microseconds(patience->tv_usec)));
}

int __wrap_epoll_create1(int flags) {
  if (!Simulation::process()) return __real_epoll_create1(flags);
  return add(std::make_shared<Epoll>(*Simulation::process()));
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (!is_simulated(epoll)) return __real_epoll_ctl(epoll, operation, fd, event);
  const auto object = find<Epoll>(epoll);
  const auto watched = Simulation::process()->descriptors->find(fd);
  if (!object || !watched) return result(-EBADF);
  if (operation == EPOLL_CTL_DEL)
    object->watches.erase(fd);
  else
    object->watches[fd] = {watched, *event, 0};
  return 0;
}

int __wrap_epoll_wait(int epoll, epoll_event* events, int most, int milliseconds) {
  if (!is_simulated(epoll)) return __real_epoll_wait(epoll, events, most, milliseconds);
  const auto object = find<Epoll>(epoll);
  if (!object) return result(-EBADF);
  Simulation& simulation = *Simulation::here();
  const auto deadline =
      milliseconds < 0 ? never : deadline_in(std::chrono::milliseconds(milliseconds));
  for (;;) {
    const int found = object->collect(events, most);
    if (found > 0 || simulation.now() >= deadline || simulation.ending()) return found;
    simulation.block(deadline);
  }
}

// Boost.Asio keeps it readable, and wakes itself by changing its registration.
int __wrap_eventfd(unsigned value, int flags) {
  if (!Simulation::process()) return __real_eventfd(value, flags);
  return add(std::make_shared<KernelObject>(*Simulation::process()));
}

ssize_t __wrap_write(int fd, const void* bytes, size_t count) {
  return is_simulated(fd) ? static_cast<ssize_t>(count) : __real_write(fd, bytes, count);
}

// Without it Boost.Asio passes the time of its timers to epoll_wait().
int __wrap_timerfd_create(int clock, int flags) {
  return Simulation::process() ? result(-ENOSYS) : __real_timerfd_create(clock, flags);
}

int __wrap_ioctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (!is_simulated(fd)) return __real_ioctl(fd, request, argument);
  const auto object = find<KernelObject>(fd);
  if (!object) return result(-EBADF);
  if (request == FIONBIO) object->nonblocking = *static_cast<const int*>(argument) != 0;
  return 0;
}

int __wrap_fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (!is_simulated(fd)) return __real_fcntl(fd, command, argument);
  auto object = find<KernelObject>(fd);
  if (!object) return result(-EBADF);
  return command == F_DUPFD_CLOEXEC ? add(std::move(object)) : 0;
}

int __wrap_sched_yield() {
  if (!Simulation::process()) return __real_sched_yield();
  Simulation::here()->call();
  Simulation::here()->block(deadline_in(std::chrono::microseconds(5)));
  return 0;
}

pid_t __wrap_getpid() {
  const Process* const process = Simulation::process();
  return process ? process->pid : __real_getpid();
}

ssize_t __wrap_getrandom(void* bytes, size_t count, unsigned flags) {
  if (!Simulation::process()) return __real_getrandom(bytes, count, flags);
  for (std::size_t i = 0; i < count; ++i)
    static_cast<unsigned char*>(bytes)[i] =
        static_cast<unsigned char>(Simulation::here()->below(256));
  return static_cast<ssize_t>(count);
}

}  // extern "C"

// std::chrono::steady_clock::now()
Clock::time_point real_now() asm("__real__ZNSt6chrono3_V212steady_clock3nowEv");
Clock::time_point wrapped_now() asm("__wrap__ZNSt6chrono3_V212steady_clock3nowEv");
Clock::time_point wrapped_now() {
  return Simulation::process() ? Simulation::here()->now() : real_now();
}

}  // namespace ringside::collectives
