// A free TCP port of 127.0.0.1 for rank 0, reserved before rank 0 exists.
#pragma once

#include "base/system/file_descriptor.hpp"

namespace ringside {

// Another program could take the port between the choice and rank 0's listen(). So a socket stays
// bound to it while the job runs, with SO_REUSEADDR and without listening. The kernel then gives
// the port neither to a program that asks for any free port nor to an outgoing connection. Rank 0
// sets SO_REUSEADDR too, as servers do, and so it can bind the port and listen.
class ReservedPort {
 public:
  ReservedPort();
  int number() const { return number_; }

 private:
  FileDescriptor socket_;
  int number_ = 0;
};

}  // namespace ringside
