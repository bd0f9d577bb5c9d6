#include "exercises/judge/gpu/fiber.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <boost/asio/io_context.hpp>

#include "base/error.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace ringside::exercises {
namespace {

// What the C++ runtime and Boost.Asio keep for each thread, and here belongs to each fiber: the
// exceptions that are being handled, and the handlers that are running.
using AsioStack = boost::asio::detail::call_stack<boost::asio::detail::thread_context,
                                                  boost::asio::detail::thread_info_base>;
using AsioTop = boost::asio::detail::tss_ptr<AsioStack::context>;

AsioTop& asio_top();

// The member is private. An explicit instantiation may name it.
template <AsioTop* top>
struct Reveal {
  friend AsioTop& asio_top() { return *top; }
};
template struct Reveal<&AsioStack::top_>;

struct OfThread {
  std::array<std::byte, 16> exceptions{};  // __cxa_eh_globals: a pointer and a counter
  AsioStack::context* handlers = nullptr;

  void exchange() {
    std::array<std::byte, 16> current;
    void* const globals = abi::__cxa_get_globals();
    std::memcpy(current.data(), globals, current.size());
    std::memcpy(globals, exceptions.data(), current.size());
    exceptions = current;
    AsioStack::context* const top = asio_top();
    asio_top() = handlers;
    handlers = top;
  }
};

// Stacks are used again: a simulation makes thousands.
constexpr std::size_t stack_bytes = 1 << 20, guard_bytes = 1 << 16;

std::vector<std::byte*>& free_stacks() {
  static std::vector<std::byte*> stacks;
  return stacks;
}

std::byte* new_stack() {
  if (!free_stacks().empty()) {
    std::byte* const stack = free_stacks().back();
    free_stacks().pop_back();
    return stack;
  }
  void* const memory = ::mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, "no memory for the stack of a fiber: {} bytes", stack_bytes);
  ::mprotect(memory, guard_bytes, PROT_NONE);  // an overflow ends the program at once
  return static_cast<std::byte*>(memory) + guard_bytes;
}

}  // namespace

struct Fiber::Context {
  ucontext_t own{}, resumer{};
  std::byte* stack = new_stack();
  OfThread of_thread;
  // For AddressSanitizer, which must know on which stack it is.
  const void* resumer_stack = nullptr;
  std::size_t resumer_bytes = 0;
  void* fake_stack = nullptr;
#ifdef __SANITIZE_THREAD__
  void *const tsan = __tsan_create_fiber(0), *resumer_tsan = nullptr;
#endif

  ~Context() {
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(tsan);
#endif
    free_stacks().push_back(stack);
  }

  void enter() {
    of_thread.exchange();
#ifdef __SANITIZE_THREAD__
    resumer_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan, 0);
#endif
#ifdef __SANITIZE_ADDRESS__
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack, stack_bytes);
#endif
    ::swapcontext(&resumer, &own);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    of_thread.exchange();
  }

  void entered() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake_stack, &resumer_stack, &resumer_bytes);
#endif
  }

  void leave([[maybe_unused]] bool for_good) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, resumer_stack, resumer_bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(resumer_tsan, 0);
#endif
    ::swapcontext(&own, &resumer);
    entered();
  }
};

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), context_(std::make_unique<Context>()) {
  ::getcontext(&context_->own);
  context_->own.uc_stack.ss_sp = context_->stack;
  context_->own.uc_stack.ss_size = stack_bytes;
  context_->own.uc_link = nullptr;
  // makecontext() passes arguments of type int.
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&context_->own, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
}

Fiber::~Fiber() = default;

void Fiber::enter(unsigned low, unsigned high) {
  reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low)->run();
}

void Fiber::run() {
  context_->entered();
  body_();
  body_ = nullptr;
  done_ = true;
  context_->leave(true);
}

void Fiber::resume() {
  context_->enter();
}

void Fiber::suspend() {
  context_->leave(false);
}

}  // namespace ringside::exercises
