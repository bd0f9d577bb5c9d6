#include "base/trace/profiler_range.hpp"

#include <string>

#include <nvtx3/nvToolsExt.h>

namespace ringside {
namespace {

// Null if no profiler is attached.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t created = nvtxDomainCreateA("ringside");
  return created;
}

}  // namespace

ProfilerRange::ProfilerRange(std::string_view name, std::string_view what, std::string_view about) {
  if (!domain()) return;
  std::string text(name);
  for (const auto part : {what, about})
    if (!part.empty()) text.append(" ").append(part);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  nvtxDomainRangePushEx(domain(), &attributes);
}

ProfilerRange::~ProfilerRange() {
  if (domain()) nvtxDomainRangePop(domain());
}

}  // namespace ringside
