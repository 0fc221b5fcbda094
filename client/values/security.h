// Security over TCP: how the client authenticates the daemon, and itself to the daemon. Unix
// sockets need none of it, as the kernel identifies the peers.
//
// The files are read at every connect, so a replaced file is used from the next session on. Plain
// values, functions without state; thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <string>

namespace kvkeep::client {

struct SecurityOptions {
  std::string ca_file;  // PEM: one of these must have signed the daemon's certificate; turns TLS on
  std::string cert_file;  // PEM: our certificate and those between it and its root, for mutual TLS
  std::string key_file;   // PEM: the key of our certificate
  std::string server_name;  // in the daemon's certificate; empty: the endpoint's host
  std::string token;
  std::string token_file;  // holds the token; instead of `token`

  bool tls() const { return !ca_file.empty(); }
  // Checks the options for this endpoint; opens no file. InvalidArgument names the field.
  absl::Status Validate(absl::string_view endpoint) const;
};

// The contents of the files.
struct SecurityMaterial {
  std::string ca, cert, key;
  std::string token;  // empty: none
};
// Reads the files. InvalidArgument names the field and the file that is missing or wrong.
absl::StatusOr<SecurityMaterial> LoadSecurity(const SecurityOptions& options);

// Returns the host of "host:port" or "[v6]:port"; empty for a Unix socket.
std::string HostOf(absl::string_view endpoint);

}  // namespace kvkeep::client
