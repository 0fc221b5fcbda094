// Passes TLS connections through Http2Gate: their clients' bytes are in the clear only where gRPC
// decrypts them.
//
// SSL_read(3) of kvkeepd stands before OpenSSL's, and gated_tls.cc has it. An SSL belongs to the
// connection by which its thread received last before it decrypted first. Thread-safe.
#pragma once

#include <cstddef>

namespace kvkeep {

// Counts bytes that this thread received by a connection with TLS at the gate, before anything else
// is received on this thread.
void NoteEncrypted(int fd, size_t bytes);

}  // namespace kvkeep
