// Replaces parallel_openmp.cpp if the compiler has no OpenMP, as Zig's, and in builds with
// sanitizers: each rank has threads of its own. They sleep between its loops, and end with its
// thread.
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/kernels/threads/parallel.hpp"
#include "base/system/fork.hpp"
#include "base/system/start_thread.hpp"

namespace ringside::autograd {
namespace {

thread_local bool looping = false;

using Piece = std::function<void(int)>;

// Computes the piece with its number of each loop that it is given. Both sides sleep at once:
// std::atomic's wait() yields the core first, and where other programs use the cores they keep it
// for milliseconds.
class Helper {
 public:
  explicit Helper(int number)
      : number_(number), thread_(start_thread("the loops of this rank", [this] { serve(); })) {}

  ~Helper() {
    change_to(State::leaving);
    thread_.join();
  }

  void start(const Piece& piece) {
    piece_ = &piece;
    change_to(State::working);
  }

  std::exception_ptr wait() {
    wait_while(State::working);
    return std::exchange(error_, nullptr);
  }

 private:
  enum class State { idle, working, leaving };

  void change_to(State state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    changed_.notify_one();  // only one side waits
  }

  State wait_while(State state) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ != state; });
    return state_;
  }

  void serve() {
    looping = true;
    while (wait_while(State::idle) == State::working) {
      try {
        (*piece_)(number_);
      } catch (...) {
        error_ = std::current_exception();
      }
      change_to(State::idle);
    }
  }

  const int number_;
  const Piece* piece_ = nullptr;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;
  std::thread thread_;  // the last member: it uses the others
};

using Helpers = std::vector<std::unique_ptr<Helper>>;
// A child made by fork() does not have its parent's threads.
thread_local std::unique_ptr<Helpers, DeleteInOwner<Helpers>> helpers;

}  // namespace

bool in_loop() {
  return looping;
}

void parallel_for_pieces(std::int64_t count, std::int64_t grain,
                         const std::function<void(int, std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const int pieces = pieces_of(count, grain);
  if (pieces == 1) return body(0, 0, count);  // without threads: a debugger steps straight in
  if (!helpers || !helpers.get_deleter().owner.is_this()) helpers = {new Helpers, {}};
  while (std::ssize(*helpers) < pieces - 1)
    helpers->push_back(std::make_unique<Helper>(static_cast<int>(std::ssize(*helpers)) + 1));
  const Piece piece = [&](int number) {
    body(number, count * number / pieces, count * (number + 1) / pieces);
  };
  for (int i = 1; i < pieces; ++i) (*helpers)[i - 1]->start(piece);
  std::exception_ptr error;
  looping = true;
  try {
    piece(0);
  } catch (...) {
    error = std::current_exception();
  }
  looping = false;
  for (int i = 1; i < pieces; ++i)
    if (const std::exception_ptr its = (*helpers)[i - 1]->wait()) error = its;
  if (error) std::rethrow_exception(error);
}

}  // namespace ringside::autograd
