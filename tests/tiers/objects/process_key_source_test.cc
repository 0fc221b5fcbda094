// Keys that a program prints.
#include "tiers/objects/process_key_source.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kProcessJson =
    R"({"Version": 1, "AccessKeyId": "ID", "SecretAccessKey": "SECRET", "SessionToken": "TOKEN",)"
    R"( "Expiration": "2040-01-02T05:04:05.5+02:00"})";

// A shell program in a directory of its own.
struct KeyProgram {
  explicit KeyProgram(const std::string& script) {
    std::ofstream(path()) << "#!/bin/sh\n" << script << "\n";
    REQUIRE(chmod(path().c_str(), 0700) == 0);
  }
  std::string path() const { return dir / "keys"; }
  bool Left(const char* file) const { return std::filesystem::exists(dir / file); }
  absl::StatusOr<S3Keys> Run(const std::string& arguments = "",
                             std::chrono::milliseconds longest = std::chrono::minutes(1)) const {
    auto source = ProcessKeySource::Make(absl::StrCat(path(), " ", arguments), longest);
    if (!source.ok()) return source.status();
    absl::StatusOr<S3Keys> keys = absl::InternalError("no answer");
    (*source)->Fetch([&keys](absl::StatusOr<S3Keys> told) { keys = std::move(told); });
    return keys;
  }
  ScratchDir dir;
};

// Returns whether the process runs, which one that was not waited for yet does not.
bool IsRunning(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/stat")), stat);
  const size_t end = stat.rfind(") ");
  return end != std::string::npos && stat[end + 2] != 'Z' && stat[end + 2] != 'X';
}

std::string Prints(absl::string_view text) {
  return absl::StrCat("cat <<'END'\n", text, "\nEND");
}

}  // namespace

TEST_CASE("a program's keys are taken, and its standard error is dropped") {
  const KeyProgram program(absl::StrCat("echo SECRET >&2\nread line && exit 7\n",
                                        Prints(kProcessJson)));
  const absl::StatusOr<S3Keys> keys = program.Run();
  INFO(keys.status());
  REQUIRE(keys.ok());
  CHECK(*keys == S3Keys{"ID", SecretText("SECRET"), "TOKEN", UnixSeconds(2'209'086'245)});
}

TEST_CASE("a program is run with the words of its command, by no shell") {
  const KeyProgram program(
      "printf '%s|' \"$@\" > \"${0%/*}/words\"\n"
      "ls -l /proc/$$/fd > \"${0%/*}/descriptors\"\n" + Prints(kProcessJson));
  // Without close-on-exec.
  const UniqueFd leaked(open((program.dir / "leaked").c_str(), O_CREAT | O_RDWR, 0600));
  CHECK(program.Run("--for \"a b\" $HOME ~ ;x --n=\"1 2\"  \"\"").ok());
  std::string words;
  std::getline(std::ifstream(program.dir / "words"), words);
  CHECK(words == "--for|a b|$HOME|~|;x|--n=1 2||");
  std::stringstream descriptors;
  descriptors << std::ifstream(program.dir / "descriptors").rdbuf();
  CHECK(absl::StrContains(descriptors.str(), "/dev/null"));
  CHECK_FALSE(absl::StrContains(descriptors.str(), "leaked"));
}

TEST_CASE("a command that is no program's path with words is refused") {
  for (const auto& [command, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "absolute path"},
           {"  ", "absolute path"},
           {"keys", "absolute path"},
           {"\"\" /bin/keys", "absolute path"},
           {"/bin/keys \"a", "without its end"},
           {"/bin/keys\na", "control character"},
           {"/" + std::string(4096, 'a'), "4097"}}) {
    const absl::Status status = ProcessKeySource::Make(command).status();
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), why));
  }
  CHECK(SplitKeyCommand("\"/opt/my keys\"\t-x").value() ==
        std::vector<std::string>{"/opt/my keys", "-x"});
}

