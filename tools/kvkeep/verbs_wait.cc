// The verb wait: waits until the daemon serves, and devices have joined.
#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{100};

struct Waiting {
  std::vector<std::string> devices;  // paths
  bool all_devices = false;
  std::string patience = "60s";
};

bool IsWaitedFor(const Waiting& asked, const v1::DeviceStatus& device) {
  return asked.all_devices || std::find(asked.devices.begin(), asked.devices.end(),
                                        device.path()) != asked.devices.end();
}

// A device that is degraded or read-only has joined: its chunks are hits.
bool HasJoined(const v1::DeviceStatus& device) {
  return device.state() != "joining" && device.state() != "offline";
}

std::string LineOf(const v1::DeviceStatus& device) {
  std::string line = absl::StrCat(device.path(), ": ", device.state());
  if (!device.message().empty()) absl::StrAppend(&line, ", ", device.message());
  return absl::StrCat(line, "\n");
}

// Returns a path at which the daemon has no device; empty if there is none.
std::string UnknownPath(const Waiting& asked, const v1::StatusResponse& status) {
  for (const std::string& path : asked.devices) {
    const bool known = std::any_of(
        status.devices().begin(), status.devices().end(),
        [&path](const v1::DeviceStatus& device) { return device.path() == path; });
    if (!known) return path;
  }
  return "";
}

int Tell(const Cli& cli, const Waiting& asked, const v1::StatusResponse& status, bool joined) {
  Json devices = Json::array();
  std::string text = joined ? "serving\n" : "not yet:\n";
  for (const v1::DeviceStatus& device : status.devices()) {
    if (!IsWaitedFor(asked, device)) continue;
    devices.push_back({{"path", device.path()},
                       {"state", device.state()},
                       {"message", device.message()},
                       {"chunks", device.chunks()}});
    absl::StrAppend(&text, LineOf(device));
  }
  return cli.Print({{"done", joined}, {"devices", devices}}, text, joined ? kOk : kUnavailable);
}

int Wait(const Cli& cli, const Waiting& asked) {
  client::AdminClient admin = cli.Admin();
  const auto give_up = Clock::now() + *ParseDuration(asked.patience);
  std::string told;
  while (true) {
    const auto status = admin.Status();
    const bool late = Clock::now() >= give_up;
    if (!status.ok() && late) return cli.Fail(status.status());
    if (status.ok() && status->state() == v1::SERVING_STATE_SERVING) {
      if (const std::string path = UnknownPath(asked, *status); !path.empty()) {
        return cli.FailUsage(absl::StrCat("--device: the daemon has no device at ", path));
      }
      std::string now;
      bool joined = true;
      for (const v1::DeviceStatus& device : status->devices()) {
        if (!IsWaitedFor(asked, device)) continue;
        joined = joined && HasJoined(device);
        absl::StrAppend(&now, LineOf(device));
      }
      if (joined || late) return Tell(cli, asked, *status, joined);
      if (cli.terminal.progress && now != told) cli.terminal.err << now;
      told = now;
    } else if (late) {
      return cli.Fail(absl::UnavailableError("the daemon answers, but does not serve"));
    }
    std::this_thread::sleep_for(kLookEvery);  // for the daemon
  }
}

}  // namespace

void AddWaitVerb(CLI::App& app, Cli& cli) {
  auto asked = std::make_shared<Waiting>();
  CLI::App* wait = app.add_subcommand(
      "wait",
      "wait until the daemon serves and, with --device, devices have joined (admin socket)");
  wait->add_option("--device", asked->devices, "the device's path; may be given more than once");
  wait->add_flag("--devices", asked->all_devices, "all devices");
  wait->add_option("--for", asked->patience, "the longest wait: 500ms, 5s, 2m")
      ->check(BadDuration)
      ->capture_default_str();
  wait->callback([&cli, asked] { cli.run = [&cli, asked] { return Wait(cli, *asked); }; });
}

}  // namespace kvkeep::tools
