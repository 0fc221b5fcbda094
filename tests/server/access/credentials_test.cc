// Identities of clients over TCP, by certificate and token; their files, and changes of these.
#include "server/access/credentials.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

const std::string kToken = "0123456789abcdef-a";
const std::string kOther = "0123456789abcdef-b";

std::string Hash(const std::string& token) {
  std::string sha(32, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         reinterpret_cast<unsigned char*>(sha.data()));
  return absl::BytesToHexString(sha);
}

void Write(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path + ".new") << text;
  REQUIRE(chmod((path + ".new").c_str(), mode) == 0);
  REQUIRE(rename((path + ".new").c_str(), path.c_str()) == 0);
}

Presented Token(const std::string& token) {
  return {.dns_names = {}, .uri_names = {}, .token = token};
}

// Two tenants beside the default one, each with a token file and names.
struct TokenFiles {
  TokenFiles() {
    Write(dir / "b", Hash(kToken) + "\n");
    Write(dir / "c", absl::StrCat("# comment\n\n  ", absl::AsciiStrToUpper(Hash(kOther)),
                                  " read  # a watcher\n"));
    auto loaded = Credentials::Load(
        {{},
         {.tenant = "b",
          .certificate_names = {"b.example", "spiffe://x/B read"},
          .token_file = dir / "b"},
         {.tenant = "c", .certificate_names = {"c.example write"}, .token_file = dir / "c"}});
    REQUIRE(loaded.ok());
    credentials = *std::move(loaded);
  }
  absl::StatusOr<Caller> Identify(const Presented& presented) const {
    return credentials->Identify(presented);
  }
  // Checks as the daemon's thread does, until there is news.
  Credentials::News Reload() const {
    for (int i = 0; i < 4; ++i) {
      auto news = credentials->Reload();
      if (!news.empty()) return news[0];
    }
    return {.file = "", .status = absl::OkStatus()};
  }

  ScratchDir dir;
  std::unique_ptr<Credentials> credentials;
};

bool Refused(const absl::StatusOr<Caller>& caller, const char* why) {
  INFO(caller.status());
  return absl::IsUnauthenticated(caller.status()) &&
         absl::StrContains(caller.status().message(), why);
}

}  // namespace

TEST_CASE("a name in a certificate makes the caller its tenant, with what it grants") {
  const TokenFiles world;
  CHECK_FALSE(world.credentials->open());
  const auto b =
      world.Identify({.dns_names = {"unknown", "B.Example"}, .uri_names = {}, .token = {}});
  REQUIRE(b.ok());
  CHECK(b->tenant == TenantId(1));
  CHECK(b->grants == Grants{});
  CHECK(b->who == "certificate b.example");
  const auto uri = world.Identify({.dns_names = {}, .uri_names = {"spiffe://x/B"}, .token = {}});
  REQUIRE(uri.ok());
  CHECK(uri->grants == Grants{.read = true, .write = false});
  CHECK(world.Identify({.dns_names = {"c.example"}, .uri_names = {}, .token = {}})->grants ==
        Grants{.read = false, .write = true});
  // URIs are compared unchanged, and are no DNS names.
  CHECK(Refused(world.Identify({.dns_names = {}, .uri_names = {"spiffe://x/b"}, .token = {}}),
                "no tenant has"));
  CHECK(Refused(world.Identify({.dns_names = {"spiffe://x/B"}, .uri_names = {}, .token = {}}),
                "no tenant has"));
  CHECK(Refused(
      world.Identify({.dns_names = {"b.example", "c.example"}, .uri_names = {}, .token = {}}),
      "more than one tenant"));
}

TEST_CASE("a token makes the caller its tenant; one that nobody knows is nobody's") {
  const TokenFiles world;
  CHECK(world.Identify(Token(kToken))->tenant == TenantId(1));
  const auto c = world.Identify(Token(kOther));
  CHECK(c->tenant == TenantId(2));
  CHECK(c->grants == Grants{.read = true, .write = false});
  CHECK(c->who == "token c:3");
  for (const std::string& bad :
       {std::string(), std::string("short"), kToken + " ", kToken.substr(0, kToken.size() - 1),
        Hash(kToken), std::string(2000, 'x'), std::string(32, '\0')}) {
    INFO(bad);
    CHECK(Refused(world.Identify(Token(bad)), "the token is not known"));
  }
  CHECK(Refused(world.Identify({}), "identify yourself"));
}

