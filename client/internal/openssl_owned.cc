#include "client/internal/openssl_owned.h"

#include <openssl/pem.h>

namespace kvkeep::client {

Owned<BIO> Over(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> FirstCertificate(const std::string& pem) {
  return Owned<X509>(PEM_read_bio_X509(Over(pem).get(), nullptr, nullptr, nullptr));
}

}  // namespace kvkeep::client
