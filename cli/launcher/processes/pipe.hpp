// Pipe: two file descriptors of the launcher and a process that it starts. These functions throw.
#pragma once

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/system/file_descriptor.hpp"

namespace ringside::cli {

using ringside::FileDescriptor;

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

// Both ends close on exec. A child keeps an end by duplicating it onto descriptor 0, 1 or 2.
inline Pipe make_pipe() {
  int ends[2];
  const int error = ::pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
  require(error != EMFILE,
          "the launcher may not have more files open, and needs two pipes for each rank: raise the "
          "limit (ulimit -n 4096), or use fewer ranks");
  require(error == 0, "cannot make a pipe: {}", std::strerror(error));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

inline void make_non_blocking(const FileDescriptor& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    fail("cannot make a pipe non-blocking: {}", std::strerror(errno));
}

}  // namespace ringside::cli
