// Certificates that were valid when their clients connected, and are not any more.
#include "server/access/client_certificates.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "tests/fakes/pki.h"
#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct CertificateWorld {
  CertificateWorld() : ca(dir.path(), "ca"), other(dir.path(), "other") {
    const CertificateFiles daemon = ca.Issue({.name = "daemon", .serial = 1});
    files = {.cert_file = daemon.cert, .key_file = daemon.key, .client_ca_file = ca.cert_file()};
    client = TextOf(ca.Issue({.name = "client", .serial = 7, .valid_to_s = 3600}).cert);
  }
  void Load() {
    identity = *TlsIdentity::Load(files);
    certificates = std::make_unique<ClientCertificates>(identity);
  }
  std::string Check(const std::string& pem, time_t later = 0) {
    const absl::Status status = certificates->Check(pem, "", std::time(nullptr) + later);
    CHECK((status.ok() || absl::IsUnauthenticated(status)));
    return std::string(status.message());
  }
  // Checks as the daemon's thread does, until there is news.
  void Reload() {
    std::optional<absl::Status> news;
    for (int i = 0; i < 4 && !news.has_value(); ++i) news = identity->Reload();
    REQUIRE(news.has_value());
    REQUIRE(*news == absl::OkStatus());
  }

  ScratchDir dir;
  TestCa ca, other;
  TlsFiles files;
  std::string client;
  std::shared_ptr<TlsIdentity> identity;
  std::unique_ptr<ClientCertificates> certificates;
};

}  // namespace

TEST_CASE("a certificate that expires while its client is connected does not hold any more") {
  CertificateWorld world;
  world.Load();
  CHECK(world.Check(world.client).empty());
  CHECK(world.Check(world.client, 3500).empty());
  CHECK(absl::StrContains(world.Check(world.client, 3700), "certificate has expired"));
  CHECK(absl::StrContains(world.Check("no certificate"), "cannot be read"));
}

TEST_CASE("when its CA is taken out a certificate does not hold any more") {
  CertificateWorld world;
  const std::string cas = world.dir.path() + "/cas.pem";
  std::ofstream(cas) << TextOf(world.ca.cert_file()) << TextOf(world.other.cert_file());
  world.files.client_ca_file = cas;
  world.Load();
  const std::string others = TextOf(world.other.Issue({.name = "others"}).cert);
  CHECK(world.Check(world.client).empty());
  CHECK(world.Check(others).empty());
  std::ofstream(cas) << TextOf(world.other.cert_file());
  world.Reload();
  CHECK_FALSE(world.Check(world.client).empty());
  CHECK(world.Check(others).empty());
}

TEST_CASE("a revoked certificate does not hold, and none does of a CA without a CRL of now") {
  CertificateWorld world;
  world.files.client_crl_file = world.ca.Revoke({});
  world.Load();
  CHECK(world.Check(world.client).empty());
  const std::string kept = TextOf(world.ca.Issue({.name = "kept", .serial = 8}).cert);
  world.ca.Revoke({5, 7});
  world.Reload();
  CHECK(absl::StrContains(world.Check(world.client), "certificate revoked"));
  CHECK(world.Check(kept).empty());
  world.ca.Revoke({}, -60);
  world.Reload();
  CHECK(absl::StrContains(world.Check(kept), "CRL has expired"));
  world.files.client_crl_file = world.other.Revoke({});
  world.Load();
  CHECK(absl::StrContains(world.Check(kept), "unable to get certificate CRL"));
}

TEST_CASE("a CRL file that is none is refused by name") {
  CertificateWorld world;
  world.files.client_crl_file = world.dir.path() + "/crl.pem";
  std::ofstream(world.files.client_crl_file) << "nothing";
  const absl::Status none = TlsIdentity::Load(world.files).status();
  CHECK(absl::StrContains(none.message(), "crl.pem: has no CRL in it"));
  std::ofstream(world.files.client_crl_file)
      << "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
  const absl::Status broken = TlsIdentity::Load(world.files).status();
  CHECK(absl::StrContains(broken.message(), "has a broken CRL"));
}

}  // namespace kvkeep
