// The doctor's findings about G4: its files, its bucket or directory, its rate of writes.
#include "tools/kvkeep/doctor_g4.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/free_port.h"
#include "tests/fakes/served_bucket.h"
#include "tests/tools/cli_run.h"
#include "tiers/objects/shared_directory.h"

namespace kvkeep::tools {
namespace {

namespace fs = std::filesystem;

// A node of a fleet, as files below a directory, and its bucket.
class G4Ward {
 public:
  G4Ward() {
    Write("key", std::string(32, '1') + std::string(32, '0'), fs::perms{0600});
    Write("keys", "ID\nsecret\n", fs::perms{0600});
    machine.root = dir.path("m");
    config.fleet = {.name = "tests", .key_file = dir.path("key")};
    config.g4.url = server_.url("/bucket");
    config.g4.credentials_file = dir.path("keys");
    config.g4.write_bytes_per_second = 50'000'000;
  }
  void Write(const std::string& name, const std::string& text, fs::perms mode) const {
    const fs::path file = dir.path(name);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    fs::permissions(file, mode);
  }
  // Returns "state: found / to do" of that subject.
  std::string Of(const std::string& subject) const {
    for (const Finding& finding : ExamineG4(config, machine)) {
      if (!absl::StartsWith(finding.subject, subject)) continue;
      CHECK((finding.state == Finding::State::kOk) == finding.to_do.empty());
      return absl::StrCat(StateWord(finding.state), ": ", finding.found, " / ", finding.to_do);
    }
    return "none";
  }

  const TemporaryDirectory dir;
  Machine machine;
  Config config;
  FakeS3 bucket{RealClock(),
                std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}})};

 private:
  ScriptedServer server_{
      [this](ServedConnection& connection, int) { ServeBucket(bucket, connection); }};
};

}  // namespace

TEST_CASE("of a G4 where all is well the doctor finds nothing to do, and leaves nothing there") {
  const G4Ward ward;
  for (const char* subject : {"fleet key", "G4 credentials", "writes of G4", "G4 at", "G4's"}) {
    INFO(subject);
    CHECK(absl::StartsWith(ward.Of(subject), "ok: "));
  }
  CHECK(ward.Of("G4 at") == "ok: answers 404 NoSuchKey / ");
  CHECK(ward.bucket.objects().empty());
  CHECK(ExamineG4({}, ward.machine).empty());
}

