#include "server/access/client_certificates.h"

#include <absl/strings/str_cat.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <string>
#include <utility>

namespace kvkeep {
namespace {

struct FreeX509 {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
  void operator()(STACK_OF(X509) * all) const { sk_X509_pop_free(all, X509_free); }
};
template <typename T>
using OwnedX509 = std::unique_ptr<T, FreeX509>;

OwnedX509<BIO> BioOver(absl::string_view text) {
  return OwnedX509<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

OwnedX509<STACK_OF(X509)> AllOf(absl::string_view pem) {
  OwnedX509<STACK_OF(X509)> all(sk_X509_new_null());
  const OwnedX509<BIO> bio = BioOver(pem);
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    sk_X509_push(all.get(), next);
  }
  ERR_clear_error();  // the end of the file is an error to OpenSSL
  return all;
}

}  // namespace

struct ClientCertificates::Trusted {
  uint64_t generation = 0;
  std::shared_ptr<X509_STORE> store;
};

std::shared_ptr<const ClientCertificates::Trusted> ClientCertificates::TrustedNow() {
  const std::shared_ptr<const TlsIdentity::Material> now = identity_->current();
  {
    MutexLock lock(&mu_);
    if (trusted_ != nullptr && trusted_->generation == now->generation) return trusted_;
  }
  auto fresh = std::make_shared<Trusted>();
  fresh->generation = now->generation;
  fresh->store = std::shared_ptr<X509_STORE>(X509_STORE_new(), X509_STORE_free);
  X509_STORE_set_purpose(fresh->store.get(), X509_PURPOSE_SSL_CLIENT);
  const OwnedX509<STACK_OF(X509)> roots = AllOf(now->client_ca);
  for (int i = 0; i < sk_X509_num(roots.get()); ++i) {
    X509_STORE_add_cert(fresh->store.get(), sk_X509_value(roots.get(), i));
  }
  if (!now->client_crl.empty()) {
    X509_STORE_set_flags(fresh->store.get(), X509_V_FLAG_CRL_CHECK);
    const OwnedX509<BIO> bio = BioOver(now->client_crl);
    while (X509_CRL* next = PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr)) {
      X509_STORE_add_crl(fresh->store.get(), next);
      X509_CRL_free(next);
    }
    ERR_clear_error();
  }
  MutexLock lock(&mu_);
  trusted_ = fresh;
  return fresh;
}

absl::Status ClientCertificates::Verify(const Trusted& trusted, absl::string_view certificate,
                                        absl::string_view between, time_t now) {
  const OwnedX509<BIO> bio = BioOver(certificate);
  const OwnedX509<X509> leaf(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  const OwnedX509<STACK_OF(X509)> untrusted = AllOf(between);
  const OwnedX509<X509_STORE_CTX> context(X509_STORE_CTX_new());
  if (leaf == nullptr ||
      X509_STORE_CTX_init(context.get(), trusted.store.get(), leaf.get(), untrusted.get()) != 1) {
    ERR_clear_error();
    return absl::UnauthenticatedError("this connection's certificate cannot be read");
  }
  X509_STORE_CTX_set_time(context.get(), 0, now);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  return absl::UnauthenticatedError(
      absl::StrCat("this connection's certificate does not hold any more: ",
                   X509_verify_cert_error_string(error)));
}

absl::Status ClientCertificates::Check(absl::string_view certificate, absl::string_view between,
                                       time_t now) {
  std::array<unsigned char, 32> sha{};
  const std::string both = absl::StrCat(certificate, between);
  SHA256(reinterpret_cast<const unsigned char*>(both.data()), both.size(), sha.data());
  const std::shared_ptr<const Trusted> trusted = TrustedNow();
  {
    MutexLock lock(&mu_);
    const auto known = found_.find(sha);
    if (known != found_.end() && known->second.generation == trusted->generation &&
        now < known->second.until) {
      return known->second.status;
    }
  }
  Found found{.generation = trusted->generation,
              .until = now + kRememberFor,
              .status = Verify(*trusted, certificate, between, now)};
  MutexLock lock(&mu_);
  if (found_.size() >= kMost) found_.clear();
  found_[sha] = found;
  return found.status;
}

}  // namespace kvkeep
