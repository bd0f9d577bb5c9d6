// Replaces gloo.cpp in a build without Gloo.
#include "collectives/backends/library_backends.hpp"

namespace ringside::collectives {

bool gloo_is_here() {
  return false;
}

std::unique_ptr<Backend> make_gloo_backend(const RankInfo&) {
  fail("this build has no Gloo: install libgloo-dev, then configure and build again");
}

}  // namespace ringside::collectives
