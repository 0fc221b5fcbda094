// The verb that prints chunks as they enter and leave the tiers: watch.
#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "client/watch.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

using client::WatchBegin;
using client::WatchEvent;
using client::WatchNews;

struct Watching {
  client::NamespaceSpec ns = {.tokens_per_chunk = 1};
  std::string bytes_per_part = "0", hash_seed;
  uint64_t count = 0;     // events; 0: until it is interrupted
  bool snapshot = false;  // only until the snapshot's end
};

std::string BadHex(const std::string& text) {
  const bool good = text.size() % 2 == 0 && std::all_of(text.begin(), text.end(), [](char digit) {
                      return absl::ascii_isxdigit(static_cast<unsigned char>(digit));
                    });
  return good ? "" : "not an even number of hexadecimal digits";
}

// Prints the events, line by line.
class Teller {
 public:
  Teller(const Cli& cli, const Watching& watching) : cli_(cli), watching_(watching) {}

  // Returns false once everything requested is printed.
  bool Tell(const WatchNews& news) {
    if (news.begins != WatchBegin::kNo) Begin(news);
    for (const WatchEvent& event : news.events) {
      TellEvent(event);
      if (++told_ == watching_.count) return false;
    }
    if (!news.snapshot_end) return true;
    if (cli_.json) {
      Line({{"event", "snapshot_end"}});
    } else {
      out() << "-- that was all there is; changes from now on\n";
    }
    return !watching_.snapshot;
  }

  void TellAway(const absl::Status& why) {
    const std::string reason(why.message());
    cli_.terminal.err << "kvkeep: " << reason << "; looking for it again\n";
    if (cli_.json) Line({{"event", "away"}, {"reason", reason}});
  }

 private:
  std::ostream& out() const { return cli_.terminal.out; }
  void Line(const Json& object) const { out() << object.dump() << "\n"; }

  void Begin(const WatchNews& news) const {
    const std::string why(client::WatchBeginName(news.begins));
    const std::string epoch = absl::StrFormat("%016x", news.epoch);
    if (cli_.json) {
      Line({{"event", "begins"}, {"why", why}, {"epoch", epoch}});
    } else {
      out() << "-- all that is there (" << why << ", incarnation " << epoch << ")\n";
    }
  }

  void TellEvent(const WatchEvent& event) const {
    const char* what = event.stored ? "stored" : "removed";
    const bool g2 = event.tier == Tier::kG2;
    if (cli_.json) {
      Line({{"event", what},
            {"tier", g2 ? "g2" : "g3"},
            {"key", event.key.ToHex()},
            {"part", event.part}});
    } else {
      out() << absl::StrFormat("%-7s %s %s part %d\n", what, g2 ? "G2" : "G3", event.key.ToHex(),
                               event.part);
    }
  }

  const Cli& cli_;
  const Watching& watching_;
  uint64_t told_ = 0;
};

int WatchChunks(const Cli& cli, const Watching& watching) {
  constexpr client::Deadline kQuiet{60'000};  // without news for this long it goes on silently
  client::WatchOptions options{.client = {.endpoint = cli.endpoint,
                                          .client_name = "kvkeep watch",
                                          .default_deadline = cli.timeout(),
                                          .path = cli.path(),
                                          .security = cli.security},
                               .ns = watching.ns};
  options.ns.model = cli.namespace_name;
  options.ns.tenant = cli.tenant;
  options.ns.bytes_per_part = *ParseSize(watching.bytes_per_part);
  options.ns.hash_seed = absl::HexStringToBytes(watching.hash_seed);
  auto watch = client::Watch::Open(std::move(options));
  if (!watch.ok()) return cli.Fail(watch.status());
  Teller teller(cli, watching);
  bool reached = false, away = false;
  while (cli.terminal.out) {
    const auto news = (*watch)->Next(reached ? kQuiet : cli.timeout());
    if (news.ok()) {
      reached = true;
      away = false;
      const bool more = teller.Tell(*news);
      cli.terminal.out.flush();
      if (!more) return kOk;
    } else if (!reached ||
               !(absl::IsUnavailable(news.status()) || absl::IsDeadlineExceeded(news.status()))) {
      return cli.Fail(news.status());  // a person wants to know now
    } else if (absl::IsUnavailable(news.status()) && !std::exchange(away, true)) {
      teller.TellAway(news.status());
      cli.terminal.out.flush();
    }
  }
  return kOk;  // the reader has closed the pipe
}

}  // namespace

void AddEventsVerb(CLI::App& app, Cli& cli) {
  auto watching = std::make_shared<Watching>();  // kept by the callback
  CLI::App* watch =
      app.add_subcommand("watch",
                         "print which chunks of a namespace are in which tier, then each one that "
                         "comes or goes; a namespace is everything that its engine declared. "
                         "Reconnects to a daemon that went away. With --json an object a line");
  watch->add_option("--namespace", cli.namespace_name, "model name of the namespace");
  AddTenant(watch, cli);
  client::NamespaceSpec& ns = watching->ns;
  watch->add_option("--dtype", ns.dtype, "of the namespace's declaration");
  watch->add_option("--layout", ns.layout, "of the declaration");
  watch->add_option("--tokens-per-chunk", ns.tokens_per_chunk, "of the declaration");
  watch
      ->add_option("--bytes-per-part", watching->bytes_per_part,
                   "of the declaration; 0: sizes vary")
      ->check(BadSize);
  watch->add_option("--parts", ns.parts, "of the declaration");
  watch->add_option("--hash-algorithm", ns.hash_algorithm, "of the declaration");
  watch->add_option("--hash-seed", watching->hash_seed, "of the declaration, in hexadecimal")
      ->check(BadHex);
  watch->add_option("--count", watching->count, "number of events; 0: until interrupted");
  watch->add_flag("--snapshot", watching->snapshot, "end after the snapshot");
  watch->callback(
      [&cli, watching] { cli.run = [&cli, watching] { return WatchChunks(cli, *watching); }; });
}

}  // namespace kvkeep::tools