TEST_CASE("the doctor says what is wrong with a bucket, its keys and its clock") {
  G4Ward ward;
  ward.bucket.clock_ahead = std::chrono::seconds(120);
  CHECK(absl::StartsWith(ward.Of("G4's clock"), "warn: +1"));
  CHECK(absl::StrContains(ward.Of("G4's clock"), "set this machine's clock or the server's"));
  ward.bucket.clock_ahead = std::chrono::seconds(3'600);
  CHECK(absl::StartsWith(ward.Of("G4 at"), "fail: answers 403 RequestTimeTooSkewed / set this"));
  ward.bucket.clock_ahead = {};
  ward.Write("keys", "ID\nwrong\n", fs::perms{0600});
  CHECK(absl::StartsWith(ward.Of("G4 at"), "fail: answers 403 SignatureDoesNotMatch / mend the "));
  CHECK_FALSE(absl::StrContains(ward.Of("G4 at"), "wrong"));
  ward.config.g4.url = absl::StrCat("http://127.0.0.1:", FreePort(), "/bucket");
  CHECK(absl::StartsWith(ward.Of("G4 at"), "fail: libcurl: "));
  CHECK(absl::StrContains(ward.Of("G4 at"), "nobody answers there: look at its name, DNS"));
  CHECK(ward.Of("G4's clock") == "none");
}

TEST_CASE("the doctor says of G4's files what is in the way, and does not ask without keys") {
  G4Ward ward;
  ward.Write("keys", "ID\nsecret\n", fs::perms{0644});
  CHECK(absl::StrContains(ward.Of("G4 credentials"), "has mode 0644"));
  CHECK(absl::StartsWith(ward.Of("G4 credentials"), "fail: "));
  ward.Write("keys", "ID\n", fs::perms{0600});
  CHECK(absl::StrContains(ward.Of("G4 credentials"), "has 1 lines"));
  ward.config.g4.credentials_file = ward.dir.path("none");
  CHECK(absl::StrContains(ward.Of("G4 credentials"), "No such file"));
  CHECK(ward.Of("G4 at") == "none");
  CHECK(ward.bucket.served() == 0);
  ward.Write("key", "short", fs::perms{0600});
  CHECK(absl::StartsWith(ward.Of("fleet key"), "fail: "));
  CHECK(absl::StrContains(ward.Of("fleet key"), "must hold 32 random bytes"));
  CHECK(absl::StrContains(ward.Of("fleet key"), "/ the daemon will not start"));
}

TEST_CASE("the doctor looks at every key of G4, earlier ones and those of tenants") {
  G4Ward ward;
  CHECK(ward.Of("earlier fleet key") == "none");
  ward.config.fleet.previous_key_files = {ward.dir.path("key")};
  ward.config.tenants = {{.name = "t", .g4_key_file = ward.dir.path("none")}, {.name = "u"}};
  CHECK(absl::StartsWith(ward.Of("earlier fleet key"), "ok: "));
  CHECK(absl::StartsWith(ward.Of("G4 key of tenant t"), "fail: "));
  CHECK(ward.Of("G4 key of tenant u") == "none");
}

TEST_CASE("root looks at G4's files as the service's user") {
  if (geteuid() != 0) {
    WARN("skipped: not root");
    return;
  }
  G4Ward ward;
  CHECK(absl::StartsWith(ward.Of("fleet key"), "ok: "));
  ward.Write("m/etc/systemd/system/kvkeepd.service", "[Service]\nUser=nobody\n", fs::perms{0644});
  CHECK(absl::StartsWith(ward.Of("fleet key"), "fail: "));
  CHECK(absl::StrContains(ward.Of("fleet key"), "Permission denied"));
  CHECK(geteuid() == 0);
  CHECK(getegid() == 0);
}

TEST_CASE("a G4 that is a directory wants its mark, one that can be written, and no keys") {
  G4Ward ward;
  const std::string objects = ward.dir.path("objects");
  ward.config.g4.url = "file://" + objects;
  ward.config.fleet.name = "tests";
  CHECK(absl::StartsWith(ward.Of("G4 at"), "fail: opening it: No such file or directory / mount "));
  fs::create_directory(objects);
  CHECK(absl::StartsWith(ward.Of("G4 at"), "fail: it has no file .kvkeep: nothing is mounted"));
  CHECK(fs::is_empty(objects));
  REQUIRE(MarkSharedDirectory(objects, "tests").ok());
  CHECK(ward.Of("G4 at") == "ok: a directory that can be written and read / ");
  CHECK(ward.Of("G4 credentials") == "none");
  ward.config.fleet.name = "others";
  CHECK(absl::StrContains(ward.Of("G4 at"), "does not say 'others' / mend g4.url or fleet.name"));
}

TEST_CASE("the doctor writes beside what another user wrote, and reads it, as the service's user") {
  if (geteuid() != 0) {
    WARN("skipped: not root");
    return;
  }
  G4Ward ward;
  fs::permissions(ward.dir.path(""), fs::perms{0755});
  const std::string objects = ward.dir.path("objects");
  ward.config.g4.url = "file://" + objects;
  ward.config.fleet.name = "tests";
  fs::create_directories(objects + "/1/0ab");
  fs::permissions(objects, fs::perms{0777});
  REQUIRE(MarkSharedDirectory(objects, "tests").ok());
  ward.Write("m/etc/systemd/system/kvkeepd.service", "[Service]\nUser=nobody\n", fs::perms{0644});
  CHECK(absl::StrContains(ward.Of("G4 at"), "was made by uid 0 with mode 0755, and this is uid"));
  for (const char* folder : {"/1", "/1/0ab"}) fs::permissions(objects + folder, fs::perms{0777});
  CHECK(absl::StartsWith(ward.Of("G4 at"), "warn: others may write there"));
  ward.Write("objects/1/0ab/n", "image", fs::perms{0600});
  CHECK(absl::StrContains(ward.Of("G4 at"), "1/0ab/n was made by uid 0 with mode 0600"));
}

TEST_CASE("the doctor holds G4's rate of writes to the link of the default route") {
  G4Ward ward;
  CHECK(ward.Of("writes of G4") == "ok: 47.7 MiB a second at most / ");
  ward.Write("m/proc/net/route", "Iface\tDestination\tGateway\neth1\t0000A8C0\t0\n"
                                 "eth0\t00000000\t0100A8C0\n", fs::perms{0644});
  ward.Write("m/sys/class/net/eth0/speed", "1000\n", fs::perms{0644});
  CHECK(ward.Of("writes of G4") ==
        "ok: 47.7 MiB a second at most, the link eth0 has 119.2 MiB / ");
  ward.config.g4.write_bytes_per_second = 100'000'000;
  CHECK(absl::StartsWith(ward.Of("writes of G4"), "warn: 95.4 MiB a second at most, the link"));
  CHECK(absl::StrContains(ward.Of("writes of G4"), "g4.write_bytes_per_second to 62500000"));
  ward.Write("m/sys/class/net/eth0/speed", "-1\n", fs::perms{0644});  // a virtual one
  CHECK(ward.Of("writes of G4") == "ok: 95.4 MiB a second at most / ");
  ward.config.g4.write_bytes_per_second = 0;
  CHECK(absl::StartsWith(ward.Of("writes of G4"), "warn: none: g4.write_bytes_per_second is 0"));
}

TEST_CASE("the verb doctor looks at the G4 of the config that it is given") {
  const G4Ward ward;
  std::ofstream(ward.dir.path("kv.yaml"))
      << "g4: {url: \"" << ward.config.g4.url << "\", credentials_file: "
      << ward.config.g4.credentials_file << "}\nfleet: {name: tests, key_file: "
      << ward.config.fleet.key_file << "}\n";
  const CliResult result = Run({"doctor", "--config", ward.dir.path("kv.yaml")});
  INFO(result.out << result.err);
  CHECK(absl::StrContains(
      result.out, absl::StrCat("ok    G4 at ", ward.config.g4.url, ": answers 404 NoSuchKey\n")));
  CHECK(ward.bucket.served() == 1);
}

}  // namespace kvkeep::tools
