#include "tests/collectives/simulation/network.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace ringside::collectives {
namespace {

constexpr std::size_t buffer_bytes = 64 * 1024;  // of a connection, in each direction
constexpr std::uint16_t first_port = 40000;      // that bind() chooses

Simulation& simulation() {
  return *Simulation::here();
}

// How many bytes a call moves of `most` that it could.
std::size_t some_of(std::size_t most) {
  if (most < 2 || !simulation().happens(simulation().pieces)) return most;
  return 1 + simulation().below(simulation().happens(0.5) ? std::min<std::size_t>(most, 16) : most);
}

// `what` happens at that time, or when the link is no longer held.
void over_link(Clock::time_point when, std::uint32_t from, std::uint32_t to,
               std::function<void()> what) {
  simulation().at(when, [from, to, what = std::move(what)] {
    const auto held = simulation().held_until(from, to);
    if (held <= simulation().now()) return what();
    if (held != Clock::time_point::max()) over_link(held, from, to, what);
  });
}

}  // namespace

std::string to_text(const SocketAddress& address) {
  const std::uint32_t host = address.host;
  return fmt::format("{}.{}.{}.{}:{}", host >> 24, host >> 16 & 255, host >> 8 & 255, host & 255,
                     address.port);
}

void KernelObject::changed() {
  ++changes;
  simulation().wake(owner);
}

int Epoll::collect(epoll_event* events, int most) {
  int found = 0;
  for (auto watch = watches.begin(); watch != watches.end() && found < most;) {
    const auto object = watch->second.object.lock();
    if (!object) {
      watch = watches.erase(watch);
      continue;
    }
    Watch& each = (watch++)->second;
    const unsigned ready = object->ready() & (each.event.events | EPOLLERR | EPOLLHUP);
    if (ready == 0 || each.seen == object->changes) continue;
    each.seen = object->changes;
    events[found++] = {ready, each.event.data};
  }
  return found;
}

unsigned Socket::ready() const {
  unsigned bits = 0;
  if (state == listening && !accepted.empty()) bits = EPOLLIN;
  if (state == fresh) bits = EPOLLOUT | EPOLLHUP;
  if (state == fresh && error) bits |= EPOLLERR | EPOLLIN;
  if (state != connected) return bits;
  if (!inbox.empty() || ended || was_reset) bits |= EPOLLIN;
  if (space() > 0 || was_reset) bits |= EPOLLOUT;
  if (was_reset) bits |= EPOLLERR | EPOLLHUP;
  if (ended && sent_end) bits |= EPOLLHUP;
  return bits;
}

int Socket::bind(SocketAddress to) {
  if (to.host == 0) to.host = owner.address;
  if (to.host != owner.address) return -EADDRNOTAVAIL;
  auto& last = simulation().last_port.try_emplace(to.host, first_port - 1).first->second;
  if (to.port == 0) to.port = ++last;
  auto& port = simulation().ports[to];
  if (!port.expired()) return -EADDRINUSE;
  port = weak_from_this();
  local = to;
  return 0;
}

int Socket::listen() {
  if (state != listening) simulation().note(owner.name, "listens at " + to_text(local));
  state = listening;
  return 0;
}

void Socket::transmit(std::function<void(Socket&)> what) {
  Simulation& room = simulation();
  last_sent_ = std::max(last_sent_, room.now() + room.latency(local.host, remote.host));
  if (const auto other = peer.lock()) other->last_coming_ = last_sent_;
  over_link(last_sent_, local.host, remote.host, [self = weak_from_this(), to = peer, what] {
    if (const auto there = to.lock()) return what(*there);
    const auto here = self.lock();
    if (!here) return;
    const auto back = simulation().latency(here->remote.host, here->local.host);
    const auto reset = std::max(simulation().now() + back, here->last_coming_);
    over_link(reset, here->remote.host, here->local.host, [self] {
      if (const auto socket = self.lock()) socket->reset_connection(ECONNRESET);
    });
  });
}

