// kvkeep, the command line tool. Everything is in cli.h.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "client/payload_malloc.h"
#include "tools/kvkeep/cli.h"

namespace {

// https://no-color.org
bool MayColor() {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool forbidden = no_color != nullptr && *no_color != '\0';
  return !forbidden && terminal != nullptr && std::string(terminal) != "dumb";
}

kvkeep::tools::ScreenSize SizeOfOut() {
  kvkeep::tools::ScreenSize size;
  winsize asked{};
  const bool told = ioctl(STDOUT_FILENO, TIOCGWINSZ, &asked) == 0;
  if (told && asked.ws_col > 0) size.columns = asked.ws_col;
  if (told && asked.ws_row > 0) size.rows = asked.ws_row;
  return size;
}

}  // namespace

int main(int argc, char** argv) {
  kvkeep::client::TuneMallocForPayloads();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return kvkeep::tools::RunCli(arguments, {.out = std::cout,
                                           .err = std::cerr,
                                           .progress = isatty(STDERR_FILENO) == 1,
                                           .can_ask = isatty(STDIN_FILENO) == 1,
                                           .live = isatty(STDOUT_FILENO) == 1,
                                           .color = isatty(STDOUT_FILENO) == 1 && MayColor(),
                                           .size = SizeOfOut});
}
