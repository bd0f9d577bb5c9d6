// A library that is opened when it is first used. Large libraries (NCCL has 218 MB) are not linked,
// so that programs which never use them start quickly.
#pragma once

#include <string>

namespace ringside {

// Opened for the life of the process.
class SharedLibrary {
 public:
  // Opens `file` ("libnccl.so.2") where the loader finds it, otherwise in `folder`. Throws Error
  // that says where it looked; `name` ("NCCL") begins the sentence.
  SharedLibrary(const std::string& name, const std::string& file, const std::string& folder);

  // Points `function` to the library's function of that name. Throws Error if there is none.
  template <class Function>
  void find(Function*& function, const char* function_name) const {
    function = reinterpret_cast<Function*>(address_of(function_name));
  }

 private:
  void* address_of(const char* function_name) const;

  std::string file_;
  void* handle_;
};

}  // namespace ringside
