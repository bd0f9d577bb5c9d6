// What the launcher has still to write to its stdout or stderr. A reader that does not read (a
// pager, a stopped terminal) holds up the ranks' output, as it should, but never the launcher
// itself: it still answers to signals.
#pragma once

#include <string>

namespace ringside::cli {

class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  std::string& text() { return text_; }  // append whole lines here
  bool empty() const { return text_.empty(); }
  bool full() const { return text_.size() > 1024 * 1024; }  // take no more from the ranks for now
  bool broken() const { return broken_; }  // nobody will ever read it: what is appended is dropped

  // Writes a piece small enough not to block; call when poll(2) says that fd() is writable.
  void write_some();
  void give_up();

 private:
  int fd_;
  std::string text_;
  bool broken_ = false;
};

}  // namespace ringside::cli
