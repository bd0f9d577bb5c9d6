// The progress line on a terminal: a line that is rewritten, and fits.
#include "cli/commands/train/progress.hpp"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "base/system/file_descriptor.hpp"

using namespace ringside;

namespace {

// What a terminal of so many columns gets for step 412 of 1000.
std::string shown_in(unsigned short columns) {
  const FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY));
  REQUIRE(terminal.get() >= 0);
  REQUIRE(grantpt(terminal.get()) == 0);
  REQUIRE(unlockpt(terminal.get()) == 0);
  std::FILE* out = std::fopen(ptsname(terminal.get()), "w");
  REQUIRE(out);
  const winsize size{24, columns, 0, 0};
  REQUIRE(ioctl(fileno(out), TIOCSWINSZ, &size) == 0);

  training::StepReport report;
  report.step = 412;
  report.loss = 1.9312;
  report.bits_per_byte = 2.786;
  report.step_seconds = 0.05;
  report.tokens_per_second = 23400;
  report.communication_seconds = 0.0055;
  char text[512];
  ssize_t bytes = 0;
  {
    cli::Progress progress(411, 1000, out);
    progress.step(report);
    bytes = read(terminal.get(), text, sizeof(text));
  }
  REQUIRE(bytes > 0);
  std::fclose(out);
  return std::string(text, static_cast<std::size_t>(bytes));
}

}  // namespace

TEST_CASE("the progress line keeps the loss and the time left at every width") {
  CHECK(shown_in(120) ==
        "\rstep  412/1000  loss 1.9312  2.786 bits/byte  23.4k tokens/s  11 % communication  0:29 "
        "left\x1b[K");
  CHECK(shown_in(80) ==
        "\rstep  412/1000  loss 1.9312  23.4k tokens/s  11 % communication  0:29 left\x1b[K");
  CHECK(shown_in(70) == "\rstep  412/1000  loss 1.9312  23.4k tokens/s  0:29 left\x1b[K");
}
