// What a child made by fork() must not take from its parent: connections, and the objects that use
// them.
//
// A child has a copy of all descriptors and all memory, but of the threads only the one that
// forked. While it holds a copy of a rank's socket, the other ranks do not learn of the rank's
// death.
#pragma once

#include <sys/types.h>

namespace ringside {

// Keeps a socket or a file from children. A child that executes another program has it closed. Any
// other child has /dev/null under its number: whatever still knows the number cannot reach a file
// that the child opens later. It holds until the descriptor is closed, by whomever.
void keep_from_children(int descriptor);

// The process in which an object was made.
class OwnerProcess {
 public:
  OwnerProcess();
  bool is_this() const;
  void require_this() const;  // throws Error in a child

 private:
  pid_t process_;
};

// For std::unique_ptr: a child does not destroy the object, whose threads it does not have.
template <class T>
struct DeleteInOwner {
  OwnerProcess owner = {};
  void operator()(T* object) const {
    if (owner.is_this()) delete object;
  }
};

}  // namespace ringside
