// The style and the script of a report: report.css and report.js in python/ringside/lab/page/,
// which Python's reports share. CMake embeds them.
#pragma once

namespace ringside::cli {

const char* report_style();
const char* report_script();

}  // namespace ringside::cli
