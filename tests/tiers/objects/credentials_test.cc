#include "tiers/objects/credentials.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <map>
#include <thread>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/objects/key_choice.h"
#include "tiers/objects/process_key_source.h"
#include "tiers/objects/service_key_source.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

// Answers when the test says so.
class HeldKeySource final : public S3KeySource {
 public:
  explicit HeldKeySource(std::vector<Done>* asked) : asked_(*asked) {}
  void Fetch(Done done) override { asked_.push_back(std::move(done)); }

 private:
  std::vector<Done>& asked_;
};

struct HeldCredentials {
  ManualClock clock;
  SeededRandom random{1};
  std::vector<S3KeySource::Done> asked;
  S3Credentials credentials{std::make_unique<HeldKeySource>(&asked), &clock, &random};

  int64_t Wall() const { return static_cast<int64_t>(clock.UnixMicros() / 1'000'000); }
  void Answer(const std::string& id, std::optional<seconds> life = std::nullopt) {
    S3Keys keys{id, SecretText("secret"), "", std::nullopt};
    if (life.has_value()) keys.expires = UnixSeconds(Wall() + life->count());
    REQUIRE(asked.size() == 1);
    S3KeySource::Done done = std::move(asked.back());
    asked.clear();
    std::move(done)(std::move(keys));
  }
  void Fail() {
    REQUIRE(asked.size() == 1);
    S3KeySource::Done done = std::move(asked.back());
    asked.clear();
    std::move(done)(absl::UnavailableError("nobody there"));
  }
  // Waits until it asks. Returns how long that took.
  seconds TickUntilAsked() {
    for (seconds passed(0); passed < seconds(100'000); passed += seconds(1)) {
      credentials.Tick();
      if (!asked.empty()) return passed;
      clock.Advance(seconds(1));
    }
    return seconds(-1);
  }
};

using KeyVariables = std::map<std::string, std::string>;

absl::StatusOr<std::unique_ptr<S3KeySource>> Choose(const S3KeyOptions& options,
                                                    const KeyVariables& variables) {
  const auto environment = [&variables](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  return MakeS3KeySource(options, "us-east-1", {}, environment, RealClock());
}

void WriteSecret(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

}  // namespace

TEST_CASE("keys are renewed at about 80 % of their life, and the old ones serve meanwhile") {
  HeldCredentials held;
  CHECK(held.credentials.Current() == nullptr);
  CHECK(held.TickUntilAsked() == seconds(0));
  held.Answer("one", seconds(3600));
  const SharedS3Keys one = held.credentials.Current();
  REQUIRE(one != nullptr);
  CHECK(held.credentials.expires() == one->expires);
  const seconds waited = held.TickUntilAsked();
  CHECK(waited > seconds(2590));
  CHECK(waited <= seconds(2881));
  held.credentials.Tick();
  CHECK(held.asked.size() == 1);  // one at a time
  held.clock.Advance(seconds(10'000));  // the service hangs, and the keys have ended
  CHECK(held.credentials.Current() == one);
  held.Answer("two", seconds(3600));
  CHECK(held.credentials.Current()->access_key_id == "two");
}

TEST_CASE("keys without an end are not renewed by time, those with a short one not all the time") {
  HeldCredentials held;
  held.TickUntilAsked();
  held.Answer("one");
  CHECK_FALSE(held.credentials.expires().has_value());
  CHECK(held.TickUntilAsked() == seconds(-1));
  HeldCredentials brief;
  brief.TickUntilAsked();
  brief.Answer("one", seconds(-100));
  CHECK(brief.TickUntilAsked() >= seconds(7));
}

TEST_CASE("a renewal that fails is tried again with growing pauses, and the old keys stay") {
  HeldCredentials held;
  held.TickUntilAsked();
  held.Answer("one", seconds(1000));
  held.TickUntilAsked();
  std::vector<seconds> pauses;
  for (int i = 0; i < 9; ++i) {
    held.Fail();
    CHECK(absl::IsUnavailable(held.credentials.status()));
    CHECK(held.credentials.Current()->access_key_id == "one");
    pauses.push_back(held.TickUntilAsked());
  }
  CHECK(pauses.front() <= seconds(1));
  CHECK(pauses[3] >= seconds(4));
  CHECK(pauses[3] <= seconds(8));
  CHECK(pauses.back() >= seconds(30));
  CHECK(pauses.back() <= seconds(60));
  held.Answer("two", seconds(1000));
  CHECK(held.credentials.status().ok());
  held.TickUntilAsked();
  held.Fail();
  CHECK(held.TickUntilAsked() <= seconds(1));  // from the first pause again
}

TEST_CASE("keys that a server calls expired are renewed at once, and once") {
  HeldCredentials held;
  held.TickUntilAsked();
  held.Answer("one");
  const SharedS3Keys one = held.credentials.Current();
  CHECK(held.credentials.Expired(one));
  CHECK(held.credentials.Expired(one));  // on its way
  CHECK(held.asked.size() == 1);
  held.Answer("one");
  CHECK(held.credentials.Current() == one);  // the same keys: they are the fault
  CHECK_FALSE(held.credentials.Expired(one));
  CHECK(held.asked.empty());

  HeldCredentials other;
  other.TickUntilAsked();
  other.Answer("one");
  const SharedS3Keys old = other.credentials.Current();
  CHECK(other.credentials.Expired(old));
  other.Answer("two");
  CHECK(other.credentials.Expired(old));  // a request signed with the old ones takes the new ones
  CHECK(other.asked.empty());
  CHECK(other.credentials.Expired(other.credentials.Current()));
  CHECK(other.asked.size() == 1);
}

TEST_CASE("a server may call keys expired while they are being renewed") {
  HeldCredentials held;
  held.TickUntilAsked();
  held.Answer("one", seconds(100));
  held.TickUntilAsked();
  CHECK(held.credentials.Expired(held.credentials.Current()));
  held.Answer("two", seconds(100));
  CHECK(held.credentials.Current()->access_key_id == "two");
}

TEST_CASE("an answer that comes when nobody waits any more is dropped") {
  std::vector<S3KeySource::Done> asked;
  ManualClock clock;
  SeededRandom random(1);
  {
    S3Credentials credentials(std::make_unique<HeldKeySource>(&asked), &clock, &random);
    credentials.Tick();
  }
  REQUIRE(asked.size() == 1);
  std::move(asked[0])(S3Keys{"one", SecretText("secret"), "", std::nullopt});
}

TEST_CASE("a file of keys is read again when it has changed, and a bad one changes nothing") {
  ScratchDir dir;
  const std::string path = dir / "keys";
  WriteSecret(path, "id-one\nsecret-one\n");
  ManualClock clock;
  SeededRandom random(1);
  S3Credentials credentials(Choose({.file = path}, {{"AWS_ACCESS_KEY_ID", "other"}}).value(),
                            &clock, &random);
  credentials.Tick();
  REQUIRE(credentials.Current() != nullptr);
  CHECK(credentials.Current()->access_key_id == "id-one");
  CHECK(credentials.Current()->secret_access_key.reveal() == "secret-one");
  credentials.Tick();
  WriteSecret(path, "id-two\nsecret-two\ntoken-two\n");
  credentials.Tick();  // seen, but it may still be written
  credentials.Tick();
  CHECK(credentials.Current()->session_token == "token-two");
  WriteSecret(path, "only one line, and longer than before, which says nothing\n");
  credentials.Tick();
  credentials.Tick();
  CHECK(credentials.Current()->access_key_id == "id-two");
  CHECK(absl::StrContains(credentials.status().message(), path));
  CHECK_FALSE(absl::StrContains(credentials.status().message(), "says nothing"));
  clock.Advance(seconds(2));
  WriteSecret(path, "id-three\nsecret\n", 0644);
  credentials.Tick();
  credentials.Tick();
  CHECK(absl::StrContains(credentials.status().message(), "0644"));
  CHECK(credentials.Current()->access_key_id == "id-two");
}

TEST_CASE("text that is no keys is refused without a word of what it holds") {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "1 lines"},
      {"SECRET", "1 lines"},
      {"a\nSECRET\nc\nd", "4 lines"},
      {"\nSECRET\nc", "id is empty"},
      {"a\n\nSECRET", "secret access key is empty"},
      {"SEC/RET\nb", "'/'"},
      {"SEC RET\nb", "blank"},
      {"a\nSEC\tRET", "blank"},
      {"a\nb\nSECRET\xc3\xa4", "ASCII"},
      {std::string(129, 'S') + "\nb", "129"},
      {"a\n" + std::string(257, 'S'), "257"},
      {"a\nb\n" + std::string(4097, 'S'), "4097"},
  };
  for (const auto& [text, why] : bad) {
    const absl::Status status = ParseS3Keys(text).status();
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), why));
    CHECK_FALSE(absl::StrContains(status.message(), "SEC"));
  }
  CHECK(ParseS3Keys("a\r\nb\r\n").value() ==
        S3Keys{"a", SecretText("b"), "", std::nullopt});
}

