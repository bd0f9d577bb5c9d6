// Bytes that the launcher has yet to write to its stdout or stderr.
//
// A slow reader (a pager, a stopped terminal) blocks the ranks' output, as it should. It never
// blocks the launcher, which still reacts to signals.
#pragma once

#include <string>

namespace ringside::cli {

class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  std::string& text() { return text_; }  // append whole lines here
  bool empty() const { return text_.empty(); }
  bool full() const { return text_.size() > 1024 * 1024; }  // read no more from the ranks for now
  // From the first failed write on, the queue drops its text. EPIPE: the reader has gone.
  bool broken() const { return broken_; }
  int error() const { return error_; }

  // Writes a piece that is small enough not to block. Call it when poll(2) reports fd() writable.
  void write_some();
  void give_up();

 private:
  int fd_;
  std::string text_;
  bool broken_ = false;
  int error_ = 0;
};

}  // namespace ringside::cli
