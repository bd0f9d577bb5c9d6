#include "collectives/backends/plugin.hpp"

#include "base/system/shared_library.hpp"

namespace ringside::collectives {

MakeBackend* load_plugin(const std::string& library) {
  return variable_of_library<MakeBackend*>("backend", library, "ringside_backend",
                                           "collectives/backends/plugin.hpp");
}

}  // namespace ringside::collectives
