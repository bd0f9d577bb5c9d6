// Checks that a page or a drawing is well-formed like XML: tags are closed in order, attributes are
// quoted and unique; and reads what a page carries.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.hpp"

namespace ringside::tests {

// The first error, or "". Ignores the content of <style> and <script>.
inline std::string what_is_malformed(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    if (text.compare(at, 9, "<!DOCTYPE") == 0) {
      at = text.find('>', at);
      continue;
    }
    std::size_t end = at + 1;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (text[end] == '<') return fmt::format("a < within a tag: {}", text.substr(at, 80));
    }
    if (end >= text.size()) return fmt::format("a tag without end: {}", text.substr(at, 80));
    std::string tag = text.substr(at + 1, end - at - 1);
    at = end;
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1))
        return fmt::format("</{}> closes <{}>", tag.substr(1), open.empty() ? "" : open.back());
      open.pop_back();
      continue;
    }
    const bool closed = tag.back() == '/';
    if (closed) tag.pop_back();
    const std::string name = tag.substr(0, tag.find(' '));
    std::set<std::string> names;
    for (std::size_t space = tag.find(' '); space != std::string::npos;) {
      const std::size_t begin = tag.find_first_not_of(" \n", space);
      if (begin == std::string::npos) break;
      const std::size_t equals = tag.find('=', begin);
      if (equals == std::string::npos || tag[equals + 1] != '"')
        return fmt::format("an attribute without quotes: <{}>", tag);
      if (!names.insert(tag.substr(begin, equals - begin)).second)
        return fmt::format("an attribute twice: <{}>", tag);
      space = tag.find('"', equals + 2) + 1;
      if (space >= tag.size()) break;
    }
    if (closed) continue;
    open.push_back(name);
    if (name == "style" || name == "script") at = text.find("</" + name + ">", at);
  }
  return open.empty() ? "" : fmt::format("<{}> is not closed", open.back());
}

// What the page of a report carries.
inline Json data_of_report(const std::string& page) {
  const std::string begins = "<script type=\"application/json\" id=\"report\">";
  const std::size_t begin = page.find(begins) + begins.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

}  // namespace ringside::tests
