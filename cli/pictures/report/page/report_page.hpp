// The page of a report, made of the files in python/ringside/lab/page/, which Python's reports
// share. CMake embeds them.
#pragma once

#include <string>

#include "base/json.hpp"

namespace ringside::cli {

// `data` is what the script draws, `text` is seen where no script runs. Both texts are escaped.
std::string report_page(const std::string& title, const std::string& text, const Json& data);

}  // namespace ringside::cli
