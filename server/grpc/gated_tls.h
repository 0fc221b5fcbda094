// Passes TLS connections through Http2Gate: their clients' bytes are in the clear only where gRPC
// decrypts them.
//
// kvkeepd's own SSL_read(3), in gated_tls.cc, takes the place of OpenSSL's. An SSL object belongs
// to the connection from which its thread last received before its first decryption. Thread-safe.
#pragma once

#include <cstddef>

namespace kvkeep {

// Counts bytes that this thread received from a TLS connection at the gate. Must be called before
// this thread receives anything else.
void NoteEncrypted(int fd, size_t bytes);

}  // namespace kvkeep
