// Elements and attributes of an XML file, which is all that MSCCL's files have.
//
// Text between elements is refused, and so are <!DOCTYPE> and <![CDATA[; comments and <? ?> are
// skipped. Entities such as &lt; are not replaced. Reading uses no recursion, so no file exhausts
// the stack.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ringside::collectives {

struct XmlElement {
  std::string kind;  // "gpu" of <gpu id="0">
  int line = 1;      // where it begins
  std::vector<std::pair<std::string, std::string>> attributes = {};
  std::vector<XmlElement> children = {};

  // The value of an attribute; nullptr if there is none.
  const std::string* find(std::string_view attribute) const;
};

// The one element that holds all others. Throws Error with the line, what was expected and what was
// seen.
XmlElement parse_xml(std::string_view text);

}  // namespace ringside::collectives
