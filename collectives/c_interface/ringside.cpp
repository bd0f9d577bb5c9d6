// The C interface: each function translates to a call of ProcessGroup, and exceptions to a status.
#include "collectives/c_interface/ringside.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <pthread.h>

#include "base/environment.hpp"
#include "base/system/fork.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/group_options.hpp"
#include "collectives/messages.hpp"
#include "collectives/process_group.hpp"
#include "collectives/work.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

struct Group {
  const OwnerProcess owner = {};
  std::unique_ptr<SubGroupConnector> listening;  // until it is connected
  std::optional<ProcessGroup> connected;
  std::optional<Messages> messages;
  std::mutex calls;  // held by the thread that makes a call, and for as long as that blocks
  bool is_closed = false;
  std::string transport = {};
};

// Of both tables. fork() waits for it, so that a child finds them whole; it is never destroyed, nor
// are they, because threads of the program may wait for a work while the process exits.
std::mutex& tables_mutex = *new std::mutex;
[[maybe_unused]] const int at_fork = ::pthread_atfork(
    [] { tables_mutex.lock(); }, [] { tables_mutex.unlock(); }, [] { tables_mutex.unlock(); });

// What a caller's handles stand for. A handle is a number that is never used again, not an address:
// one that was freed is refused, also where another thread frees it during a call. The call keeps
// the object until it returns.
template <class Handle, class Object>
class HandleTable {
 public:
  Handle* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(tables_mutex);
    objects_.emplace(++last_, std::move(object));
    return reinterpret_cast<Handle*>(last_);
  }
  // NULL if the handle stands for nothing, or no longer.
  std::shared_ptr<Object> find(const Handle* handle) const {
    const std::lock_guard lock(tables_mutex);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  void remove(const Handle* handle) {
    const auto object = find(handle);  // whose destructor may run after the lock
    const std::lock_guard lock(tables_mutex);
    objects_.erase(reinterpret_cast<std::uintptr_t>(handle));
  }

 private:
  std::uintptr_t last_ = 0;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

auto& groups = *new HandleTable<ringside_group, Group>;
auto& works = *new HandleTable<ringside_work, Work>;

constexpr int last_type = RINGSIDE_BOOL, last_op = RINGSIDE_BIT_XOR;
static_assert(last_type == static_cast<int>(DataType::boolean), "in the order of DataType");
static_assert(last_op == static_cast<int>(ReduceOp::bit_xor), "in the order of ReduceOp");
static_assert(sizeof(ringside_address) == sizeof(Endpoint));

thread_local std::string last_error;
thread_local bool is_blocked = false;  // this thread, in a call
std::atomic<int (*)(void)> check_function = nullptr;

class Interrupted : public Error {
  using Error::Error;
};

void check_this_thread() {
  const auto check = check_function.load();
  if (check && is_blocked && check() != 0)
    throw Interrupted("interrupted by the user of this rank");
}

// Whether this thread blocks, for check_this_thread().
class Blocking {
 public:
  Blocking() { is_blocked = true; }
  ~Blocking() { is_blocked = false; }
};

template <class Function>
ringside_status status_of(Function function) {
  try {
    function();
    return RINGSIDE_OK;
  } catch (const Interrupted& error) {
    last_error = error.what();
    return RINGSIDE_INTERRUPTED;
  } catch (const RankFailure& failure) {
    last_error = failure.what();
    return RINGSIDE_RANK_FAILED;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception of an unknown type";
  }
  return RINGSIDE_ERROR;
}

std::shared_ptr<Group> find(const ringside_group* handle) {
  require(handle != nullptr, "expected a group, got NULL");
  auto group = groups.find(handle);
  require(group != nullptr, "expected a group, got one that ringside_close() has freed");
  group->owner.require_this();
  return group;
}

std::shared_ptr<Work> find(const ringside_work* handle) {
  require(handle != nullptr, "expected a work, got NULL");
  auto work = works.find(handle);
  require(work != nullptr, "expected a work, got one that ringside_work_free() has freed");
  return work;
}

ProcessGroup& connected(Group& group) {
  require(group.connected.has_value(), "the group is not connected: call ringside_connect() first");
  return *group.connected;
}

DataType type_of(ringside_type type) {
  require(type >= 0 && type <= last_type, "expected a type of ringside.h, 0 to {}, got {}",
          last_type, static_cast<int>(type));
  return static_cast<DataType>(type);
}

ReduceOp op_of(ringside_op op) {
  require(op >= 0 && op <= last_op, "expected an operation of ringside.h, 0 to {}, got {}", last_op,
          static_cast<int>(op));
  return static_cast<ReduceOp>(op);
}

// Makes `call(group, form)` in the form that blocks, or in the one whose Work it gives out.
template <class... Parameters, class MakeCall>
ringside_status make_call(ringside_group* handle, ringside_work** work,
                          void (ProcessGroup::*blocking)(Parameters...),
                          Work (ProcessGroup::*starting)(Parameters...), MakeCall call) {
  return status_of([&] {
    const auto group = find(handle);
    ProcessGroup& ranks = connected(*group);
    const std::lock_guard one_at_a_time(group->calls);
    require(!group->is_closed, "the group was closed before this call could begin");
    if (work) {
      *work = works.add(std::make_shared<Work>(call(ranks, starting)));
      return;
    }
    const Blocking here;
    call(ranks, blocking);
  });
}

// The counts of the blocks, as many as there are ranks; none if all are equal.
std::span<const std::size_t> list_of(const size_t* counts, const ProcessGroup& ranks) {
  return counts ? std::span(counts, static_cast<std::size_t>(ranks.size()))
                : std::span<const std::size_t>();
}

// The length of a buffer with a block for each rank, in elements.
std::size_t length_of(size_t count, const size_t* counts, const ProcessGroup& ranks) {
  const auto list = list_of(counts, ranks);
  return counts ? std::accumulate(list.begin(), list.end(), std::size_t{0}) : count * ranks.size();
}

Blocks blocks(void* data, size_t count, const size_t* counts, DataType type,
              const ProcessGroup& ranks) {
  return {Buffer(data, length_of(count, counts, ranks), type), list_of(counts, ranks)};
}

ConstBlocks blocks(const void* data, size_t count, const size_t* counts, DataType type,
                   const ProcessGroup& ranks) {
  return {ConstBuffer(data, length_of(count, counts, ranks), type), list_of(counts, ranks)};
}

// The length of this rank's own block.
std::size_t own(size_t count, const size_t* counts, const ProcessGroup& ranks) {
  return counts ? counts[ranks.rank()] : count;
}

// A message: any thread may send and receive at any time.
template <class Starting>
ringside_status make_message(ringside_group* handle, ringside_work** work, Starting starting) {
  return status_of([&] {
    const auto group = find(handle);
    connected(*group);
    Work message = starting(*group->messages);
    if (work) {
      *work = works.add(std::make_shared<Work>(std::move(message)));
      return;
    }
    const Blocking here;
    while (!message.wait_for(Seconds(0.05), true)) check_this_thread();
  });
}

}  // namespace

