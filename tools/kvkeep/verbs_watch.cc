// The verbs that poll the daemon's status: top, stat.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>

#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/flow.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

struct TopAsked {
  std::string interval = "2s";
  uint64_t count = 0;  // rows; 0: until it is interrupted
};

constexpr uint64_t kRowsBetweenHeads = 20;

// Draws over the last screen, in one write and line by line, as a partial or empty screen flickers.
void DrawScreen(const std::string& text, std::ostream& out) {
  out << absl::StrCat("\033[H", absl::StrReplaceAll(text, {{"\n", "\033[K\n"}}), "\033[J");
}

// Polls the daemon at each `interval`, and prints what it did.
int Watch(const Cli& cli, const TopAsked& watching, bool screen) {
  client::AdminClient admin = cli.Admin();
  auto before = admin.Status();
  if (!before.ok()) return cli.Fail(before.status());
  const std::chrono::milliseconds interval = *ParseDuration(watching.interval);
  for (uint64_t row = 0; watching.count == 0 || row < watching.count; ++row) {
    std::this_thread::sleep_for(interval);  // as rates need time to pass
    auto now = admin.Status();
    if (!now.ok()) return cli.Fail(now.status());
    const Flow flow = FlowBetween(*before, *now);
    std::ostream& out = cli.terminal.out;
    if (cli.json) {
      out << FlowJson(flow, *now).dump() << "\n";  // an object a line
    } else if (screen) {
      DrawScreen(TopScreen(flow, *now, cli.terminal.size(), cli.terminal.color), out);
    } else {
      if (row % kRowsBetweenHeads == 0) out << FlowLine(FlowHead(*now));
      out << FlowLine(FlowRow(flow, *now));
    }
    out.flush();
    if (!out) return kOk;  // the reader has closed the pipe
    before = std::move(now);
  }
  return kOk;
}

}  // namespace

void AddWatchVerbs(CLI::App& app, Cli& cli) {
  auto watching = std::make_shared<TopAsked>();
  CLI::App* top = app.add_subcommand(
      "top",
      "show the daemon at work, redrawn at each interval: hit ratio, bytes, use of the tiers, "
      "devices, sessions; without a terminal rows like stat's (admin socket)");
  top->add_option("--interval", watching->interval, "between two updates")->check(BadDuration);
  top->add_option("--count", watching->count, "number of updates; 0: until interrupted");
  top->callback([&cli, watching] {
    cli.run = [&cli, watching] { return Watch(cli, *watching, cli.terminal.live && !cli.json); };
  });
  CLI::App* stat = app.add_subcommand("stat",
                                      "print a row of numbers at each interval, like vmstat; with "
                                      "--json an object a line (admin socket)");
  stat->add_option("INTERVAL", watching->interval, "1, 500ms, 5s")->check(BadDuration);
  stat->add_option("COUNT", watching->count, "number of rows; 0: until interrupted");
  stat->callback(
      [&cli, watching] { cli.run = [&cli, watching] { return Watch(cli, *watching, false); }; });
}

}  // namespace kvkeep::tools