TEST_CASE("without a file the environment has the keys, and without both it is said") {
  ManualClock clock;
  SeededRandom random(1);
  S3Credentials credentials(
      Choose({}, {{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "secret"}}).value(),
      &clock, &random);
  credentials.Tick();
  CHECK(credentials.Current()->secret_access_key.reveal() == "secret");

  S3Credentials incomplete(Choose({}, {{"AWS_ACCESS_KEY_ID", "id"}}).value(), &clock, &random);
  incomplete.Tick();
  CHECK(incomplete.Current() == nullptr);
  CHECK(absl::StrContains(incomplete.status().message(), "AWS_SECRET_ACCESS_KEY"));

  const absl::Status status = Choose({}, {}).status();
  CHECK(absl::IsNotFound(status));
  CHECK(absl::StrContains(status.message(), "g4.credentials_file"));
}

TEST_CASE("of the sources that are there the first one is taken, unless one is named") {
  const auto says = [](const S3KeyOptions& options, const KeyVariables& variables) {
    const auto source = Choose(options, variables);
    if (!source.ok()) return std::string(source.status().message());
    if (dynamic_cast<FileKeySource*>(source->get()) != nullptr) return std::string("file");
    if (dynamic_cast<ProcessKeySource*>(source->get()) != nullptr) return std::string("process");
    if (dynamic_cast<WebIdentityKeySource*>(source->get()) != nullptr) return std::string("web");
    if (dynamic_cast<ContainerKeySource*>(source->get()) != nullptr) return std::string("agent");
    if (dynamic_cast<InstanceKeySource*>(source->get()) != nullptr) return std::string("instance");
    return std::string("environment");
  };
  KeyVariables all = {{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/a"}};
  CHECK(says({}, all) == "agent");
  all["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  all["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  CHECK(says({}, all) == "web");
  all["AWS_ACCESS_KEY_ID"] = "";  // equivalent to not set
  CHECK(says({}, all) == "web");
  all["AWS_ACCESS_KEY_ID"] = "id";
  CHECK(says({}, all) == "environment");
  CHECK(says({.process = "/bin/keys"}, all) == "process");
  CHECK(says({.file = "/keys", .process = "/bin/keys"}, all) == "file");
  CHECK(says({.credentials = "web_identity", .file = "/keys"}, all) == "web");
  CHECK(says({.credentials = "container"}, all) == "agent");
  CHECK(says({.credentials = "instance"}, all) == "instance");
  CHECK(says({.credentials = "environment"}, {}) == "environment");
  CHECK(absl::StrContains(says({.credentials = "file"}, all), "g4.credentials_file"));
  CHECK(absl::StrContains(says({.credentials = "process"}, all), "absolute path"));
  CHECK(absl::StrContains(says({.credentials = "web_identity"}, {}),
                          "AWS_WEB_IDENTITY_TOKEN_FILE"));
  CHECK(absl::StrContains(says({.credentials = "container"}, {}), "FULL_URI"));
  CHECK(absl::StrContains(says({.credentials = "wallet"}, {}), "'wallet'"));
}

TEST_CASE("secret text is moved, and leaves nothing behind") {
  SecretText one("short"), two(std::string(100, 's'));
  SecretText three = std::move(one);
  CHECK(one.empty());
  CHECK(three.reveal() == "short");
  three = std::move(two);
  CHECK(two.empty());
  CHECK(three.reveal().size() == 100);
  SecretText& same = three;
  three = std::move(same);
  CHECK(three.reveal().size() == 100);
}

namespace {

// Hangs, as a file on an absent mount, until the test releases it.
struct HangingFile {
  std::atomic<int> fetches{0}, looks{0};
  std::promise<void> go;
  std::shared_future<void> gone{go.get_future().share()};
};
class HangingKeySource final : public S3KeySource {
 public:
  explicit HangingKeySource(HangingFile* file) : file_(*file) {}
  void Fetch(Done done) override {
    const int fetch = ++file_.fetches;
    if (fetch > 1) file_.gone.wait();
    std::move(done)(S3Keys{absl::StrCat("ID", fetch), SecretText("s"), "", {}});
  }
  bool Changed() override {
    return ++file_.looks == 1;
  }

 private:
  HangingFile& file_;
};

}  // namespace

TEST_CASE("keys whose file hangs stop neither who ticks nor who was told that they expired") {
  HangingFile file;
  ManualClock clock;
  SeededRandom random(1);
  S3Credentials credentials(
      std::make_unique<BackgroundKeySource>(std::make_unique<HangingKeySource>(&file)), &clock,
      &random);
  credentials.Tick();
  CHECK(credentials.AwaitFirst(std::chrono::minutes(1)).ok());  // a start knows them
  const SharedS3Keys first = credentials.Current();
  REQUIRE(first != nullptr);
  CHECK(first->access_key_id == "ID1");
  while (file.fetches < 2) {  // until the check has reported that they changed
    credentials.Tick();
    std::this_thread::yield();
  }
  const int looks = file.looks;
  for (int i = 0; i < 10; ++i) credentials.Tick();
  CHECK(credentials.Expired(first));
  CHECK(credentials.Current() == first);
  CHECK(file.looks <= looks + 1);
  file.go.set_value();
  while (credentials.Current() == first) std::this_thread::yield();
  CHECK(credentials.Current()->access_key_id == "ID2");
}

TEST_CASE("who opens a bucket waits for its first keys, or for what is wrong, not without end") {
  HangingFile file;
  file.fetches = 1;  // so that the first one hangs
  ManualClock clock;
  SeededRandom random(1);
  S3Credentials hangs(
      std::make_unique<BackgroundKeySource>(std::make_unique<HangingKeySource>(&file)), &clock,
      &random);
  hangs.Tick();
  CHECK(absl::IsUnavailable(hangs.AwaitFirst(std::chrono::milliseconds(1))));
  CHECK(absl::StrContains(hangs.status().message(), "have not come yet"));
  file.go.set_value();
  CHECK(hangs.AwaitFirst(std::chrono::minutes(1)).ok());
  CHECK(hangs.counters().fetched == 1);

  HeldCredentials fails;
  fails.TickUntilAsked();
  fails.Fail();
  const absl::Status status = fails.credentials.AwaitFirst(std::chrono::minutes(1));
  CHECK(status.message() == "nobody there");
  CHECK(fails.credentials.counters() == KeyCounters{.failed = 1});
}

TEST_CASE("keys that claim to last for ever are renewed all the same, by what time can be") {
  HeldCredentials held;
  held.TickUntilAsked();
  held.Answer("one", std::chrono::hours(24 * 365 * 7000));
  held.clock.Advance(S3Credentials::kLongestLife);
  held.credentials.Tick();
  CHECK(held.asked.size() == 1);
}

}  // namespace kvkeep
