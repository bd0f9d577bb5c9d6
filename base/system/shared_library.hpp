// A library that is opened when it is first used. Large libraries (NCCL has 218 MB) are not linked,
// so that programs which never use them start quickly.
#pragma once

#include <string>

namespace ringside {

// Opened for the life of the process.
class SharedLibrary {
 public:
  // Opens `file` ("libnccl.so.2") where the loader finds it, otherwise in `folder`. Throws Error
  // that says where it looked; `name` ("NCCL") begins the sentence, and `remedy` ends it.
  SharedLibrary(const std::string& name, const std::string& file, const std::string& folder,
                const std::string& remedy = "install it, or add its folder to LD_LIBRARY_PATH");

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

// Opens a library that a user wrote, for the life of the process, and returns the address of its
// variable. Throws Error if it cannot be opened or has no such variable, or a null pointer in it.
// `what` ("parallel strategy") and `example`, a header that shows one, are for the sentence.
void* const* address_in_library(const std::string& what, const std::string& library,
                                const char* variable, const char* example);

template <class Pointer>
Pointer variable_of_library(const std::string& what, const std::string& library,
                            const char* variable, const char* example) {
  return reinterpret_cast<Pointer>(*address_in_library(what, library, variable, example));
}

}  // namespace ringside
