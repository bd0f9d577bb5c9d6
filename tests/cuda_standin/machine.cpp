#include "tests/cuda_standin/machine.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <unistd.h>

#include "tests/cuda_standin/standin.hpp"

namespace ringside::standin {
namespace {

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// A line for each process: what it used, and what it left.
void write_report() {
  const char* const file = std::getenv("RINGSIDE_STANDIN_REPORT");
  if (!file) return;
  const char* const rank = std::getenv("RANK");
  const Usage now = usage();
  std::string contexts;
  for (int d = 0; d < most_devices; ++d)
    if (now.contexts >> d & 1) contexts += (contexts.empty() ? "" : ",") + std::to_string(d);
  std::FILE* const out = std::fopen(file, "a");
  if (!out) return;
  std::fprintf(out, "rank %s: contexts %s; opened %d; allocations %d; reads %s; violations %s\n",
               rank ? rank : "-", contexts.c_str(), now.opened, now.allocations, now.reads.c_str(),
               now.violations.c_str());
  std::fclose(out);
}

}  // namespace

Machine::Machine()
    : devices(static_cast<int>(number("RINGSIDE_STANDIN_DEVICES", 1))),
      seed(number("RINGSIDE_STANDIN_SEED", 1)),
      failing(number("RINGSIDE_STANDIN_FAIL", 0)) {
  mig = number("RINGSIDE_STANDIN_MIG", 0) != 0;
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  lazy = number("RINGSIDE_STANDIN_LAZY", 0) != 0 && !(loading && std::string(loading) == "EAGER");
  const char* const without = std::getenv("RINGSIDE_STANDIN_WITHOUT");
  ipc = !without || std::string(without) != "ipc";
  peers = !without || std::string(without) != "peers";
  std::atexit(write_report);
}

Machine& machine() {
  static Machine& the = *new Machine;
  return the;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}

cudaError_t enter(bool touches) {
  Machine& m = machine();
  const std::uint64_t call = ++m.calls;
  if (m.devices == 0) return report(cudaErrorNoDevice);
  if (m.broken || call == m.failing) {
    if (m.sticky) m.broken = true;
    return report(static_cast<cudaError_t>(m.error.load()));
  }
  if (touches) m.contexts |= 1u << current_device();
  return cudaSuccess;
}

void violation(const std::string& what) {
  Machine& m = machine();
  const std::lock_guard guard(m.lock);
  m.violations += what + "; ";
  std::fprintf(stderr, "CUDA stand-in: %s\n", what.c_str());
}

void note_read(int device) {
  Machine& m = machine();
  const std::lock_guard guard(m.lock);
  if (m.reads.size() < 200) m.reads += (m.reads.empty() ? "" : ",") + std::to_string(device);
}

Usage usage() {
  Machine& m = machine();
  const std::lock_guard guard(m.lock);
  return {m.calls,       m.contexts, m.streams, m.events,    m.blocks,
          m.allocations, m.opened,   m.reads,   m.violations};
}

void fail_call(std::uint64_t n, cudaError_t error, bool sticky) {
  Machine& m = machine();
  m.error = error;
  m.sticky = sticky;
  m.broken = false;
  m.failing = m.calls + n;
}

void set_machine(int devices, bool ipc) {
  machine().devices = devices;
  machine().ipc = ipc;
  machine().contexts = 0;
}

void fail_no_call() {
  machine().failing = 0;
  machine().broken = false;
}

}  // namespace ringside::standin
