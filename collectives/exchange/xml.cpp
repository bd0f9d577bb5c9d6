#include "collectives/exchange/xml.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

constexpr std::size_t most_nested = 16;

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  int line() const { return line_; }

  void skip_space() {
    while (!at_end() && std::isspace(static_cast<unsigned char>(text_[at_]))) advance(1);
  }
  // Goes past `token` if it is next.
  bool takes(std::string_view token) {
    const bool is_next = text_.substr(at_, token.size()) == token;
    if (is_next) advance(token.size());
    return is_next;
  }
  void expect(std::string_view token) {
    require(takes(token), "line {}: expected '{}', not {}", line_, token, what_is_next());
  }
  void skip_past(std::string_view end) {
    const std::size_t found = text_.find(end, at_);
    require(found != std::string_view::npos, "line {}: expected '{}' before the end of the file",
            line_, end);
    advance(found + end.size() - at_);
  }
  bool has_name() const { return !at_end() && is_of_name(text_[at_]); }
  std::string name() {
    require(has_name(), "line {}: expected a name, not {}", line_, what_is_next());
    const std::size_t begin = at_;
    while (has_name()) advance(1);
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string quoted() {
    const std::string quote = takes("'") ? "'" : "\"";
    if (quote == "\"") expect(quote);
    const std::size_t begin = at_;
    skip_past(quote);
    return std::string(text_.substr(begin, at_ - 1 - begin));
  }

 private:
  static bool is_of_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
           c == ':';
  }
  std::string what_is_next() const {
    return at_end() ? "the end of the file" : fmt::format("'{}'", text_.substr(at_, 1));
  }
  void advance(std::size_t characters) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                   text_.begin() + static_cast<std::ptrdiff_t>(at_ + characters), '\n'));
    at_ += characters;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

void read_attributes(Scanner& scanner, XmlElement& element) {
  for (scanner.skip_space(); scanner.has_name(); scanner.skip_space()) {
    const std::string key = scanner.name();
    require(element.find(key) == nullptr, "line {}: '{}' stands twice", scanner.line(), key);
    scanner.skip_space();
    scanner.expect("=");
    scanner.skip_space();
    element.attributes.emplace_back(key, scanner.quoted());
  }
}

}  // namespace

const std::string* XmlElement::find(std::string_view attribute) const {
  for (const auto& [key, value] : attributes)
    if (key == attribute) return &value;
  return nullptr;
}

XmlElement parse_xml(std::string_view text) {
  Scanner scanner(text);
  scanner.takes("\xEF\xBB\xBF");               // a byte order mark
  std::vector<XmlElement> open{XmlElement{}};  // the file, and the elements that are not yet closed
  const auto close = [&] {
    XmlElement closed = std::move(open.back());
    open.pop_back();
    open.back().children.push_back(std::move(closed));
  };
  for (scanner.skip_space(); !scanner.at_end(); scanner.skip_space()) {
    if (scanner.takes("<!--")) {
      scanner.skip_past("-->");
    } else if (scanner.takes("<?")) {
      scanner.skip_past("?>");
    } else if (scanner.takes("</")) {
      const std::string kind = scanner.name();
      require(open.size() > 1 && open.back().kind == kind, "line {}: expected {}, not </{}>",
              scanner.line(),
              open.size() > 1 ? fmt::format("</{}>", open.back().kind) : "an element", kind);
      scanner.skip_space();
      scanner.expect(">");
      close();
    } else {
      scanner.expect("<");
      require(open.size() <= most_nested, "line {}: more than {} elements inside each other",
              scanner.line(), most_nested);
      const int line = scanner.line();
      open.push_back({.kind = scanner.name(), .line = line});
      read_attributes(scanner, open.back());
      if (scanner.takes("/>"))
        close();
      else
        scanner.expect(">");
    }
  }
  require(open.size() == 1, "line {}: <{}> is never closed", open.back().line, open.back().kind);
  require(open[0].children.size() == 1, "expected one element that holds all others, not {}",
          open[0].children.size());
  return std::move(open[0].children[0]);
}

}  // namespace ringside::collectives
