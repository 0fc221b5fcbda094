#include "tiers/objects/credentials.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"

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
  // Until it asks; how long that took.
  seconds TickUntilAsked() {
    for (seconds passed(0); passed < seconds(100'000); passed += seconds(1)) {
      credentials.Tick();
      if (!asked.empty()) return passed;
      clock.Advance(seconds(1));
    }
    return seconds(-1);
  }
};

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
  CHECK(held.credentials.Current() == one);  // the very same: they are what is wrong
  CHECK_FALSE(held.credentials.Expired(one));
  CHECK(held.asked.empty());

  HeldCredentials other;
  other.TickUntilAsked();
  other.Answer("one");
  const SharedS3Keys old = other.credentials.Current();
  CHECK(other.credentials.Expired(old));
  other.Answer("two");
  CHECK(other.credentials.Expired(old));  // who was signed with the old ones takes the new ones
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
  S3Credentials credentials(
      MakeS3KeySource(path, [](const char*) -> const char* { return "other"; }).value(), &clock,
      &random);
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
  const auto environment = [](const char* name) -> const char* {
    if (absl::string_view(name) == "AWS_ACCESS_KEY_ID") return "id";
    if (absl::string_view(name) == "AWS_SECRET_ACCESS_KEY") return "secret";
    return nullptr;
  };
  ManualClock clock;
  SeededRandom random(1);
  S3Credentials credentials(MakeS3KeySource("", environment).value(), &clock, &random);
  credentials.Tick();
  CHECK(credentials.Current()->secret_access_key.reveal() == "secret");

  const auto half = [](const char* name) -> const char* {
    return absl::string_view(name) == "AWS_ACCESS_KEY_ID" ? "id" : nullptr;
  };
  S3Credentials incomplete(MakeS3KeySource("", half).value(), &clock, &random);
  incomplete.Tick();
  CHECK(incomplete.Current() == nullptr);
  CHECK(absl::StrContains(incomplete.status().message(), "AWS_SECRET_ACCESS_KEY"));

  const auto none = [](const char*) -> const char* { return nullptr; };
  const absl::Status status = MakeS3KeySource("", none).status();
  CHECK(absl::IsNotFound(status));
  CHECK(absl::StrContains(status.message(), "g4.credentials_file"));
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

// Hangs, as a file on a mount that is away, until the test lets it go.
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
  const SharedS3Keys first = credentials.Current();
  REQUIRE(first != nullptr);  // a start knows them
  CHECK(first->access_key_id == "ID1");
  while (file.fetches < 2) {  // until the look has said that they changed
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

}  // namespace kvkeep
