// A start that cannot work ends with one line (what, where, what to do) and the right exit status.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/e2e/engine.h"
#include "tests/e2e/read_only.h"
#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"

namespace kvkeep::e2e {
namespace {

constexpr int kConfigError = 78;
constexpr int kStartFailure = 1;

// Returns the output without lines of devices that joined before the failure.
std::string WithoutJoins(const std::string& err) {
  std::vector<absl::string_view> lines = absl::StrSplit(err, '\n');
  std::erase_if(lines, [](absl::string_view line) {
    return absl::StrContains(line, "level=info msg=\"a device has joined\"");
  });
  return absl::StrJoin(lines, "\n");
}

void CheckFails(Site& site, int exit_status, const std::vector<std::string>& said) {
  Ending end = site.StartAndAwaitEnd();
  end.err = WithoutJoins(end.err);
  INFO("exit status " << end.exit_status << ", signal " << end.signal << ", stderr: " << end.err);
  CHECK(end.exit_status == exit_status);
  CHECK(std::count(end.err.begin(), end.err.end(), '\n') == 1);
  CHECK(absl::StartsWith(end.err, "kvkeepd: "));
  for (const std::string& part : said) {
    INFO("looking for: " << part);
    CHECK(absl::StrContains(end.err, part));
  }
}

// A start waits until such a device is open or has failed to, however long that takes.
Settings WithRequiredDevice() { return {.devices = {{.required = true}}}; }

// A site whose daemon has run once and ended well.
void RunOnce(Site& site) {
  site.Start();
  REQUIRE(site.Stop().exit_status == 0);
}

TEST_CASE("G3's directory is a file") {
  Site site(WithRequiredDevice());
  WriteFile(site.path("nvme0"), "not a directory");
  CheckFails(site, kConfigError, {site.path("nvme0"), "directory", "name "});
  CHECK(ReadFile(site.path("nvme0")) == "not a directory");
}

TEST_CASE("G3's directory holds files of somebody else") {
  Site site(WithRequiredDevice());
  std::filesystem::create_directory(site.path("nvme0"));
  WriteFile(site.path("nvme0/thesis.tex"), "years of work");
  CheckFails(site, kConfigError, {site.path("nvme0"), "thesis.tex", "name an empty directory"});
  CHECK(ReadFile(site.path("nvme0/thesis.tex")) == "years of work");
}

TEST_CASE("the state was lost, so G3's directory is of another store: G2 is served without it") {
  Site site;
  RunOnce(site);
  site.settings.state = "other-state";
  site.Start();
  const v1::DeviceStatus away = site.Status().devices(0);
  CHECK(away.state() == "offline");
  for (const char* part : {"belongs to store", "bring that store's state directory back",
                           "empty the directory"}) {
    CHECK_THAT(away.message(), Catch::Matchers::Contains(part));
  }
  CHECK(Engine(site).Put({1, 1000}).status == client::PutStatus::kStored);
  REQUIRE(site.Stop().exit_status == 0);

  site.settings.devices[0].required = true;
  CheckFails(site, kStartFailure, {site.path("nvme0"), "belongs to store", "is required"});

  site.settings.devices[0].required = false;
  site.settings.state = "state";
  site.Start();
  CHECK(site.Status().devices(0).state() == "ok");
}

TEST_CASE("G3's directory is in use by another daemon: it joins when that one has stopped") {
  Site first, second;
  first.Start();
  // The second one finds the first one's directory, with the first one's state.
  second.settings.devices[0].name = first.path("nvme0");
  std::filesystem::create_directory(second.path("state"));
  std::filesystem::copy_file(first.path("state/identity"), second.path("state/identity"));
  second.Start();
  const v1::DeviceStatus away = second.Status().devices(0);
  CHECK(away.state() == "offline");
  CHECK_THAT(away.message(), Catch::Matchers::Contains(first.path("nvme0")));
  CHECK_THAT(away.message(), Catch::Matchers::Contains("locked by another process"));
  CHECK(first.Status().state() == v1::SERVING_STATE_SERVING);
  first.Stop();
  CHECK(Eventually([&second] { return second.Status().devices(0).state() == "ok"; }));
}

TEST_CASE("the state directory is in use by another daemon") {
  Site first, second;
  first.Start();
  second.settings.state = first.path("state");
  CheckFails(second, kStartFailure, {first.path("state"), "in use by another daemon", "stop it"});
}

TEST_CASE("the socket is in use by a live daemon, which goes on") {
  Site first, second;
  first.Start();
  second.settings.socket = first.socket();
  CheckFails(second, kStartFailure, {first.socket() + ": in use by another daemon", "stop it"});
  Engine engine(first);
  CHECK(engine.Put({1, 1000}).status == client::PutStatus::kStored);
}

TEST_CASE("a socket of a dead daemon is no obstacle") {
  Site site;
  site.Start();
  site.Kill();
  REQUIRE(std::filesystem::exists(site.socket()));
  site.Start();
  CHECK(Engine(site).Put({1, 1000}).status == client::PutStatus::kStored);
}

TEST_CASE("something that is no socket is where the socket should be") {
  Site site;
  WriteFile(site.socket(), "precious");
  CheckFails(site, kConfigError, {site.socket(), "not a socket", "remove it"});
  CHECK(ReadFile(site.socket()) == "precious");
}

TEST_CASE("a key of the config is not known") {
  Site site;
  site.settings.extra = "log:\n  levle: info\n";
  CheckFails(site, kConfigError, {site.config_file() + ":", ":3: ", "levle", "level"});
}

TEST_CASE("the config is not there") {
  Site site;
  site.before_exec = [path = site.config_file()] { unlink(path.c_str()); };
  CheckFails(site, kConfigError, {site.config_file()});
}

TEST_CASE("the state directory cannot be made") {
  Site site;
  WriteFile(site.path("file"), "");
  site.settings.state = "file/state";
  CheckFails(site, kStartFailure, {site.path("file/state"), "Not a directory", "name another"});
}

TEST_CASE("the state directory cannot be written to") {
  Site site;
  RunOnce(site);
  if (!ReadOnlyMountsWork(site.path("state"))) {
    WARN("skipped: this user may not mount");
    return;
  }
  site.before_exec = [path = site.path("state")] { MountReadOnly(path.c_str()); };
  CheckFails(site, kStartFailure, {site.path("state"), "Read-only file system", "writable"});
}

// Nothing is written into a directory that others can write to.
TEST_CASE("others may write to the state directory, or to G3's") {
  Site site(WithRequiredDevice());
  for (const char* name : {"state", "nvme0"}) {
    RunOnce(site);
    REQUIRE(chmod(site.path(name).c_str(), 0777) == 0);
    CheckFails(site, kConfigError,
               {site.path(name) + ": others may write to it (mode 0777)", "chmod 700"});
    REQUIRE(chmod(site.path(name).c_str(), 0700) == 0);
  }
}

TEST_CASE("the state directory, or G3's, is another user's") {
  if (geteuid() != 0) {
    WARN("skipped: needs root");
    return;
  }
  Site site(WithRequiredDevice());
  for (const char* name : {"state", "nvme0"}) {
    RunOnce(site);
    REQUIRE(chown(site.path(name).c_str(), 64123, 64123) == 0);
    CheckFails(site, kConfigError,
               {site.path(name) + ": belongs to user 64123, this is user 0", "chown it"});
    REQUIRE(chown(site.path(name).c_str(), 0, 0) == 0);
  }
}

TEST_CASE("what others may look into is closed to them, and what is made is closed") {
  Site site;
  const mode_t before = umask(0);
  std::filesystem::create_directory(site.path("state"));
  std::filesystem::create_directory(site.path("nvme0"));
  for (const char* name : {"state", "nvme0"}) REQUIRE(chmod(site.path(name).c_str(), 0755) == 0);
  RunOnce(site);
  umask(before);
  size_t files = 0;
  for (const char* name : {"state", "nvme0"}) {
    struct stat info;
    REQUIRE(stat(site.path(name).c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0700);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(site.path(name))) {
      INFO(entry.path());
      REQUIRE(lstat(entry.path().c_str(), &info) == 0);
      CHECK((info.st_mode & 077) == 0);
      ++files;
    }
  }
  CHECK(files > 8);
}

TEST_CASE("a symbolic link stands where a file of the state or of G3 should be") {
  Site site(WithRequiredDevice());
  for (const char* name : {"state/lock", "state/devices", "state/identity", "nvme0/superblock"}) {
    RunOnce(site);
    std::filesystem::rename(site.path(name), site.path("aside"));
    std::filesystem::create_symlink(site.path("aside"), site.path(name));
    const std::string before = ReadFile(site.path("aside"));
    const Ending end = site.StartAndAwaitEnd();
    INFO(name << ": exit status " << end.exit_status << ", stderr: " << end.err);
    CHECK(end.exit_status != 0);
    CHECK(absl::StrContains(end.err, site.path(name)));
    CHECK(absl::StrContains(end.err, "symbolic link"));
    CHECK(ReadFile(site.path("aside")) == before);
    std::filesystem::rename(site.path("aside"), site.path(name));
  }
}

TEST_CASE("the port of the metrics is in use") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int port = FreePort();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(fd, 1) == 0);
  Site site({.metrics = absl::StrCat("127.0.0.1:", port)});
  CheckFails(site, kStartFailure, {"metrics.listen", site.settings.metrics, "choose another"});
  site.settings.metrics = "";
  site.settings.tcp = absl::StrCat("127.0.0.1:", port);
  CheckFails(site, kStartFailure, {site.settings.tcp, "in use", "choose another"});
  close(fd);
}

TEST_CASE("the TCP address is not loopback") {
  Site site({.tcp = "0.0.0.0:7070"});
  CheckFails(site, kConfigError, {"listen.tcp", "0.0.0.0:7070", "not a loopback", "127.0.0.1"});
}

TEST_CASE("the superblock is of a newer version") {
  Site site(WithRequiredDevice());
  RunOnce(site);
  std::string block = ReadFile(site.path("nvme0/superblock"));
  REQUIRE(block.size() == 4096);
  block[8] = 2;  // the version; superblock.h
  StoreAt<uint64_t>(reinterpret_cast<std::byte*>(block.data()) + 4088,
                    Xxh3(AsBytes(block).first(4088)));
  WriteFile(site.path("nvme0/superblock"), block);
  CheckFails(site, kConfigError,
             {site.path("nvme0/superblock"), "version 2", "start the kvkeep that"});
}

}  // namespace
}  // namespace kvkeep::e2e
