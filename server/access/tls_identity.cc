#include "server/access/tls_identity.h"

#include <absl/strings/str_cat.h>
#include <openssl/conf.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kMaxPemBytes = 1024 * 1024;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(CONF* conf) const { NCONF_free(conf); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// Returns OpenSSL's description of the last failure.
std::string OpensslReason() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

absl::Status Wrong(const std::string& file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what));
}

Owned<BIO> Over(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Returns all certificates of a PEM file, at least one.
absl::StatusOr<std::vector<Owned<X509>>> Certificates(const std::string& file,
                                                      const std::string& pem) {
  std::vector<Owned<X509>> all;
  const Owned<BIO> bio = Over(pem);
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(next);
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (!at_end) return Wrong(file, absl::StrCat("has a broken certificate: ", OpensslReason()));
  ERR_clear_error();
  if (all.empty()) return Wrong(file, "has no certificate in it; it must be PEM");
  return all;
}

// Makes a key with a password unreadable.
int NoPassword(char*, int, int, void*) { return 0; }

std::string SerialOf(const X509* certificate) {
  BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr);
  char* hex = BN_bn2hex(number);
  std::string serial = hex == nullptr ? "" : hex;
  OPENSSL_free(hex);
  BN_free(number);
  return serial;
}

time_t TimeOf(const ASN1_TIME* time) {
  tm broken_down{};
  return ASN1_TIME_to_tm(time, &broken_down) == 1 ? timegm(&broken_down) : 0;
}

// Checks that a PEM file has at least one CRL and that all of them parse.
absl::Status CheckCrls(const std::string& file, const std::string& pem) {
  const Owned<BIO> bio = Over(pem);
  size_t found = 0;
  while (X509_CRL* next = PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr)) {
    X509_CRL_free(next);
    ++found;
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (!at_end) return Wrong(file, absl::StrCat("has a broken CRL: ", OpensslReason()));
  ERR_clear_error();
  return found > 0 ? absl::OkStatus() : Wrong(file, "has no CRL in it; it must be PEM");
}

// Checks that the files work together the way gRPC will use them.
absl::Status CheckTogether(const TlsFiles& files, const TlsIdentity::Material& material) {
  KVKEEP_ASSIGN_OR_RETURN(const auto chain, Certificates(files.cert_file, material.cert_chain));
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return absl::InternalError(absl::StrCat("TLS: ", OpensslReason()));
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1) {
    return Wrong(files.cert_file, absl::StrCat("cannot be used: ", OpensslReason()));
  }
  const Owned<BIO> key_bio = Over(material.key);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Wrong(files.key_file,
                 absl::StrCat("has no private key in PEM without a password: ", OpensslReason()));
  }
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    ERR_clear_error();
    return Wrong(files.key_file,
                 absl::StrCat("is not the key of the certificate in ", files.cert_file));
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return Wrong(files.key_file, absl::StrCat("cannot be used: ", OpensslReason()));
  }
  if (files.client_ca_file.empty()) return absl::OkStatus();
  return Certificates(files.client_ca_file, material.client_ca).status();
}

absl::StatusOr<TlsIdentity::Material> Read(const TlsFiles& files) {
  TlsIdentity::Material material;
  KVKEEP_ASSIGN_OR_RETURN(material.cert_chain,
                          ReadPrivateFile(files.cert_file, kMaxPemBytes, Secrecy::kPublic));
  KVKEEP_ASSIGN_OR_RETURN(material.key,
                          ReadPrivateFile(files.key_file, kMaxPemBytes, Secrecy::kSecret));
  if (!files.client_ca_file.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(material.client_ca,
                            ReadPrivateFile(files.client_ca_file, kMaxPemBytes, Secrecy::kPublic));
  }
  if (!files.client_crl_file.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(material.client_crl,
                            ReadPrivateFile(files.client_crl_file, kMaxPemBytes, Secrecy::kPublic));
    KVKEEP_RETURN_IF_ERROR(CheckCrls(files.client_crl_file, material.client_crl));
  }
  KVKEEP_RETURN_IF_ERROR(CheckTogether(files, material));
  KVKEEP_ASSIGN_OR_RETURN(const auto chain, Certificates(files.cert_file, material.cert_chain));
  material.serial = SerialOf(chain[0].get());
  material.not_after = TimeOf(X509_get0_notAfter(chain[0].get()));
  return material;
}

}  // namespace

absl::StatusOr<std::shared_ptr<TlsIdentity>> TlsIdentity::Load(const TlsFiles& files) {
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity(files));
  KVKEEP_ASSIGN_OR_RETURN(Material material, Read(files));
  material.generation = 1;
  MutexLock lock(&identity->mu_);
  identity->current_ = std::make_shared<Material>(std::move(material));
  return identity;
}

std::shared_ptr<const TlsIdentity::Material> TlsIdentity::current() const {
  MutexLock lock(&mu_);
  return current_;
}

std::optional<absl::Status> TlsIdentity::Reload() {
  if (!changes_.Due()) return std::nullopt;
  absl::StatusOr<Material> fresh = Read(files_);
  if (!fresh.ok()) return fresh.status();
  if (fresh->not_after < std::time(nullptr)) {
    return Wrong(files_.cert_file, "its certificate has expired already");
  }
  fresh->generation = current()->generation + 1;
  auto next = std::make_shared<const Material>(*std::move(fresh));
  MutexLock lock(&mu_);
  current_ = std::move(next);
  return absl::OkStatus();
}

absl::Status AllowTls13Only() {
  // Defaults of every SSL_CTX made later, as in openssl.cnf. gRPC overrides our lowest version with
  // its own (1.2), but not the bits that switch versions off, which "Protocol" sets.
  constexpr char kDefaults[] =
      "kvkeep = kvkeep_sect\n"
      "[kvkeep_sect]\nssl_conf = ssl_sect\n"
      "[ssl_sect]\nsystem_default = tls13_sect\n"
      "[tls13_sect]\nProtocol = -TLSv1.2, -TLSv1.1, -TLSv1, -SSLv3\n"
      "CipherString = DEFAULT@SECLEVEL=2\n";
  OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG, nullptr);  // the system's config first, then ours
  const Owned<BIO> bio(BIO_new_mem_buf(kDefaults, -1));
  const Owned<CONF> conf(NCONF_new(nullptr));
  const bool loaded = conf != nullptr && NCONF_load_bio(conf.get(), bio.get(), nullptr) == 1 &&
                      CONF_modules_load(conf.get(), "kvkeep", 0) == 1;
  const Owned<SSL_CTX> made(SSL_CTX_new(TLS_method()));
  const uint64_t off = SSL_OP_NO_TLSv1_2 | SSL_OP_NO_TLSv1_1 | SSL_OP_NO_TLSv1;
  if (loaded && made != nullptr && (SSL_CTX_get_options(made.get()) & off) == off) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("OpenSSL does not confine itself to TLS 1.3: ", OpensslReason()));
}

}  // namespace kvkeep
