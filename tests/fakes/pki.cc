#include "tests/fakes/pki.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

std::shared_ptr<EVP_PKEY> NewKey() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  KVKEEP_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::shared_ptr<X509> NewCertificate(const TestCa::Request& request, EVP_PKEY* key) {
  std::shared_ptr<X509> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), request.serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), request.valid_from_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), request.valid_to_s);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(request.name.c_str()), -1, -1,
                             0);
  return certificate;
}

// In one step, as a careful operator does it.
template <typename Write>
void ReplaceFile(const std::string& path, mode_t mode, Write write) {
  const std::string fresh = path + ".new";
  std::FILE* file = std::fopen(fresh.c_str(), "w");
  KVKEEP_CHECK(file != nullptr);
  KVKEEP_CHECK(write(file) == 1);
  KVKEEP_CHECK(std::fclose(file) == 0);
  KVKEEP_CHECK(chmod(fresh.c_str(), mode) == 0);
  KVKEEP_CHECK(std::rename(fresh.c_str(), path.c_str()) == 0);
}

void WriteCertificate(const std::string& path, X509* certificate) {
  ReplaceFile(path, 0644, [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
}

}  // namespace

TestCa::TestCa(const std::string& dir, const std::string& name)
    : dir_(dir), name_(name), key_(NewKey()) {
  certificate_ = NewCertificate({.name = name, .alt_names = ""}, key_.get());
  X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate_.get(), certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
  KVKEEP_CHECK(X509_sign(certificate_.get(), key_.get(), EVP_sha256()) > 0);
  WriteCertificate(cert_file(), certificate_.get());
}

TestCa::~TestCa() = default;

CertificateFiles TestCa::Issue(const Request& request) const {
  const std::shared_ptr<EVP_PKEY> key = NewKey();
  const std::shared_ptr<X509> certificate = NewCertificate(request, key.get());
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate.get(), certificate_.get(), NID_basic_constraints, "CA:FALSE");
  if (!request.alt_names.empty()) {
    AddExtension(certificate.get(), certificate_.get(), NID_subject_alt_name, request.alt_names);
  }
  KVKEEP_CHECK(X509_sign(certificate.get(), key_.get(), EVP_sha256()) > 0);
  const CertificateFiles files{dir_ + "/" + request.name + ".pem",
                               dir_ + "/" + request.name + ".key"};
  WriteCertificate(files.cert, certificate.get());
  ReplaceFile(files.key, 0600, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return files;
}

std::string TestCa::Revoke(const std::vector<long>& serials, long next_s) const {
  const std::shared_ptr<X509_CRL> crl(X509_CRL_new(), X509_CRL_free);
  X509_CRL_set_version(crl.get(), 1);  // v2
  X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(certificate_.get()));
  const std::shared_ptr<ASN1_TIME> then(X509_gmtime_adj(nullptr, -3600), ASN1_STRING_free);
  const std::shared_ptr<ASN1_TIME> next(X509_gmtime_adj(nullptr, next_s), ASN1_STRING_free);
  X509_CRL_set1_lastUpdate(crl.get(), then.get());
  X509_CRL_set1_nextUpdate(crl.get(), next.get());
  for (const long serial : serials) {
    X509_REVOKED* const revoked = X509_REVOKED_new();
    const std::shared_ptr<ASN1_INTEGER> number(ASN1_INTEGER_new(), ASN1_STRING_free);
    ASN1_INTEGER_set(number.get(), serial);
    X509_REVOKED_set_serialNumber(revoked, number.get());
    X509_REVOKED_set_revocationDate(revoked, then.get());
    X509_CRL_add0_revoked(crl.get(), revoked);
  }
  X509_CRL_sort(crl.get());
  KVKEEP_CHECK(X509_CRL_sign(crl.get(), key_.get(), EVP_sha256()) > 0);
  const std::string path = dir_ + "/" + name_ + ".crl";
  ReplaceFile(path, 0644, [&](std::FILE* file) { return PEM_write_X509_CRL(file, crl.get()); });
  return path;
}

}  // namespace kvkeep