void Socket::connect(SocketAddress to) {
  if (local.port == 0) bind({});
  state = connecting;
  remote = to;
  Simulation& room = simulation();
  over_link(room.now() + room.latency(local.host, to.host), local.host, to.host,
            [self = weak_from_this(), from = local, to] {
              const auto found = simulation().ports.find(to);
              const auto listener =
                  found == simulation().ports.end() ? nullptr : found->second.lock();
              std::shared_ptr<Socket> other;
              if (listener && listener->state == listening) {
                other = std::make_shared<Socket>(listener->owner);
                other->state = connected;
                other->local = to;
                other->remote = from;
                other->peer = self;
                listener->accepted.push_back(other);
                listener->changed();
              }
              const auto back = simulation().latency(to.host, from.host);
              over_link(simulation().now() + back, to.host, from.host,
                        [self, is_there = other != nullptr, there = std::weak_ptr(other)] {
                          if (const auto socket = self.lock())
                            socket->answered(is_there, there);
                          else if (const auto other_end = there.lock())
                            other_end->reset_connection(ECONNRESET);
                        });
            });
}

void Socket::answered(bool is_there, std::weak_ptr<Socket> by) {
  error = is_there ? 0 : ECONNREFUSED;
  state = is_there ? connected : fresh;
  peer = std::move(by);
  changed();
  simulation().note(owner.name, fmt::format("{} to {}", is_there ? "connects" : "cannot connect",
                                            to_text(remote)));
}

std::size_t Socket::space() const {
  const auto other = peer.lock();
  const std::size_t used = other ? other->inbox.size() + other->under_way : 0;
  return used < buffer_bytes ? buffer_bytes - used : 0;
}

long Socket::send(const iovec* pieces, std::size_t count) {
  if (was_reset || sent_end || state != connected) return error = 0, was_reset = true, -EPIPE;
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i)
    bytes.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  if (bytes.empty()) return 0;
  if (space() == 0) return -EAGAIN;
  bytes.resize(some_of(std::min(bytes.size(), space())));
  const auto sent = static_cast<long>(bytes.size());
  if (const auto other = peer.lock()) other->under_way += bytes.size();
  transmit([bytes = std::move(bytes)](Socket& to) {
    to.under_way -= bytes.size();
    to.inbox += bytes;
    to.changed();
  });
  return sent;
}

long Socket::receive(const iovec* pieces, std::size_t count) {
  if (state != connected) return -ENOTCONN;
  if (inbox.empty() && error) return -std::exchange(error, 0);
  if (inbox.empty() && (ended || was_reset)) return 0;
  if (inbox.empty()) return -EAGAIN;
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < count; ++i) wanted += pieces[i].iov_len;
  std::size_t left = some_of(std::min(wanted, inbox.size()));
  const auto received = static_cast<long>(left);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < count && left > 0; ++i) {
    const std::size_t part = std::min(left, pieces[i].iov_len);
    std::memcpy(pieces[i].iov_base, inbox.data() + taken, part);
    taken += part;
    left -= part;
  }
  inbox.erase(0, taken);
  if (const auto other = peer.lock()) other->changed();  // there is space again
  return received;
}

void Socket::send_end() {
  if (state != connected || sent_end || was_reset) return;
  sent_end = true;
  transmit([](Socket& to) {
    to.ended = true;
    to.changed();
  });
}

void Socket::reset_connection(int why) {
  if (was_reset) return;
  was_reset = true;
  error = why;
  changed();
}

void Socket::close() {
  for (const auto& waiting : accepted) waiting->close();
  accepted.clear();
  if (state == connected && !was_reset && !inbox.empty())
    transmit([](Socket& to) { to.reset_connection(ECONNRESET); });
  else
    send_end();
  state = fresh;
}

int Descriptors::add(std::shared_ptr<KernelObject> object) {
  if (open_.size() >= most) return -EMFILE;
  int number = first;
  for (const auto& [each, ignored] : open_) {
    if (each != number) break;
    ++number;
  }
  open_[number] = std::move(object);
  return number;
}

std::shared_ptr<KernelObject> Descriptors::find(int number) const {
  const auto found = open_.find(number);
  return found == open_.end() ? nullptr : found->second;
}

bool Descriptors::close(int number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return false;
  const auto object = std::move(found->second);
  open_.erase(found);
  const bool last = std::none_of(open_.begin(), open_.end(),
                                 [&](const auto& each) { return each.second == object; });
  if (last) object->close();
  return true;
}

void Descriptors::close_all() {
  while (!open_.empty()) close(open_.begin()->first);
}

}  // namespace ringside::collectives
