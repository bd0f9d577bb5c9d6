#include "base/system/shared_library.hpp"

#include <filesystem>

#include <dlfcn.h>

#include "base/error.hpp"

namespace ringside {

SharedLibrary::SharedLibrary(const std::string& name, const std::string& file,
                             const std::string& folder, const std::string& remedy)
    : file_(file), handle_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_) return;
  const std::string first = ::dlerror();
  handle_ = ::dlopen((folder + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  require(handle_ != nullptr, "{} cannot be opened: {}; {}; {}", name, first, ::dlerror(), remedy);
}

void* SharedLibrary::address_of(const char* function_name) const {
  void* const address = ::dlsym(handle_, function_name);
  require(address != nullptr, "{} is too old: it has no function {}; install a newer version",
          file_, function_name);
  return address;
}

void* const* address_in_library(const std::string& what, const std::string& library,
                                const char* variable, const char* example) {
  // An absolute path, for dlopen looks for a bare name in the folders of the system.
  const std::string path = std::filesystem::absolute(library);
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail("cannot load the {} {}: {}", what, library, ::dlerror());
  const auto address = static_cast<void* const*>(::dlsym(handle, variable));
  require(address && *address, "{} has no {}: expected a variable {}, as shown in {}", library,
          what, variable, example);
  return address;
}

}  // namespace ringside
