#include "tests/e2e/daemon.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/fakes/joining.h"

namespace kvkeep::e2e {
namespace {

// The SHA-256 of kMetricsToken.
constexpr char kMetricsTokenHash[] =
    "4abd538b7a8394fe2a807b5063d4107d33bb9012ead89ce90bc7ea10f93c4264";

using Clock = std::chrono::steady_clock;

constexpr milliseconds kStartPatience{120'000};
constexpr int kSlowness = kSanitized ? 4 : 1;  // for anything waited for, beside other tests
constexpr milliseconds kPause{2};

bool SomebodyListens(const std::string& socket_path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  const int connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  close(fd);
  return connected == 0;
}

// The rest runs between fork and exec, so it makes system calls only.
[[noreturn]] void BecomeDaemon(const char* config, int err, pid_t test, char** environment,
                               const std::function<void()>& prepare) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != test) _exit(99);  // the test ended before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(err, STDERR_FILENO);
  if (prepare) prepare();
  char name[] = "kvkeepd", option[] = "--config";
  char* const arguments[] = {name, option, const_cast<char*>(config), nullptr};
  execve(KVKEEPD_PATH, arguments, environment);
  _exit(98);
}

}  // namespace

bool Eventually(const std::function<bool()>& condition, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout * kSlowness;
  while (Clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(kPause);  // for another process
  }
  return condition();
}

uint64_t DiskBytes(const std::string& dir) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    struct stat info;  // files come and go meanwhile
    if (lstat(it->path().c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  REQUIRE(file.good());
}

std::string HttpGet(int port, const std::string& path, const std::string& token) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  const std::string authorization =
      token.empty() ? "" : absl::StrCat("Authorization: Bearer ", token, "\r\n");
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n", authorization, "\r\n");
  REQUIRE(write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size()));
  std::string reply;
  std::array<char, 65536> buffer;
  for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) reply.append(buffer.data(), n);
  close(fd);
  return reply;
}

Site::Site(Settings site_settings) : settings(std::move(site_settings)) {}

Site::~Site() { Kill(); }

void Site::WriteConfig() const {
  std::string yaml = absl::StrCat(
      "listen:\n  unix: ", socket(), "\n  admin: ", admin_socket(), "\n  local: \"",
      settings.local ? local_socket() : "", "\"\n  tcp: \"", settings.tcp, "\"\n", settings.access,
      "g2:\n  capacity: ", settings.g2, "\n  dirty_budget: ", settings.dirty_budget, "\n  arena: ",
      settings.arena.empty() ? (settings.arena_dir.empty() ? "memfd" : "mount") : settings.arena);
  if (!settings.arena_dir.empty()) {
    absl::StrAppend(&yaml, "\n  arena_dir: ", settings.arena_dir,
                    "\n  arena_readonly_dir: ", settings.arena_readonly_dir);
  }
  if (!settings.segment_bytes.empty()) {
    absl::StrAppend(&yaml, "\n  segment_bytes: ", settings.segment_bytes);
  }
  absl::StrAppend(&yaml, "\ng3:\n", settings.g3,
                  "  paths:", settings.devices.empty() ? " []\n" : "\n");
  for (const DeviceSettings& device : settings.devices) {
    absl::StrAppend(&yaml, "    - dir: ", path(device.name), "\n      capacity: ", device.capacity,
                    "\n      required: ", device.required ? "true" : "false", "\n");
  }
  absl::StrAppend(&yaml, "limits:\n", settings.limits, "  leased_bytes: ", settings.leased_bytes,
                  "\n  reserved_bytes: ", settings.reserved_bytes, "\nmetrics:\n  listen: \"",
                  settings.metrics, "\"\n");
  if (!settings.metrics_socket.empty()) {
    absl::StrAppend(&yaml, "  unix: ", path(settings.metrics_socket), "\n");
  }
  if (!settings.metrics.empty() && settings.metrics_token) {
    absl::StrAppend(&yaml, "  token_file: ", path("metrics-tokens"), "\n");
    WriteFile(path("metrics-tokens"), absl::StrCat(kMetricsTokenHash, "\n"));
    REQUIRE(chmod(path("metrics-tokens").c_str(), 0600) == 0);
  }
  absl::StrAppend(&yaml, "state:\n  dir: ", path(settings.state),
                  "\ndrain:\n  timeout: ", settings.drain_timeout, "\n", settings.extra);
  WriteFile(config_file(), yaml);
}

void Site::Spawn() {
  REQUIRE(pid_ == 0);
  WriteConfig();
  const std::string config = config_file(), log = path("stderr");
  const int err = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  REQUIRE(err >= 0);
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  char dumpable[] = "KVKEEPD_DUMPABLE=1";
  if (settings.dumpable) environment.push_back(dumpable);
  char decay[] = "MALLOC_CONF=dirty_decay_ms:1000,muzzy_decay_ms:1000";  // process_malloc.cc
  if (settings.gives_back_soon) environment.push_back(decay);
  environment.push_back(nullptr);
  const std::function<void()> prepare = std::exchange(before_exec, nullptr);
  const pid_t test = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    BecomeDaemon(config.c_str(), err, test, environment.data(), prepare);
  }
  close(err);
  REQUIRE(pid_ > 0);
}