int ringside_abi_version(void) {
  return RINGSIDE_ABI_VERSION;
}

const char* ringside_last_error(void) {
  return last_error.c_str();
}

ringside_status ringside_listen(const char* host, double connect_timeout, ringside_group** group,
                                ringside_address* address) {
  return status_of([&] {
    require(host && group && address, "expected a host, a group and an address, got NULL");
    RankInfo rank_info;
    rank_info.interface = environment("RINGSIDE_INTERFACE").value_or("");
    rank_info.backend = environment("RINGSIDE_BACKEND").value_or("auto");
    rank_info.connect_timeout = Seconds(connect_timeout);
    auto made = std::make_shared<Group>();
    made->listening = make_connector_at(host, rank_info);
    const Endpoint endpoint = made->listening->listen();
    std::copy_n(reinterpret_cast<const unsigned char*>(endpoint.data()), endpoint.size(),
                address->bytes);
    *group = groups.add(std::move(made));
  });
}

ringside_status ringside_connect(ringside_group* handle, int rank, int size,
                                 const ringside_address* addresses, const char* job_key,
                                 const char* name, double timeout) {
  return status_of([&] {
    require(addresses && job_key && name, "expected three pointers, got NULL");
    const auto group = find(handle);
    require(group->listening != nullptr, "a group is connected once, after ringside_listen()");
    require(size >= 1 && rank >= 0 && rank < size, "rank {} is not in a world of {}", rank, size);
    require(timeout > 0, "expected a timeout of more than 0 s, got {}", timeout);
    std::vector<Endpoint> members(static_cast<std::size_t>(size));
    for (std::size_t r = 0; r < members.size(); ++r)
      std::copy_n(addresses[r].bytes, members[r].size(),
                  reinterpret_cast<unsigned char*>(members[r].data()));
    load_algorithms();
    GroupOptions options = group_options_from_environment();
    options.executor.group = name;
    options.executor.timeout = Seconds(timeout);
    options.executor.check = check_this_thread;
    const Blocking here;
    // The connector proves the key and the name together.
    auto connected = ProcessGroup::over(
        group->listening->connect(job_key, rank, members, check_this_thread), options);
    group->messages.emplace(connected);  // without them the group is not connected
    group->connected = std::move(connected);
    group->transport = group->connected->backend_name();
    group->listening.reset();
  });
}

void ringside_abort(ringside_group* handle, const char* cause) {
  const auto group = groups.find(handle);
  if (!group || !group->connected) return;
  const std::string why = cause ? cause : "the rank gave up";
  if (group->messages) group->messages->abort(why);
  group->connected->abort(why);
}

void ringside_close(ringside_group* handle) {
  const auto group = groups.find(handle);
  if (!group || !group->owner.is_this()) return;
  groups.remove(handle);
  const std::lock_guard after_the_last_call(group->calls);
  group->is_closed = true;  // for calls that wait for this lock
}

const char* ringside_transport(const ringside_group* group) {
  const char* name = nullptr;
  status_of([&] { name = find(group)->transport.c_str(); });
  return name;
}

