// A TCP port of 127.0.0.1 at which this process listens, for a rank 0 that does not exist yet.
#pragma once

#include "base/system/file_descriptor.hpp"

namespace ringside {

// Rank 0 inherits the descriptor. Nobody can take the port before it does, or between two
// rendezvous of the job: the socket is bound without SO_REUSEADDR.
class ListeningPort {
 public:
  ListeningPort();
  int number() const { return number_; }
  int descriptor() const { return socket_.get(); }  // -1: closed
  void close() { socket_.close(); }

 private:
  FileDescriptor socket_;
  int number_ = 0;
};

// A copy of `descriptor`, which then listens, if it is a socket bound to this TCP port; otherwise
// the copy is not open.
FileDescriptor listen_with(int descriptor, int port);

// Refuses connections from now on, and keeps the port: listen_with() may follow.
void stop_listening(const FileDescriptor& socket);

}  // namespace ringside