TEST_CASE("with both the token decides, and may not be another tenant's than the certificate") {
  const TokenFiles world;
  Presented both{.dns_names = {"b.example"}, .uri_names = {}, .token = kToken};
  CHECK(world.Identify(both)->who == "certificate b.example, token b:1");
  both.uri_names = {"spiffe://x/B"};
  both.dns_names = {};
  CHECK(world.Identify(both)->grants == Grants{.read = true, .write = false});
  both.token = kOther;
  CHECK(Refused(world.Identify(both), "one tenant's, the token another's"));
  // A certificate without a tenant goes with any token, and not the other way round.
  CHECK(world.Identify({.dns_names = {"node7"}, .uri_names = {}, .token = kToken})->tenant ==
        TenantId(1));
  both.token = "an unknown token, long enough";
  CHECK(Refused(world.Identify(both), "the token is not known"));
}

TEST_CASE("any certificate is the default tenant's only where the config says so") {
  const auto any =
      *Credentials::Load({{.tenant = "", .certificate_names = {"any"}, .token_file = ""},
                          {.tenant = "b", .certificate_names = {"b.example"}, .token_file = ""}});
  CHECK(any->Identify({.dns_names = {"x"}, .uri_names = {}, .token = {}})->tenant == TenantId(0));
  CHECK(any->Identify({.dns_names = {"b.example"}, .uri_names = {}, .token = {}})->tenant ==
        TenantId(1));
  CHECK(Refused(any->Identify({}), "identify yourself"));
  // Without any credentials every client is the default tenant.
  const auto none =
      *Credentials::Load({{}, {.tenant = "b", .certificate_names = {}, .token_file = ""}});
  CHECK(none->open());
  CHECK(none->Identify({})->tenant == TenantId(0));
  CHECK(Refused(none->Identify(Token(kToken)), "the token is not known"));
}

TEST_CASE("a changed token file is read; one that is broken leaves the tokens as they were") {
  const TokenFiles world;
  CHECK(world.credentials->Reload().empty());
  Write(world.dir / "b", Hash(kToken + "2"));
  CHECK(world.credentials->Reload().empty());  // it may still be written
  CHECK(world.Reload().status.ok());
  CHECK(world.Identify(Token(kToken + "2")).ok());
  CHECK_FALSE(world.Identify(Token(kToken)).ok());
  CHECK(world.Identify(Token(kOther)).ok());

  Write(world.dir / "b", kToken + "3\n");  // the token itself: not to be logged
  const Credentials::News broken = world.Reload();
  CHECK(absl::StrContains(broken.status.message(), "/b:1: is not a token's line"));
  CHECK_FALSE(absl::StrContains(broken.status.message(), kToken));
  CHECK(world.Identify(Token(kToken + "2")).ok());
  CHECK(world.Reload().file.empty());  // said once
  REQUIRE(unlink((world.dir / "b").c_str()) == 0);
  CHECK(absl::StrContains(world.Reload().status.message(), "cannot be read"));
  CHECK(world.Identify(Token(kToken + "2")).ok());
  Write(world.dir / "b", "");  // nobody any more
  CHECK(world.Reload().status.ok());
  CHECK_FALSE(world.Identify(Token(kToken + "2")).ok());
}

TEST_CASE("token files that others can read or write, or that are none, are refused") {
  const ScratchDir dir;
  const std::string path = dir / "tokens";
  const auto load = [&] {
    return Credentials::Load({{.tenant = "", .certificate_names = {}, .token_file = path}})
        .status();
  };
  CHECK(absl::StrContains(load().message(), "cannot be read"));
  for (const mode_t good : {0600, 0400, 0640, 0440}) {
    Write(path, Hash(kToken), good);
    CHECK(load().ok());
  }
  for (const mode_t bad : {0644, 0604, 0660, 0602, 0620, 0777}) {
    Write(path, Hash(kToken), bad);
    CHECK(absl::StrContains(load().message(), "others may have no access"));
  }
  Write(path, absl::StrCat(Hash(kToken), " delete\n"));
  CHECK(absl::StrContains(load().message(), "tokens:1: is not a token's line"));
  std::string many;
  for (size_t i = 0; i <= kMaxTokensPerFile; ++i)
    absl::StrAppend(&many, Hash(absl::StrCat(i)), "\n");
  Write(path, many);
  CHECK(absl::StrContains(load().message(), "tokens:65: is one token too many: at most 64"));
  Write(path, std::string(70'000, '\n'));
  CHECK(absl::StrContains(load().message(), "more than 65536 bytes"));
  REQUIRE(unlink(path.c_str()) == 0);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);  // opening one to read would wait
  CHECK(absl::StrContains(load().message(), "no regular file"));
  if (geteuid() != 0) return;
  REQUIRE(unlink(path.c_str()) == 0);
  Write(path, Hash(kToken));
  REQUIRE(chown(path.c_str(), 64123, 0) == 0);
  CHECK(absl::StrContains(load().message(), "belongs to uid 64123"));
}

}  // namespace kvkeep
