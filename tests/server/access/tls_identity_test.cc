// The daemon's certificate for TLS: only a valid one, and the previous one if the new one is not.
#include "server/access/tls_identity.h"

#include <absl/strings/match.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/pki.h"
#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

struct IdentityWorld {
  IdentityWorld() : ca(dir.path(), "ca"), other(dir.path(), "other") {
    const CertificateFiles issued = Issue(17);
    files = {.cert_file = issued.cert, .key_file = issued.key, .client_ca_file = ca.cert_file()};
  }
  CertificateFiles Issue(long serial, long valid_to_s = 3600) const {
    return ca.Issue(
        {.name = "daemon", .alt_names = "DNS:d", .serial = serial, .valid_to_s = valid_to_s});
  }
  std::shared_ptr<TlsIdentity> Load() const {
    auto identity = TlsIdentity::Load(files);
    INFO(identity.status());
    REQUIRE(identity.ok());
    return *identity;
  }
  std::string Error() const { return std::string(TlsIdentity::Load(files).status().message()); }

  ScratchDir dir;
  TestCa ca, other;
  TlsFiles files;
};

// Checks as the daemon's thread does, until there is news.
absl::Status AwaitReload(TlsIdentity& identity) {
  for (int i = 0; i < 4; ++i) {
    if (const auto news = identity.Reload(); news.has_value()) return *news;
  }
  return absl::NotFoundError("no news");
}

void Overwrite(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("a new certificate is taken when it and its key are both there") {
  const IdentityWorld world;
  const auto identity = world.Load();
  CHECK(identity->current()->serial == "11");
  CHECK(identity->wants_client_certificates());
  CHECK_FALSE(identity->Reload().has_value());
  world.Issue(18);
  CHECK(AwaitReload(*identity).ok());
  CHECK(identity->current()->serial == "12");
  CHECK(identity->current()->generation == 2);
  CHECK(absl::IsNotFound(AwaitReload(*identity)));
}

TEST_CASE("what is broken, half replaced or expired leaves the old one in use, and is said once") {
  const IdentityWorld world;
  const auto identity = world.Load();
  const auto old = identity->current();
  std::filesystem::copy_file(world.files.key_file, world.dir / "old.key");
  world.Issue(18);
  std::filesystem::rename(world.dir / "old.key", world.files.key_file);
  CHECK(absl::StrContains(AwaitReload(*identity).message(), "is not the key of the certificate"));
  CHECK(absl::IsNotFound(AwaitReload(*identity)));
  Overwrite(world.files.cert_file,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  CHECK(absl::StrContains(AwaitReload(*identity).message(), "has a broken certificate"));
  world.Issue(19, -60);
  CHECK(absl::StrContains(AwaitReload(*identity).message(), "has expired"));
  std::filesystem::remove(world.files.client_ca_file);
  CHECK(absl::StrContains(AwaitReload(*identity).message(), "ca.pem: cannot be read"));
  CHECK(identity->current() == old);
}

TEST_CASE("files that cannot be used are refused at the start, by name") {
  IdentityWorld world;
  const TlsFiles good = world.files;
  world.files.cert_file = world.dir / "none";
  CHECK(absl::StrContains(world.Error(), "/none: cannot be read"));
  world.files = good;
  world.files.cert_file = good.key_file;
  CHECK(absl::StrContains(world.Error(), "daemon.key: has no certificate"));
  world.files = good;
  world.files.key_file = world.dir / "garbage";
  Overwrite(world.files.key_file, "garbage");
  REQUIRE(chmod(world.files.key_file.c_str(), 0600) == 0);
  CHECK(absl::StrContains(world.Error(), "garbage: has no private key"));
  world.files.client_ca_file = world.dir / "garbage";
  world.files.key_file = good.key_file;
  CHECK(absl::StrContains(world.Error(), "garbage: has no certificate in it"));
  world.files = good;
  REQUIRE(chmod(good.key_file.c_str(), 0644) == 0);
  CHECK(absl::StrContains(world.Error(), "daemon.key: has mode 0644"));
  REQUIRE(chmod(good.key_file.c_str(), 0640) == 0);
  CHECK(world.Error() == "");
  REQUIRE(chmod(good.client_ca_file.c_str(), 0666) == 0);
  CHECK(absl::StrContains(world.Error(), "ca.pem: has mode 0666"));
}

TEST_CASE("an expired certificate does not keep the daemon from starting") {
  IdentityWorld world;
  world.Issue(20, -60);
  CHECK(world.Load()->expired());
}

TEST_CASE("TLS in this process becomes 1.3 and nothing older, whatever a library allows") {
  REQUIRE(AllowTls13Only().ok());
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);  // as gRPC does
  CHECK((SSL_CTX_get_options(context) & SSL_OP_NO_TLSv1_2) != 0);
  CHECK((SSL_CTX_get_options(context) & SSL_OP_NO_TLSv1_3) == 0);
  CHECK(SSL_CTX_get_security_level(context) >= 2);
  SSL_CTX_free(context);
}

}  // namespace kvkeep
