#include "exercises/judge/gpu/peers.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "exercises/judge/gpu/fiber.hpp"

namespace ringside::gpu {
namespace {

Peers* current_peers = nullptr;

// Turns after which a store has arrived, and after which a rank that has not moved never will.
constexpr std::uint64_t longest_way = 150, turns_of_patience = 400, turns_to_give_up = 12000;

}  // namespace

struct Peers::Thread {
  Thread(int its_rank, int its_block, int its_index, int all)
      : rank(its_rank), block(its_block), index(its_index), knows(static_cast<std::size_t>(all)) {}

  enum class At { ready, meeting, end };

  int rank, block, index;
  Clock knows;
  At at = At::ready;
  bool in_student_code = false, result = false;
  const void* polled = nullptr;  // the word with a name that it has loaded last
  std::unique_ptr<exercises::Fiber> fiber;
};

std::string PeersRun::text() const {
  return fmt::format("{} ranks of {} blocks with {} threads, {} elements{}", ranks, blocks, threads,
                     count, in_place ? " in place" : "");
}

float PeersRun::input(int rank, int call, std::size_t i) const {
  return static_cast<float>(
      random_uniform(seed, static_cast<std::uint64_t>(rank + 100 * call), i) * 2 - 1);
}

Peers::Peers(const PeersRun& run)
    : run_(run),
      loads_(static_cast<std::size_t>(run.ranks)),
      stores_(static_cast<std::size_t>(run.ranks)),
      of_blocks_(static_cast<std::size_t>(run.ranks * run.blocks)),
      of_ranks_(static_cast<std::size_t>(run.ranks)) {
  const int all = run.ranks * run.blocks * run.threads;
  for (int rank = 0; rank < run.ranks; ++rank)
    for (int block = 0; block < run.blocks; ++block)
      for (int thread = 0; thread < run.threads; ++thread) {
        threads_.push_back(std::make_unique<Thread>(rank, block, thread, all));
        threads_.back()->knows[threads_.size() - 1] = 1;
      }
  current_peers = this;
}

Peers::~Peers() {
  current_peers = nullptr;
}

Peers& Peers::current() {
  require(current_peers != nullptr, "Memory may be used in a kernel only");
  return *current_peers;
}

void Peers::add_data(const std::string& name, int rank, float* begin, std::size_t count) {
  std::fill_n(begin, count, std::numeric_limits<float>::quiet_NaN());
  Data& data = data_[begin];
  data.name = name, data.rank = rank;
  data.values.assign(begin, begin + count);
  data.writer.assign(count, -1);
  data.written.assign(count, 0);
  data.loaded.assign(count * threads_.size(), 0);
}

void Peers::add_words(int rank, const void* begin, std::size_t bytes, Says says) {
  words_[begin] = {rank, bytes, std::move(says)};
}

const std::vector<int>& Peers::loads_of(int rank) const {
  return loads_[static_cast<std::size_t>(rank)];
}
const std::vector<int>& Peers::stores_of(int rank) const {
  return stores_[static_cast<std::size_t>(rank)];
}

std::uint64_t Peers::random(std::uint64_t below) {
  return random_below(below, run_.seed, 40, rolls_++);
}

Peers::Thread& Peers::running() {
  return *threads_[static_cast<std::size_t>(running_)];
}

std::string Peers::who(int thread) const {
  const Thread& it = *threads_[static_cast<std::size_t>(thread)];
  return fmt::format("rank {} (thread {} of block {})", it.rank, it.index, it.block);
}

// ---- Turns ----

void Peers::run(const std::function<void(int rank, int block, int thread)>& body,
                const std::function<void()>& stuck) {
  for (const auto& thread : threads_)
    thread->fiber = std::make_unique<exercises::Fiber>([this, &body, it = thread.get()] {
      try {
        body(it->rank, it->block, it->index);
      } catch (...) {
        error_ = std::current_exception();
      }
      it->at = Thread::At::end;
      moved_ = now_;
    });
  const std::uint64_t all = threads_.size();
  std::uint64_t patience = turns_of_patience * all;
  bool was_stuck = false;
  // A rank is slow for a while, so that others get ahead of it.
  const auto is_slow = [&](const Thread& thread) {
    return random_below(3, run_.seed, static_cast<std::uint64_t>(thread.rank), now_ / (8 * all)) ==
           0;
  };
  const auto ready = [&](std::size_t from) {
    for (std::size_t i = 0; i < all; ++i)
      if (threads_[(from + i) % all]->at == Thread::At::ready) return (from + i) % all;
    return std::size_t{all};
  };
  while (fault_.empty() && !error_) {
    std::size_t next = ready(random(all));
    if (next < all && is_slow(*threads_[next]) && random(16) != 0) next = ready(random(all));
    if (next == all || now_ - moved_ > patience) {
      if (std::all_of(threads_.begin(), threads_.end(),
                      [](const auto& each) { return each->at == Thread::At::end; }))
        return;
      if (was_stuck || next == all) {
        fault_ = of_waiting();
        return;
      }
      was_stuck = true;
      stuck();
      patience = turns_to_give_up * all;
      moved_ = now_;
    }
    running_ = static_cast<int>(next);
    threads_[next]->fiber->resume();
    ++now_;
  }
  if (error_) std::rethrow_exception(error_);
}

void Peers::turn() {
  running().fiber->suspend();
}

void Peers::fail_here(const std::string& fault) {
  if (fault_.empty()) fault_ = fault;
  for (;;) turn();
}

std::string Peers::of_waiting() const {
  // A thread that polls explains more than one that waits for it in sync().
  for (const auto& thread : threads_)
    if (thread->at == Thread::At::ready && thread->polled != nullptr) {
      const auto words = words_.lower_bound(thread->polled);
      const auto offset = static_cast<std::size_t>(static_cast<const char*>(thread->polled) -
                                                   static_cast<const char*>(words->first));
      return fmt::format("rank {} waits for ever for {}", thread->rank,
                         words->second.says(offset, values_.at(thread->polled).value));
    }
  for (std::size_t t = 0; t < threads_.size(); ++t)
    if (threads_[t]->at == Thread::At::meeting)
      return fmt::format("{} waits in sync() or any() for a thread of its block that never comes",
                         who(static_cast<int>(t)));
  for (std::size_t t = 0; t < threads_.size(); ++t)
    if (threads_[t]->at == Thread::At::ready)
      return fmt::format("{} never returns", who(static_cast<int>(t)));
  return "";
}

bool Peers::meet(Meeting& meeting, int members, bool vote) {
  meeting.arrived.push_back(running_);
  meeting.vote = meeting.vote || vote;
  if (static_cast<int>(meeting.arrived.size()) < members) {
    Thread& thread = running();
    thread.at = Thread::At::meeting;
    turn();
    return thread.result;
  }
  Clock all(threads_.size());
  for (const int each : meeting.arrived)
    for (std::size_t t = 0; t < all.size(); ++t)
      all[t] = std::max(all[t], threads_[static_cast<std::size_t>(each)]->knows[t]);
  for (const int each : meeting.arrived) {
    Thread& thread = *threads_[static_cast<std::size_t>(each)];
    thread.knows = all;
    ++thread.knows[static_cast<std::size_t>(each)];
    thread.at = Thread::At::ready;
    thread.result = meeting.vote;
  }
  meeting = {};
  moved_ = now_;
  Thread& thread = running();
  turn();
  return thread.result;
}

bool Peers::sync(bool vote) {
  const Thread& thread = running();
  return meet(of_blocks_[static_cast<std::size_t>(thread.rank * run_.blocks + thread.block)],
              run_.threads, vote);
}

void Peers::launch() {
  meet(of_ranks_[static_cast<std::size_t>(running().rank)], run_.blocks * run_.threads, false);
}

std::uint64_t Peers::nanoseconds() {
  turn();
  return 1 + 10 * now_;
}

void Peers::in_student_code(bool inside) {
  running().in_student_code = inside;
}

// ---- Words ----

Peers::Word& Peers::word_at(const void* address, std::size_t bytes) {
  const auto [found, is_new] = values_.try_emplace(address);
  if (is_new) std::memcpy(&found->second.value, address, bytes);
  return found->second;
}

void Peers::arrive(Word& word) {
  while (!word.under_way.empty() && word.under_way.front().arrives <= now_) {
    word.value = word.under_way.front().value;
    word.knows = std::move(word.under_way.front().knows);
    word.under_way.pop_front();
    moved_ = now_;
  }
}

std::uint64_t Peers::load_word(const void* address, std::size_t bytes, bool acquire) {
  turn();
  Thread& thread = running();
  Word& word = word_at(address, bytes);
  arrive(word);
  const auto named = words_.lower_bound(address);
  if (named != words_.end() && static_cast<const char*>(address) <
                                   static_cast<const char*>(named->first) + named->second.bytes)
    thread.polled = address;
  if (acquire && !word.knows.empty())
    for (std::size_t t = 0; t < thread.knows.size(); ++t)
      thread.knows[t] = std::max(thread.knows[t], word.knows[t]);
  return word.value;
}

void Peers::store_word(void* address, std::size_t bytes, std::uint64_t value, bool release) {
  turn();
  Thread& thread = running();
  Word& word = word_at(address, bytes);
  arrive(word);
  const std::uint64_t last = word.under_way.empty() ? 0 : word.under_way.back().arrives;
  word.under_way.push_back(
      {std::max(last, now_ + random(longest_way)), value, release ? thread.knows : Clock{}});
  if (release) ++thread.knows[static_cast<std::size_t>(running_)];
  if (bytes == sizeof(std::uint64_t))
    if (const auto words = words_.lower_bound(address); words != words_.end())
      visit(stores_[static_cast<std::size_t>(thread.rank)], words->second.rank);
  moved_ = now_;
}

std::uint64_t Peers::word(const void* address, std::size_t bytes) {
  const Word& word = word_at(address, bytes);
  return word.under_way.empty() ? word.value : word.under_way.back().value;
}

void Peers::set_word(void* address, std::size_t bytes, std::uint64_t value) {
  word_at(address, bytes).value = value;
}

// ---- Data ----

Peers::Data& Peers::data_at(const float* address, int count, const char* does) {
  const auto found = data_.lower_bound(address);
  if (found == data_.end() ||
      static_cast<std::size_t>(address - static_cast<const float*>(found->first)) +
              static_cast<std::size_t>(count) >
          found->second.values.size())
    fail_here(fmt::format("{} {} memory that belongs to no buffer", who(running_), does));
  if (count > 1 && reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    fail_here(fmt::format("{} {} 16 bytes at once of {}, at an address that is no multiple of 16",
                          who(running_), does, found->second.name));
  return found->second;
}

void Peers::order(Data& data, std::size_t i, const char* does) {
  const Thread& thread = running();
  const auto refuse = [&](int other, const char* did, const char* first) {
    fail_here(
        fmt::format("{} {} element {} of {}, which {} has {}: no flag and no sync() puts the "
                    "{} first",
                    who(running_), does, i, data.name, who(other), did, first));
  };
  if (const int writer = data.writer[i];
      writer >= 0 && thread.knows[static_cast<std::size_t>(writer)] < data.written[i])
    refuse(writer, "stored", "store");
  if (does != std::string_view("stores")) return;
  for (std::size_t t = 0; t < threads_.size(); ++t)
    if (thread.knows[t] < data.loaded[i * threads_.size() + t])
      refuse(static_cast<int>(t), "loaded", "load");
}

void Peers::visit(std::vector<int>& visited, int rank) {
  const Thread& thread = running();
  if (thread.in_student_code && thread.block == 0 && thread.index == 0 &&
      std::find(visited.begin(), visited.end(), rank) == visited.end())
    visited.push_back(rank);
}

void Peers::load(const float* from, int count, float* values) {
  if (random(4) == 0) turn();
  Data& data = data_at(from, count, "loads");
  const auto first =
      static_cast<std::size_t>(from - static_cast<const float*>(data_.lower_bound(from)->first));
  const auto me = static_cast<std::size_t>(running_);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(count); ++i) {
    order(data, i, "loads");
    data.loaded[i * threads_.size() + me] = running().knows[me];
    values[i - first] = data.values[i];
  }
  visit(loads_[static_cast<std::size_t>(running().rank)], data.rank);
  moved_ = now_;
}

void Peers::store(float* into, int count, const float* values) {
  if (random(4) == 0) turn();
  Data& data = data_at(into, count, "stores");
  const auto first =
      static_cast<std::size_t>(into - static_cast<const float*>(data_.lower_bound(into)->first));
  const auto me = static_cast<std::size_t>(running_);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(count); ++i) {
    order(data, i, "stores");
    data.writer[i] = running_;
    data.written[i] = running().knows[me];
    data.values[i] = values[i - first];
  }
  visit(stores_[static_cast<std::size_t>(running().rank)], data.rank);
  moved_ = now_;
}

}  // namespace ringside::gpu
