#include "cli/pictures/python_svg.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/launcher/programs.hpp"
#include "cli/pictures/text_file.hpp"

namespace ringside::cli {

void write_svg_file(const std::string& path, const Json& picture, const char* what) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  require(file != nullptr, "cannot make a temporary file: {}", std::strerror(errno));
  fmt::print(file.get(), "{}", picture.dump());
  require(std::fflush(file.get()) == 0, "cannot write a temporary file: {}", std::strerror(errno));
  // Without python3 the shell says nothing.
  const std::string svg =
      output_of(fmt::format("command -v python3 >/dev/null && {} draw </proc/self/fd/{}",
                            shell_start_of("python"), ::fileno(file.get())));
  require(!svg.empty(),
          "cannot draw {}: Python draws it, and python3 wrote nothing; is it on PATH (apt-get "
          "install python3)?",
          what);
  write_text_file(path, svg, what);
}

}  // namespace ringside::cli
