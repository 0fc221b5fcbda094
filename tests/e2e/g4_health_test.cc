// G4's health in status, log and metrics: within seconds of the start, though no chunk of it was
// asked for.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/e2e/g4_place.h"
#include "tests/fakes/free_port.h"
#include "tests/fakes/scripted_server.h"

namespace kvkeep::e2e {
namespace {

constexpr milliseconds kHealthPatience{60'000};  // with a busy machine

// The files of a fleet and of a bucket.
struct G4Files {
  G4Files() {
    Write("key", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    Write("credentials", "AKIDEXAMPLE\nsecret\n");
    MakeG4Directory(dir / "objects", "tests");
  }
  void Write(const std::string& name, const std::string& text) const {
    WriteForOwner(dir / name.c_str(), text);
  }
  std::string Config(const std::string& url) const {
    return absl::StrCat("g4: {url: \"", url, "\", write_bytes_per_second: 1GiB, admission: all",
                        url[0] == 'f' ? "" : ", credentials_file: " + (dir / "credentials"),
                        "}\nfleet: {name: tests, key_file: ", dir / "key", "}\n");
  }
  ScratchDir dir;
};

size_t Occurrences(const std::string& text, const std::string& of) {
  size_t count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

bool AwaitState(const Site& site, v1::G4State state) {
  return Eventually([&] { return site.Status().g4().state() == state; }, kHealthPatience);
}

// A server that refuses every request, in S3's words.
std::string RefusalOf(int status, const std::string& code) {
  const std::string body = absl::StrCat("<?xml version=\"1.0\"?><Error><Code>", code,
                                        "</Code><Message>so it is</Message></Error>");
  return absl::StrCat("HTTP/1.1 ", status, " No\r\nContent-Type: application/xml\r\n",
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

}  // namespace

TEST_CASE("a wrong bucket or wrong keys are told of, once, with what to do, and nobody waits") {
  struct Wrong {
    int status;
    std::string code, to_do;
  };
  for (const Wrong& wrong : {Wrong{404, "NoSuchBucket", "create the bucket"},
                             Wrong{403, "InvalidAccessKeyId", "g4.credentials_file"}}) {
    CAPTURE(wrong.code);
    const G4Files files;
    ScriptedServer server([&wrong](ServedConnection& connection, int) {
      while (!connection.ReadHead().empty()) connection.Send(RefusalOf(wrong.status, wrong.code));
    });
    const int port = FreePort();
    Site site({.metrics = absl::StrCat("127.0.0.1:", port)});
    site.settings.extra = files.Config(server.url("/models"));
    site.Start();
    REQUIRE(AwaitState(site, v1::G4_STATE_MISCONFIGURED));
    const v1::G4Status g4 = site.Status().g4();
    CHECK(g4.where() == server.url("/models"));
    CHECK(g4.error_code() == wrong.code);
    CHECK(g4.error_message() == "so it is");
    CHECK_THAT(g4.what_to_do(), Catch::Contains(wrong.to_do));
    CHECK(g4.retry_in_ms() > 1'000);
    CHECK(site.AwaitLog("G4 refuses requests"));
    const std::string metrics = HttpGet(port, "/metrics");
    CHECK_THAT(metrics, Catch::Contains("\nkvkeep_g4_state{state=\"misconfigured\"} 1\n"));
    CHECK_THAT(metrics, Catch::Contains("\nkvkeep_g4_state{state=\"well\"} 0\n"));
    // The node serves as it would without it.
    Engine engine(site);
    const std::vector<TestChunk> chunks = Chunks(1, 4, 100'000);
    CHECK(engine.PutAll(chunks));
    CHECK(engine.Hits(chunks) == chunks.size());
    CHECK(site.Stop().exit_status == 0);
    const std::string log = site.Log();
    CHECK(Occurrences(log, "G4 refuses requests") == 1);
    CHECK_THAT(log, Catch::Contains("code=" + wrong.code));
    CHECK_THAT(log, Catch::Contains(wrong.to_do));
  }
}

TEST_CASE("a bucket that nobody answers for is away, and is told of once") {
  const G4Files files;
  Site site;
  site.settings.extra = files.Config(absl::StrCat("http://127.0.0.1:", FreePort(), "/models"));
  site.Start();
  CHECK(AwaitState(site, v1::G4_STATE_AWAY));
  CHECK(site.AwaitLog("G4 is away"));
  CHECK(site.Stop().exit_status == 0);
  CHECK(Occurrences(site.Log(), "G4 is away") == 1);
}

TEST_CASE("a directory that is absent, or whose mount is, costs misses until it is there") {
  const G4Files files;
  const std::string path = files.dir / "mount/objects";
  Site site;
  site.settings.extra = files.Config("file://" + path);
  site.Start();
  CHECK(AwaitState(site, v1::G4_STATE_AWAY));
  Engine engine(site);
  const std::vector<TestChunk> chunks = Chunks(1, 4, 100'000);
  CHECK(engine.PutAll(chunks));
  CHECK(engine.Hits(chunks) == chunks.size());

  std::filesystem::create_directories(path);  // where nothing is mounted
  CHECK(
      Eventually([&] { return site.Status().g4().error_code() == "NotMarked"; }, kHealthPatience));
  CHECK(site.Status().g4().state() == v1::G4_STATE_AWAY);
  CHECK_THAT(site.Status().g4().what_to_do(), Catch::Contains("kvkeep g4 init"));
  CHECK(std::filesystem::is_empty(path));

  MakeG4Directory(path, "tests");
  CHECK(AwaitState(site, v1::G4_STATE_WELL));
  CHECK(site.Stop().exit_status == 0);
}

TEST_CASE("of a G4 that serves, status and metrics tell what was written there") {
  const G4Files files;
  const int port = FreePort();
  Site site({.metrics = absl::StrCat("127.0.0.1:", port)});
  site.settings.extra = files.Config("file://" + (files.dir / "objects"));
  site.Start();
  CHECK(site.AwaitLog("G4 serves"));
  CHECK(site.Status().g4().state() == v1::G4_STATE_WELL);
  CHECK(site.Status().g4().takes_puts());
  CHECK(site.Counter("g4_checks") == 1);
  Engine engine(site);
  const std::vector<TestChunk> chunks = Chunks(1, 4, 100'000);
  REQUIRE(engine.PutAll(chunks));
  CHECK(Eventually([&] { return site.Status().g4().written_chunks() == chunks.size(); }));
  CHECK(site.Status().g4().written_bytes() == 400'000);
  CHECK_THAT(HttpGet(port, "/metrics"), Catch::Contains("\nkvkeep_g4_written_chunks_total 4\n"));
  CHECK(site.Stop().exit_status == 0);
  CHECK(Occurrences(site.Log(), "msg=\"G4 ") == 1);
}

TEST_CASE("without G4 neither status nor metrics have anything of it") {
  const int port = FreePort();
  Site site({.metrics = absl::StrCat("127.0.0.1:", port)});
  site.Start();
  CHECK_FALSE(site.Status().has_g4());
  CHECK_FALSE(absl::StrContains(HttpGet(port, "/metrics"), "_g4_"));
}

}  // namespace kvkeep::e2e