milliseconds Site::Start() {
  const std::optional<milliseconds> ready = TryStart();
  if (!ready.has_value()) FAIL("kvkeepd ended: " << Log());
  return *ready;
}

std::optional<milliseconds> Site::TryStart() {
  const auto begin = Clock::now();
  Spawn();
  Ending ending;
  const auto give_up = begin + kStartPatience;
  while (!SomebodyListens(socket())) {
    if (Ended(&ending)) {
      if (ending.signal == 0) {
        FAIL("kvkeepd ended with " << ending.exit_status << ": " << ending.err);
      }
      return std::nullopt;
    }
    if (Clock::now() > give_up) FAIL("kvkeepd does not listen: " << Log());
    std::this_thread::sleep_for(kPause);  // for another process
  }
  admin_ = std::make_unique<client::AdminClient>("unix://" + admin_socket(), milliseconds(20'000));
  absl::StatusOr<v1::StatusResponse> status = admin_->Status();
  while (awaits_joins && status.ok() && AnyDeviceJoins(*status)) {
    if (Clock::now() > give_up) FAIL("a device does not join: " << Log());
    std::this_thread::sleep_for(kPause);  // for another process
    status = admin_->Status();
  }
  // Its sockets close some time before it can be waited for: all its memory goes in between.
  if (!status.ok() && Eventually([&] { return EndedBySignal(SIGKILL); })) return std::nullopt;
  if (!status.ok()) FAIL(status.status().ToString() << Log());
  REQUIRE(status->state() == v1::SERVING_STATE_SERVING);
  REQUIRE(status->pid() == static_cast<uint64_t>(pid_));
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

Ending Site::StartAndAwaitEnd() {
  Spawn();
  return AwaitEnd();
}

bool Site::Ended(Ending* ending) {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = 0;
  admin_.reset();
  if (WIFEXITED(status)) {
    ending->exit_status = WEXITSTATUS(status);
  } else {
    ending->signal = WTERMSIG(status);
    ending->dumped_core = WCOREDUMP(status);
  }
  ending->err = Log();
  return true;
}

bool Site::EndedBySignal(int number) {
  Ending ending;
  if (!Ended(&ending)) return false;
  if (ending.signal != number) {
    FAIL("kvkeepd ended with " << ending.exit_status << ", signal " << ending.signal << ": "
                               << ending.err);
  }
  return true;
}

Ending Site::AwaitEnd(milliseconds timeout) {
  REQUIRE(pid_ > 0);
  Ending ending;
  if (!Eventually([&] { return Ended(&ending); }, timeout)) FAIL("kvkeepd does not end: " << Log());
  return ending;
}

void Site::Kill() {
  if (pid_ <= 0) return;
  admin_.reset();
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

Ending Site::Stop() {
  Signal(SIGTERM);
  return AwaitEnd();
}

void Site::Signal(int number) {
  REQUIRE(pid_ > 0);
  REQUIRE(kill(pid_, number) == 0);
  if (number != SIGSTOP) return;
  // A thread that runs on another CPU may finish an answer after kill() has returned.
  int status = 0;
  REQUIRE(waitpid(pid_, &status, WUNTRACED) == pid_);
  REQUIRE(WIFSTOPPED(status));
}

std::string Site::Log() const { return ReadFile(path("stderr")); }

bool Site::AwaitLog(const std::string& text, milliseconds timeout) const {
  return Eventually([&] { return absl::StrContains(Log(), text); }, timeout);
}

v1::StatusResponse Site::Status() const {
  const absl::StatusOr<v1::StatusResponse> status = admin_->Status();
  // Not a Catch2 assertion, as many threads call this.
  if (!status.ok()) throw std::runtime_error("Status: " + status.status().ToString());
  return *status;
}

v1::TenantStatus Site::TenantStatus(const std::string& tenant) const {
  const v1::StatusResponse status = Status();
  for (const auto& one : status.tenants()) {
    if (one.name() == tenant) return one;
  }
  return {};
}

uint64_t Site::Counter(const std::string& name) const {
  const v1::StatusResponse status = Status();
  const auto found = status.counters().find(name);
  if (found == status.counters().end()) throw std::runtime_error("no counter " + name);
  return found->second;
}

bool Site::AwaitClean() const {
  return Eventually([this] { return Status().g2().dirty_bytes() == 0; }, milliseconds(60'000));
}

bool Site::AwaitKept() const {
  return AwaitClean() &&
         Eventually([this] { return Counter("syncs") > 0; }, milliseconds(60'000));
}

}  // namespace kvkeep::e2e
