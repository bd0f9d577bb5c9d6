#include "cli/launcher/processes/line_forwarder.hpp"

namespace ringside::cli {

void LineForwarder::feed(std::string_view bytes, Clock::time_point now, std::string& out) {
  for (const char c : bytes) {
    if (c == '\n') {
      end_line(out);
      continue;
    }
    if (carriage_returned_) rewrite_line(now, out);
    if (c == '\r') {
      carriage_returned_ = true;
      continue;
    }
    line_ += c;
    if (line_.size() >= longest_line) end_line(out);
  }
}

void LineForwarder::finish(std::string& out) {
  if (!line_.empty() || !rewritten_.empty()) end_line(out);
}

void LineForwarder::end_line(std::string& out) {
  const bool nothing_since_rewritten = line_.empty() && !rewritten_.empty();
  emit(nothing_since_rewritten ? rewritten_ : line_, out);
  line_.clear();
  rewritten_.clear();
  carriage_returned_ = false;
}

void LineForwarder::rewrite_line(Clock::time_point now, std::string& out) {
  carriage_returned_ = false;
  if (line_.empty()) return;
  rewritten_.swap(line_);
  line_.clear();
  if (now < next_rewritten_) return;
  emit(rewritten_, out);
  rewritten_.clear();
  next_rewritten_ = now + std::chrono::duration_cast<Clock::duration>(between_rewritten_lines);
}

void LineForwarder::emit(std::string_view line, std::string& out) const {
  out += prefix_;
  out += line;
  out += '\n';
}

}  // namespace ringside::cli
