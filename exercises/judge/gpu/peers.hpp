// Several GPUs that see each other's memory, on one thread of the CPU: each thread of each block of
// each rank is a fiber, and a seed chooses which of them runs next. The memory keeps no promise but
// those that the code asks for:
//
//     words    flags and packets, which are stored and loaded as a whole. A store takes a time of
//              its own to arrive, so two words that a thread stores may arrive in the other order.
//     data     A load must come after the store of what it loads, and a store after all loads of
//              what it overwrites. Two things put them in order: sync(), and a flag that is stored
//              with release and loaded with acquire. Vector clocks tell whether they did, in
//              whichever order the fibers happened to run (Flanagan and Freund, "FastTrack", 2009).
//
// A fault is a sentence about the first access that nothing orders, or about a rank that waits for
// ever.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ringside::gpu {

// What all ranks do: the same call a number of times, with other inputs each time.
struct PeersRun {
  int ranks = 2, blocks = 1, threads = 1;
  int calls = 1;
  std::size_t count = 0;   // elements of a buffer
  std::size_t offset = 0;  // of the buffers' begin from 16 bytes, in elements
  bool in_place = false;   // the input is the output
  std::uint64_t seed = 0;
  // This rank does not make the last call; -1: all do. Then the host of `stopped` says stop; -1:
  // none does, and time runs out.
  int missing = -1, stopped = -1;

  std::string text() const;
  float input(int rank, int call, std::size_t i) const;
};

struct PeersSeen {
  std::string fault;
  std::vector<std::vector<float>> outputs;  // [call * ranks + rank]
  // [rank]: whose data its first thread has loaded and stored, in the order of the first times.
  std::vector<std::vector<int>> loads, stores;
  // [rank]: how the last call ended, and what the rank told its host.
  std::vector<bool> returned, gave_up;
  std::vector<std::uint32_t> waiting_for, number;
};

class Peers {
 public:
  explicit Peers(const PeersRun& run);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // The one whose fiber runs.
  static Peers& current();

  // ---- Before run() ----

  // Floats that only load() and store() reach: the memory itself holds nan.
  void add_data(const std::string& name, int rank, float* begin, std::size_t count);
  // Words, and what is said of the one at a distance from `begin` in bytes, with its value, where a
  // rank waits for it for ever.
  using Says = std::function<std::string(std::size_t offset, std::uint64_t value)>;
  void add_words(int rank, const void* begin, std::size_t bytes, Says says);
  // Runs body(rank, block, thread) in a fiber each, until all have returned or there is a fault.
  // When nothing moves any more, calls stuck() once, which may store words; then they have some
  // time to return. Throws what a body throws.
  void run(const std::function<void(int rank, int block, int thread)>& body,
           const std::function<void()>& stuck);
  const std::string& fault() const { return fault_; }
  // Whose data the first thread of a rank has loaded or stored in student code.
  const std::vector<int>& loads_of(int rank) const;
  const std::vector<int>& stores_of(int rank) const;

  // ---- In a fiber ----

  std::uint64_t load_word(const void* address, std::size_t bytes, bool acquire);
  void store_word(void* address, std::size_t bytes, std::uint64_t value, bool release);
  void load(const float* from, int count, float* values);
  void store(float* into, int count, const float* values);
  bool sync(bool vote);  // of the block; returns whether any thread voted true
  void launch();         // all threads of the rank meet, as where a kernel begins or ends
  void pause() { turn(); }
  std::uint64_t nanoseconds();
  void in_student_code(bool inside);  // this thread

  // ---- Anywhere ----

  // A word as the others see it, with all that is on its way.
  std::uint64_t word(const void* address, std::size_t bytes);
  void set_word(void* address, std::size_t bytes, std::uint64_t value);
  [[noreturn]] void fail_here(const std::string& fault);  // in a fiber

 private:
  using Clock = std::vector<std::uint32_t>;  // [thread]: what is known of its time
  struct Thread;
  struct Word {
    struct Store {
      std::uint64_t arrives, value;
      Clock knows;  // of a release
    };
    std::uint64_t value = 0;
    Clock knows;
    std::deque<Store> under_way;
  };
  struct Data {
    std::string name;
    int rank = 0;
    std::vector<float> values;
    // Of each element: who stored it last, and when; and when each thread has loaded it last.
    std::vector<int> writer;
    std::vector<std::uint32_t> written, loaded;
  };
  struct Words {
    int rank = 0;
    std::size_t bytes = 0;
    Says says;
  };
  struct Meeting {
    std::vector<int> arrived;
    bool vote = false;
  };

  Thread& running();
  std::string who(int thread) const;
  void turn();
  bool meet(Meeting& meeting, int members, bool vote);
  Word& word_at(const void* address, std::size_t bytes);
  void arrive(Word& word);
  Data& data_at(const float* address, int count, const char* does);
  void order(Data& data, std::size_t i, const char* does);
  void visit(std::vector<int>& visited, int rank);
  std::string of_waiting() const;
  std::uint64_t random(std::uint64_t below);

  PeersRun run_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::vector<int>> loads_, stores_;
  std::map<const void*, Data, std::greater<>> data_;
  std::map<const void*, Words, std::greater<>> words_;
  std::unordered_map<const void*, Word> values_;
  std::vector<Meeting> of_blocks_, of_ranks_;
  int running_ = 0;
  std::uint64_t now_ = 0, moved_ = 0, rolls_ = 0;
  std::string fault_;
  std::exception_ptr error_;
};

// MEMORY of one_sided/ on these GPUs. A pack is 16 bytes of floats.
struct PeersMemory {
  static std::uint32_t load_acquire(const std::uint32_t& word) {
    return static_cast<std::uint32_t>(Peers::current().load_word(&word, 4, true));
  }
  static std::uint32_t load_relaxed(const std::uint32_t& word) {
    return static_cast<std::uint32_t>(Peers::current().load_word(&word, 4, false));
  }
  static void store_release(std::uint32_t& word, std::uint32_t value) {
    Peers::current().store_word(&word, 4, value, true);
  }
  static void store_relaxed(std::uint32_t& word, std::uint32_t value) {
    Peers::current().store_word(&word, 4, value, false);
  }
  static std::uint64_t load_packet(const std::uint64_t& packet) {
    return Peers::current().load_word(&packet, 8, false);
  }
  static void store_packet(std::uint64_t& packet, std::uint64_t value) {
    Peers::current().store_word(&packet, 8, value, false);
  }
  static void pause() { Peers::current().pause(); }
  static std::uint64_t nanoseconds() { return Peers::current().nanoseconds(); }
  static float widen(float element) { return element; }
  template <class T>
  static T narrow(float value) {
    return value;
  }
  template <class Width>
  static Width load(const float* from, const Width&) {
    Width values{};
    Peers::current().load(from, sizeof(Width) / sizeof(float), reinterpret_cast<float*>(&values));
    return values;
  }
  template <class Width>
  static void store(float* into, const Width& values) {
    Peers::current().store(into, sizeof(Width) / sizeof(float),
                           reinterpret_cast<const float*>(&values));
  }
};

// TEAM of one_sided/: the threads of a block.
struct PeersTeam {
  int thread, threads;
  int index() const { return thread; }
  int count() const { return threads; }
  void sync() const { Peers::current().sync(false); }
  bool any(bool lost) const { return Peers::current().sync(lost); }
};

}  // namespace ringside::gpu
