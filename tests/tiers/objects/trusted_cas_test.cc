#include "tiers/objects/trusted_cas.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

using Variables = std::map<std::string, std::string>;

void PutCas(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "certificates\n";
}

TrustedCas FindCas(const ScratchDir& root, const Variables& variables = {}) {
  const auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return FindTrustedCas(environment, root.path());
}

}  // namespace

TEST_CASE("the system's CA file is found where each distribution has it") {
  for (const std::string place :
       {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem"}) {
    const ScratchDir root;
    PutCas(root.path() + place);
    CHECK(FindCas(root).file == root.path() + place);
  }
}

TEST_CASE("the system's folder of CA certificates is found beside the file") {
  const ScratchDir debian, rhel;
  PutCas(debian / "etc/ssl/certs/ca-certificates.crt");
  CHECK(FindCas(debian).folder == debian / "etc/ssl/certs");
  PutCas(rhel / "etc/pki/tls/certs/ca-bundle.crt");
  CHECK(FindCas(rhel).folder == rhel / "etc/pki/tls/certs");
  CHECK(FindCas(rhel).file == rhel / "etc/pki/tls/certs/ca-bundle.crt");
}

TEST_CASE("a system without CA certificates has neither file nor folder") {
  const ScratchDir root;
  std::filesystem::create_directories(root / "etc/ssl/cert.pem");  // a folder is no CA file
  CHECK(FindCas(root).file.empty());
  CHECK(FindCas(root).folder.empty());
}

TEST_CASE("CA certificates that the environment names are the only ones, there or not") {
  const ScratchDir root;
  PutCas(root / "etc/ssl/certs/ca-certificates.crt");
  const TrustedCas file = FindCas(root, {{"SSL_CERT_FILE", "/a.pem"}});
  CHECK(file.file == "/a.pem");
  CHECK(file.folder.empty());
  const TrustedCas folder = FindCas(root, {{"SSL_CERT_DIR", "/b"}});
  CHECK(folder.file.empty());
  CHECK(folder.folder == "/b");
  const TrustedCas both = FindCas(root, {{"SSL_CERT_FILE", "/a.pem"}, {"SSL_CERT_DIR", "/b"}});
  CHECK(both.file == "/a.pem");
  CHECK(both.folder == "/b");
  const TrustedCas empty = FindCas(root, {{"SSL_CERT_FILE", ""}, {"SSL_CERT_DIR", ""}});
  CHECK(empty.file == root / "etc/ssl/certs/ca-certificates.crt");
}

}  // namespace kvkeep
