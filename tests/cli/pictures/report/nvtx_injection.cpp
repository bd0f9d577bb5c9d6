// A profiler for profiler_range_test.cpp, loaded by NVTX through NVTX_INJECTION64_PATH. It appends
// a line for each range to the file named by NVTX_INJECTION_LOG: "push THREAD NAME" or "pop
// THREAD".
#include <cstdio>
#include <cstdlib>

#include <sys/syscall.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

namespace {

std::FILE* log_file() {
  static std::FILE* const file = [] {
    std::FILE* opened = std::fopen(std::getenv("NVTX_INJECTION_LOG"), "a");
    std::setvbuf(opened, nullptr, _IOLBF, 1 << 12);
    return opened;
  }();
  return file;
}

long thread() {
  return ::syscall(SYS_gettid);
}

nvtxDomainHandle_t create_domain(const char*) {
  static int domain;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}

int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  std::fprintf(log_file(), "push %ld %s\n", thread(), attributes->message.ascii);
  return 0;
}

int pop(nvtxDomainHandle_t) {
  std::fprintf(log_file(), "pop %ld\n", thread());
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}
