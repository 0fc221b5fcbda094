#include "tiers/crypt/key_ring.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

struct Ring {
  SeededRandom random{3};
  Secret master = MakeSecret();
  std::vector<KeyRing::Entry> entries = {KeyRing::MakeEntry("", master, &random),
                                         KeyRing::MakeEntry("team-a", master, &random)};

  Secret MakeSecret() {
    Secret secret;
    random.Fill(secret.writable());
    return secret;
  }
};

std::string BytesOf(const Secret& secret) {
  return std::string(reinterpret_cast<const char*>(secret.data()), Secret::kBytes);
}

}  // namespace

TEST_CASE("keys survive the file, each found by tenant and by id") {
  const Ring r;
  const auto parsed = KeyRing::ParseText(KeyRing::FormatText(r.entries));
  REQUIRE(parsed.ok());
  CHECK(*parsed == r.entries);
  const auto ring = KeyRing::Unwrap(*parsed, r.master);
  const auto same = KeyRing::Unwrap(r.entries, r.master);
  REQUIRE(ring.ok());
  REQUIRE(same.ok());
  CHECK((*ring)->size() == 2);
  for (const KeyRing::Entry& entry : r.entries) {
    const DataKey* key = (*ring)->ForTenant(entry.tenant);
    REQUIRE(key != nullptr);
    CHECK(key->id == entry.id);
    CHECK((*ring)->Find(entry.id) == key);
    CHECK(BytesOf(key->secret) == BytesOf((*same)->ForTenant(entry.tenant)->secret));
  }
  CHECK((*ring)->ForTenant("team-b") == nullptr);
  CHECK((*ring)->Find(KeyId{}) == nullptr);
}

TEST_CASE("two tenants' keys differ, and the file holds neither") {
  const Ring r;
  const auto ring = KeyRing::Unwrap(r.entries, r.master);
  REQUIRE(ring.ok());
  const std::string a = BytesOf((*ring)->ForTenant("")->secret);
  const std::string b = BytesOf((*ring)->ForTenant("team-a")->secret);
  CHECK(a != b);
  for (const KeyRing::Entry& entry : r.entries) {
    CHECK(entry.wrapped.find(a) == std::string::npos);
    CHECK(entry.wrapped.find(b) == std::string::npos);
  }
}

TEST_CASE("another master key opens nothing and is told from damage") {
  Ring r;
  const Secret other = r.MakeSecret();
  CHECK(absl::IsPermissionDenied(KeyRing::Unwrap(r.entries, other).status()));
  SECTION("a flipped bit of one key") { r.entries[1].wrapped[20] ^= 1; }
  SECTION("another id") { r.entries[1].id.bytes[0] ^= 1; }
  SECTION("given to another tenant") { r.entries[1].tenant = "team-b"; }
  const absl::Status status = KeyRing::Unwrap(r.entries, r.master).status();
  CHECK(absl::IsDataLoss(status));
  CHECK(std::string(status.message()).find(r.entries[1].tenant) != std::string::npos);
}

TEST_CASE("keys of a master key of before are wrapped anew, and stay the same keys") {
  Ring r;
  const auto before = KeyRing::Unwrap(r.entries, r.master);
  REQUIRE(before.ok());
  std::vector<Secret> previous;
  previous.push_back(r.MakeSecret());  // a key that opens nothing does no harm
  previous.push_back(std::move(r.master));
  const Secret current = r.MakeSecret();
  const std::vector<KeyRing::Entry> old = r.entries;
  CHECK(KeyRing::Unwrap(old, current, previous).ok());

  CHECK(KeyRing::Rewrap(&r.entries, current, previous, &r.random) == 2);
  for (size_t i = 0; i < old.size(); ++i) {
    CHECK(r.entries[i].id == old[i].id);
    CHECK(r.entries[i].tenant == old[i].tenant);
    CHECK(r.entries[i].wrapped != old[i].wrapped);
  }
  const auto after = KeyRing::Unwrap(r.entries, current);  // the others are not needed any more
  REQUIRE(after.ok());
  for (const KeyRing::Entry& entry : old) {
    CHECK(BytesOf((*after)->Find(entry.id)->secret) == BytesOf((*before)->Find(entry.id)->secret));
  }
  CHECK(absl::IsPermissionDenied(KeyRing::Unwrap(r.entries, previous[1]).status()));
  const std::vector<KeyRing::Entry> done = r.entries;
  CHECK(KeyRing::Rewrap(&r.entries, current, previous, &r.random) == 0);
  CHECK(r.entries == done);
}

TEST_CASE("what no master key opens is not wrapped anew") {
  Ring r;
  std::vector<Secret> previous;
  previous.push_back(std::move(r.master));
  const Secret current = r.MakeSecret();
  r.entries[1].wrapped[20] ^= 1;
  const KeyRing::Entry damaged = r.entries[1];
  CHECK(KeyRing::Rewrap(&r.entries, current, previous, &r.random) == 1);
  CHECK(r.entries[1] == damaged);
  CHECK(absl::IsDataLoss(KeyRing::Unwrap(r.entries, current, previous).status()));
}

TEST_CASE("a text that is no ring is refused with its line") {
  const Ring r;
  const std::string text = KeyRing::FormatText(r.entries);
  const auto refusal = [](const std::string& changed) {
    return std::string(KeyRing::ParseText(changed).status().ToString());
  };
  CHECK(refusal("").find("does not begin with") != std::string::npos);
  CHECK(refusal(absl::StrReplaceAll(text, {{"keyring 1", "keyring 2"}})).find("this build reads") !=
        std::string::npos);
  CHECK(refusal(text.substr(0, text.size() - 20)).find("line 3") != std::string::npos);
  std::vector<KeyRing::Entry> entries = r.entries;
  entries.push_back(r.entries[1]);
  CHECK(refusal(KeyRing::FormatText(entries)).find("line 4") != std::string::npos);
  CHECK(refusal("kvkeep-keyring 1\nkey 00 11 x\n").find("line 2") != std::string::npos);
  SeededRandom random(4);
  entries.clear();
  for (size_t i = 0; i <= KeyRing::kMaxKeys; ++i) {
    entries.push_back(KeyRing::MakeEntry(absl::StrCat("t", i), r.master, &random));
  }
  CHECK(refusal(KeyRing::FormatText(entries)).find("1024 keys") != std::string::npos);
}

}  // namespace kvkeep
