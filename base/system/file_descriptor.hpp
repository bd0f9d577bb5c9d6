// A file descriptor that closes itself: part of the seam to the operating system (docs/design.md).
#pragma once

#include <utility>

#include <unistd.h>

namespace ringside {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return fd_; }  // -1: none
  bool is_open() const { return fd_ >= 0; }
  void close() {
    if (is_open()) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace ringside
