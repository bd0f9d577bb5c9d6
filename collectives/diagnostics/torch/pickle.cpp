#include "collectives/diagnostics/torch/pickle.hpp"

#include <cstring>
#include <map>
#include <vector>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

// A pickle is a program for a machine with a stack. A list comes empty onto the stack, where
// the memo may copy it, and is filled later; so of the memo only texts and tuples are read.
class PickleMachine {
 public:
  explicit PickleMachine(std::string_view bytes) : bytes_(bytes) {}

  Json run() {
    while (true) {
      const auto opcode = static_cast<char>(number<std::uint8_t>());
      if (opcode == '.') return pop();
      execute(opcode);
    }
  }

 private:
  void execute(char opcode) {
    switch (opcode) {
      case '\x80':
        number<std::uint8_t>();
        return;  // PROTO
      case '\x95':
        number<std::uint64_t>();
        return;  // FRAME
      case '(':
        marks_.push_back(stack_.size());
        return;
      case '}':
        return push(Json::object());
      case ']':
      case ')':
        return push(Json::array());
      case 'N':
        return push(nullptr);
      case '\x88':
        return push(true);
      case '\x89':
        return push(false);
      case 'K':
        return push(number<std::uint8_t>());
      case 'M':
        return push(number<std::uint16_t>());
      case 'J':
        return push(number<std::int32_t>());
      case '\x8a':
        return push(long_number(number<std::uint8_t>()));
      case 'G':
        return push(big_endian_double());
      case 'X':
        return push(text(number<std::uint32_t>()));
      case '\x8c':
        return push(text(number<std::uint8_t>()));
      case 'q':
        memo_[number<std::uint8_t>()] = top();
        return;
      case 'r':
        memo_[number<std::uint32_t>()] = top();
        return;
      case '\x94':
        memo_.emplace(memo_.size(), top());
        return;
      case 'h':
        return push(remembered(number<std::uint8_t>()));
      case 'j':
        return push(remembered(number<std::uint32_t>()));
      case '\x85':
        return push_tuple(1);
      case '\x86':
        return push_tuple(2);
      case '\x87':
        return push_tuple(3);
      case 't':
        return push_tuple(stack_.size() - mark());
      case 'a':
        return append({pop()});
      case 'e':
        return append(pop_after_mark());
      case 's':
        return set(pop_last(2));
      case 'u':
        return set(pop_after_mark());
      default:
        fail("it has the opcode {:#04x}, and flight records have data alone",
             static_cast<std::uint8_t>(opcode));
    }
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    ringside::fail("not a pickle of data, at byte {}: {}", at_,
                   fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("it is cut off");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text(std::uint64_t length) { return std::string(take(length)); }

  // Of `length` bytes, little endian, in two's complement.
  std::int64_t long_number(std::uint8_t length) {
    if (length > sizeof(std::int64_t)) fail("a number of {} bytes", length);
    const std::string_view raw = take(length);
    std::uint64_t value = length > 0 && (raw.back() & 0x80) != 0 ? ~std::uint64_t(0) : 0;
    std::memcpy(&value, raw.data(), length);
    return static_cast<std::int64_t>(value);
  }
  double big_endian_double() {
    std::uint64_t bits = 0;
    for (const char byte : take(sizeof bits)) bits = bits << 8 | static_cast<std::uint8_t>(byte);
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  void push(Json value) { stack_.push_back(std::move(value)); }
  const Json& top() const {
    if (stack_.empty()) fail("its stack is empty");
    return stack_.back();
  }
  Json pop() { return std::move(pop_last(1).front()); }
  std::vector<Json> pop_last(std::size_t count) {
    if (count > stack_.size())
      fail("its stack has {} values, and {} are wanted", stack_.size(), count);
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<Json> values(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    return values;
  }
  std::size_t mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) fail("it has no mark");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  std::vector<Json> pop_after_mark() { return pop_last(stack_.size() - mark()); }

  Json remembered(std::uint32_t index) const {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("its memo has no {}", index);
    if ((found->second.is_array() || found->second.is_object()) && found->second.empty())
      fail("it refers to one list or dictionary twice");
    return found->second;
  }

  void push_tuple(std::size_t count) { push(Json(pop_last(count))); }
  void append(const std::vector<Json>& values) {
    if (!top().is_array()) fail("it appends to what is no list");
    for (const Json& value : values) stack_.back().push_back(value);
  }
  void set(const std::vector<Json>& values) {
    if (!top().is_object() || values.size() % 2 != 0)
      fail("it sets a key of what is no dictionary");
    for (std::size_t i = 0; i < values.size(); i += 2)
      stack_.back()[values[i].is_string() ? values[i].get<std::string>() : values[i].dump()] =
          values[i + 1];
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::vector<Json> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::map<std::uint32_t, Json> memo_;
};

}  // namespace

Json read_pickle(std::string_view bytes) {
  return PickleMachine(bytes).run();
}

}  // namespace ringside::collectives
