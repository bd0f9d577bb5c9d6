// The page that plays schedules: one self-contained HTML file, without network or libraries.
//
// The HTML, CSS and JavaScript files in this folder are its source; CMake embeds them.
// The data is player_data.hpp's.
#pragma once

#include <string>

#include "cli/pictures/json_file.hpp"

namespace ringside::cli {

std::string player_page(const Json& data);

// The text between the tags of the page's data, as JSON: what a test or another program reads.
Json data_of_player_page(const std::string& page);

}  // namespace ringside::cli
