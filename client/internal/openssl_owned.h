// Owners of OpenSSL's objects, and functions that read them from PEM. Internal.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace kvkeep::client {

struct OpensslFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpensslFree>;

// Returns a BIO that reads `text`, which must outlive it.
Owned<BIO> Over(const std::string& text);
// Returns the first certificate in `pem`; null if there is none.
Owned<X509> FirstCertificate(const std::string& pem);

}  // namespace kvkeep::client
