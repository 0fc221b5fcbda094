// Site: one daemon's directories and configuration, over any number of starts of the real kvkeepd.
// Everything is below one scratch directory, which is removed with the Site. The daemon dies with
// the Site, or with the test's process, however that ends.
//
// For the test's main thread; Status and path may be used on any thread while a daemon runs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/admin.h"
#include "tests/fakes/free_port.h"
#include "tests/fakes/sanitized.h"
#include "tests/fakes/scratch_dir.h"

namespace kvkeep::e2e {

using std::chrono::milliseconds;

using kvkeep::kSanitized;

struct DeviceSettings {
  std::string name = "nvme0";  // of its directory
  std::string capacity = "256MiB";
  bool required = false;
};

struct Settings {
  std::string g2 = "64MiB";
  std::string segment_bytes;       // empty: the default
  std::string arena;               // memfd, mount, auto; empty: follows arena_dir
  std::string arena_dir;           // a mount; empty: memfd
  std::string arena_readonly_dir;  // a read-only bind mount of it
  std::string dirty_budget = "100%";
  std::vector<DeviceSettings> devices = {{}};
  std::string leased_bytes = "50%";
  std::string reserved_bytes = "50%";
  std::string drain_timeout = "15s";
  std::string metrics;         // host:port; empty: off
  bool metrics_token = true;   // the daemon accepts kMetricsToken
  std::string metrics_socket;  // empty: none
  std::string tcp;
  std::string socket = "kvkeep.sock";
  bool local = false;  // the local path's listener
  std::string access;  // YAML lines below listen:
  std::string limits;  // and below limits:
  std::string g3;      // and below g3:
  std::string state = "state";
  std::string extra;      // YAML lines at the end
  bool dumpable = false;  // KVKEEPD_DUMPABLE: users other than root may read /proc/PID
  bool gives_back_soon = false;  // gives free memory back after 1 s, not after 10
};

// How a process ended.
struct Ending {
  int exit_status = -1;  // -1: by a signal
  int signal = 0;
  bool dumped_core = false;
  std::string err;  // all of its standard error
};

class Site {
 public:
  explicit Site(Settings settings = {});
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  Settings settings;  // may be changed between starts

  // Returns a path below the site's directory; an absolute path stays unchanged.
  std::string path(const std::string& name) const {
    return name[0] == '/' ? name : dir_.path() + "/" + name;
  }
  std::string socket() const { return path(settings.socket); }
  std::string admin_socket() const { return path("admin.sock"); }
  std::string local_socket() const { return path("local.sock"); }
  std::string endpoint() const { return "unix://" + socket(); }
  std::string config_file() const { return path("kvkeep.yaml"); }

  // Starts kvkeepd and waits until it serves. Otherwise fails the test, with the daemon's messages.
  // Returns the time from the start of the process to the first answer "serving".
  milliseconds Start();
  // As Start, for a daemon that may end by itself before it serves; returns none if it did.
  std::optional<milliseconds> TryStart();
  // Starts a kvkeepd that is expected to end by itself.
  Ending StartAndAwaitEnd();
  bool awaits_joins = true;  // a start waits until all devices have joined
  // Runs in the process of the next start, before it becomes kvkeepd. It may only make system
  // calls.
  std::function<void()> before_exec;

  // Writes the file that the next start reads, from `settings`; Start writes it, too.
  void WriteConfig() const;

  void Kill();    // SIGKILL, and waits
  Ending Stop();  // SIGTERM, and waits
  // Sends a signal. After SIGSTOP none of its threads runs when this returns.
  void Signal(int number);
  Ending AwaitEnd(milliseconds timeout = milliseconds(60'000));
  bool running() const { return pid_ > 0; }
  // Returns whether it has ended, and how. If so, it does not run any more.
  bool Ended(Ending* ending);
  // Returns whether that signal has ended it; any other end fails the test.
  bool EndedBySignal(int number);
  std::string Log() const;  // standard error of the last start so far
  bool AwaitLog(const std::string& text, milliseconds timeout = milliseconds(60'000)) const;

  v1::StatusResponse Status() const;
  // Returns the status of the tenant of this name; empty if there is none.
  v1::TenantStatus TenantStatus(const std::string& tenant) const;
  uint64_t Counter(const std::string& name) const;
  client::AdminClient* admin() const { return admin_.get(); }
  // Waits until nothing is dirty. Returns false if something still was after a long time.
  bool AwaitClean() const;
  // As above, and waits until a kill loses none of it: a device's first sync tells the next start
  // that its records are sure. For one device to which the daemon has written.
  bool AwaitKept() const;

 private:
  void Spawn();

  const ScratchDir dir_;
  int pid_ = 0;
  std::unique_ptr<client::AdminClient> admin_;
};

// Polls, as other processes send no events.
bool Eventually(const std::function<bool()>& condition,
                milliseconds timeout = milliseconds(60'000));

// Returns the bytes that a directory's files take on disk.
uint64_t DiskBytes(const std::string& dir);
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& text);
inline constexpr char kMetricsToken[] = "token-of-the-tests-for-metrics";
// Returns the whole reply of a server at 127.0.0.1, header included. Does not send an empty token.
std::string HttpGet(int port, const std::string& path, const std::string& token = kMetricsToken);

}  // namespace kvkeep::e2e