size_t ringside_bytes_sent(ringside_group* handle) {
  size_t bytes = 0;
  status_of([&] {
    const auto group = find(handle);
    if (group->connected) bytes = group->connected->traffic().payload_bytes_sent;
  });
  return bytes;
}

const char* ringside_algorithm(ringside_group* group, const char* collective, size_t count,
                               ringside_type type) {
  const char* name = nullptr;
  status_of([&] {
    // The names of the catalogue are literals, or live until the program ends.
    name = connected(*find(group))
               .algorithm_for(collective_named(collective), count, type_of(type))
               .name.data();
  });
  return name;
}

ringside_status ringside_all_reduce(ringside_group* group, void* data, size_t count,
                                    ringside_type type, ringside_op op, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::all_reduce, &ProcessGroup::all_reduce_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(Buffer(data, count, type_of(type)), op_of(op), {});
                   });
}

ringside_status ringside_broadcast(ringside_group* group, void* data, size_t count,
                                   ringside_type type, int root, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::broadcast, &ProcessGroup::broadcast_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(Buffer(data, count, type_of(type)), root, {});
                   });
}

ringside_status ringside_reduce(ringside_group* group, void* data, size_t count, ringside_type type,
                                ringside_op op, int root, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::reduce, &ProcessGroup::reduce_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(ConstBuffer(data, count, type_of(type)),
                                          Buffer(data, count, type_of(type)), root, op_of(op), {});
                   });
}

ringside_status ringside_all_gather(ringside_group* group, const void* input, void* output,
                                    size_t count, const size_t* counts, ringside_type type,
                                    ringside_work** work) {
  return make_call(group, work, &ProcessGroup::all_gather, &ProcessGroup::all_gather_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(
                         ConstBuffer(input, own(count, counts, ranks), type_of(type)),
                         blocks(output, count, counts, type_of(type), ranks), {});
                   });
}

ringside_status ringside_reduce_scatter(ringside_group* group, const void* input, void* output,
                                        size_t count, const size_t* counts, ringside_type type,
                                        ringside_op op, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::reduce_scatter, &ProcessGroup::reduce_scatter_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(blocks(input, count, counts, type_of(type), ranks),
                                          Buffer(output, own(count, counts, ranks), type_of(type)),
                                          op_of(op), {});
                   });
}

ringside_status ringside_gather(ringside_group* group, const void* input, void* output,
                                size_t count, ringside_type type, int root, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::gather, &ProcessGroup::gather_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(ConstBuffer(input, count, type_of(type)),
                                          blocks(output, count, nullptr, type_of(type), ranks),
                                          root, {});
                   });
}

ringside_status ringside_scatter(ringside_group* group, const void* input, void* output,
                                 size_t count, ringside_type type, int root, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::scatter, &ProcessGroup::scatter_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(blocks(input, count, nullptr, type_of(type), ranks),
                                          Buffer(output, count, type_of(type)), root, {});
                   });
}

ringside_status ringside_all_to_all(ringside_group* group, const void* input, void* output,
                                    size_t count, const size_t* sent, const size_t* received,
                                    ringside_type type, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::all_to_all, &ProcessGroup::all_to_all_async,
                   [&](ProcessGroup& ranks, auto form) {
                     return (ranks.*form)(blocks(input, count, sent, type_of(type), ranks),
                                          blocks(output, count, received, type_of(type), ranks),
                                          {});
                   });
}

ringside_status ringside_barrier(ringside_group* group, ringside_work** work) {
  return make_call(group, work, &ProcessGroup::barrier, &ProcessGroup::barrier_async,
                   [&](ProcessGroup& ranks, auto form) { return (ranks.*form)(); });
}

ringside_status ringside_send(ringside_group* group, const void* data, size_t count,
                              ringside_type type, int to, int tag, ringside_work** work) {
  return make_message(group, work, [&](Messages& messages) {
    return messages.send(ConstBuffer(data, count, type_of(type)), to, tag);
  });
}

ringside_status ringside_recv(ringside_group* group, void* data, size_t count, ringside_type type,
                              int from, int tag, ringside_work** work) {
  return make_message(group, work, [&](Messages& messages) {
    return messages.recv(Buffer(data, count, type_of(type)), from, tag);
  });
}

int ringside_work_done(const ringside_work* work) {
  int done = -1;
  status_of([&] { done = find(work)->done() ? 1 : 0; });
  return done;
}

ringside_status ringside_work_wait(ringside_work* work, double seconds) {
  bool ended = true;
  const ringside_status status = status_of([&] {
    ended = find(work)->wait_for(seconds < 0 ? Seconds::max() : Seconds(seconds));
    if (!ended) last_error = fmt::format("the call has not ended after {} s, and runs on", seconds);
  });
  return ended ? status : RINGSIDE_TIMED_OUT;
}

int ringside_work_source(const ringside_work* work) {
  int source = -1;
  status_of([&] { source = find(work)->source(); });
  return source;
}

void ringside_work_free(ringside_work* work) {
  works.remove(work);
}

void ringside_check_while_waiting(int (*check)(void)) {
  check_function.store(check);
}