TEST_CASE("what a program prints, or does, in place of keys is told of without what it printed") {
  const auto says = [](const std::string& script) {
    const absl::Status status = KeyProgram(script).Run().status();
    CHECK_FALSE(absl::StrContains(status.ToString(), "SECRET"));
    return std::string(status.message());
  };
  CHECK(says("echo SECRET; exit 3") == "the credential process ended with status 3");
  CHECK(says("echo SECRET; kill -9 $$") == "the credential process was ended by signal 9");
  CHECK(says("echo SECRET") ==
        "the credential process: the keys that came are no JSON object");
  CHECK(absl::StrContains(says(Prints(R"({"AccessKeyId": "ID", "SecretAccessKey": "SECRET"})")),
                          "Version that is 1"));
  CHECK(absl::StrContains(says(Prints(R"({"Version": 2, "SecretAccessKey": "SECRET"})")),
                          "Version that is 1"));
  CHECK(absl::StrContains(says(Prints(R"({"Version": 1, "AccessKeyId": ["SECRET"]})")),
                          "AccessKeyId that is no text"));
  CHECK(absl::StrContains(
      says(Prints(R"({"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b",
                      "Expiration": "SECRET"})")),
      "Expiration that is no time"));
  for (const char* time : {"infinite-future", "1960-01-01T00:00:00Z", "2040-01-02"}) {
    CHECK(absl::StrContains(
        says(Prints(absl::StrCat(R"({"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b",)",
                                 R"("Expiration": ")", time, "\"}"))),
        "Expiration that is no time"));
  }
  CHECK(says("head -c 70000 /dev/zero; sleep 1000") ==
        "the credential process printed more than 65536 bytes");
}

TEST_CASE("keys of a program that tells no end are used until a server refuses them") {
  const KeyProgram program(
      Prints(R"({"Version": 1, "AccessKeyId": "ID", "SecretAccessKey": "SECRET"})"));
  const absl::StatusOr<S3Keys> keys = program.Run();
  REQUIRE(keys.ok());
  CHECK_FALSE(keys->expires.has_value());
  CHECK(keys->session_token.empty());
}

TEST_CASE("a program that others could change is not run, nor one that is not there") {
  const KeyProgram program("touch \"${0%/*}/ran\"\n" + Prints(kProcessJson));
  REQUIRE(chmod(program.path().c_str(), 0722) == 0);
  CHECK(absl::StrContains(program.Run().status().message(), "others may not write"));
  REQUIRE(chmod(program.path().c_str(), 0600) == 0);
  if (geteuid() != 0 || !program.Run().ok()) {
    CHECK(absl::StrContains(program.Run().status().message(), "cannot be run"));
  }
  std::filesystem::remove(program.path());
  CHECK(absl::IsNotFound(program.Run().status()));
  CHECK_FALSE(program.Left("ran"));
}

TEST_CASE("a program that runs too long is killed, with what it started") {
  // A child that it started holds its output open; or it closes its output itself, and goes on.
  for (const char* script : {"sleep 1000 & echo $! > \"${0%/*}/pid\"; exit 0",
                             "echo $$ > \"${0%/*}/pid\"; exec >&-; sleep 1000"}) {
    const KeyProgram program(script);
    const absl::Status status = program.Run("", std::chrono::milliseconds(300)).status();
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK(absl::StrContains(status.message(), "300 ms"));
    pid_t pid = 0;
    if (std::ifstream(program.dir / "pid") >> pid) {
      while (IsRunning(pid)) std::this_thread::yield();
    }
  }
}

TEST_CASE("a program is not waited for once the source is stopped") {
  const KeyProgram program("touch \"${0%/*}/ran\"; exec sleep 1000");
  auto source = ProcessKeySource::Make(program.path());
  REQUIRE(source.ok());
  std::promise<absl::Status> told;
  {
    BackgroundKeySource background(*std::move(source));
    background.Fetch([&told](absl::StatusOr<S3Keys> keys) { told.set_value(keys.status()); });
    while (!program.Left("ran")) std::this_thread::yield();
  }
  CHECK(absl::IsCancelled(told.get_future().get()));
}

TEST_CASE("a program is not run for a user that was taken on for a while, who could go back") {
  if (geteuid() != 0) {
    WARN("skipped: needs root");
    return;
  }
  const KeyProgram program("touch \"${0%/*}/ran\"\n" + Prints(kProcessJson));
  REQUIRE(seteuid(65534) == 0);
  const absl::StatusOr<S3Keys> keys = program.Run();
  REQUIRE(seteuid(0) == 0);
  CHECK(absl::IsInvalidArgument(keys.status()));
  CHECK_FALSE(program.Left("ran"));
  CHECK(program.Run().ok());
}

}  // namespace kvkeep
