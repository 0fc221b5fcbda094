#include "server/grpc/gated_tls.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <span>
#include <utility>

#include "server/sockets/http2_gate.h"

namespace kvkeep {
namespace {

using Shared = std::shared_ptr<Http2Connection>;

thread_local int received_last = -1;

void Free(void* /*ssl*/, void* shared, CRYPTO_EX_DATA* /*all*/, int /*index*/, long /*argl*/,
          void* /*argp*/) {
  delete static_cast<Shared*>(shared);
}

int Index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, &Free);
  return index;
}

// Returns the connection of this SSL; null: it is not at the gate.
Http2Connection* ConnectionOf(SSL* ssl) {
  auto* known = static_cast<Shared*>(SSL_get_ex_data(ssl, Index()));
  if (known == nullptr) {
    Shared shared = Http2Gate::OfProcess().Share(received_last);
    if (shared == nullptr || shared->wire() != Http2Connection::Wire::kTls) return nullptr;
    // Another SSL object has this connection. The right one is not known, so it cannot be held, but
    // rules hold for it.
    if (!shared->Claim()) shared = Http2Gate::OfProcess().AddUnknown();
    known = new Shared(std::move(shared));
    SSL_set_ex_data(ssl, Index(), known);
  }
  return known->get();
}

}  // namespace

void NoteEncrypted(int fd, size_t bytes) {
  received_last = fd;
  if (Http2Connection* const connection = Http2Gate::Find(fd)) connection->Received(bytes);
}

}  // namespace kvkeep

extern "C" __attribute__((visibility("default"))) int SSL_read(SSL* ssl, void* buffer, int bytes) {
  static const auto read =
      reinterpret_cast<int (*)(SSL*, void*, int)>(dlsym(RTLD_NEXT, "SSL_read"));
  const int got = read(ssl, buffer, bytes);
  if (SSL_is_server(ssl) == 0) return got;
  kvkeep::Http2Connection* const connection = kvkeep::ConnectionOf(ssl);
  if (connection == nullptr) return got;
  connection->Decrypted();
  if (got <= 0) return got;
  const std::span all(static_cast<const std::byte*>(buffer), static_cast<size_t>(got));
  if (kvkeep::Http2Gate::OfProcess().Pass(connection, all)) return got;
  ERR_raise(ERR_LIB_USER, ERR_R_PASSED_INVALID_ARGUMENT);  // SSL_get_error: gRPC closes
  return -1;
}
