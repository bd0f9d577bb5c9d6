// Opens a page in a browser, for tests of the pages' scripts.
#pragma once

#include <string>

#include <unistd.h>

#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"

namespace ringside::testing {

// The path of a browser; "" if there is none: then the test prints `no_browser` and ends.
inline std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    const std::string path = std::string("/usr/bin/") + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

inline constexpr const char* no_browser = "SKIPPED: needs a browser (apt-get install chromium)";

// The page after its scripts have run, with `script` added at its end: what browsers call the DOM,
// as text. Errors of scripts are lines with CONSOLE in err. The pages stand still where they would
// move.
inline Outcome open_in_browser(std::string page, const std::string& script) {
  const TemporaryDirectory directory;
  page.insert(page.rfind("</body>"), "<script>" + script + "</script>");
  const std::string file = directory.write("page.html", page);
  return run_program(
      {browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
       "--no-first-run", "--force-prefers-reduced-motion", "--enable-logging=stderr",
       "--window-size=1400,1000", "--virtual-time-budget=20000",
       "--user-data-dir=" + (directory.path() / "browser").string(), "--dump-dom",
       "file://" + file},
      {{"HOME", directory.path().string()}}, Seconds(90));
}

}  // namespace ringside::testing
