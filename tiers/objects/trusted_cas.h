// Where the system keeps the certificates of the authorities that it trusts. libcurl knows only the
// places of the distribution on which it was built.
//
// Stateless; threads may call it at once, unless one changes the environment meanwhile.
#pragma once

#include <absl/functional/function_ref.h>

#include <string>

namespace kvkeep {

struct TrustedCas {
  std::string file;    // PEM; empty: none
  std::string folder;  // files named by the hash of their certificate's subject; empty: none
};

// Returns what SSL_CERT_FILE and SSL_CERT_DIR name, where `environment` (as std::getenv) has
// either, and nothing else then. Otherwise returns the first file and the first folder that exist
// among the places of Debian, RHEL, SUSE and Alpine, looked for below `root`.
TrustedCas FindTrustedCas(absl::FunctionRef<const char*(const char*)> environment,
                          const std::string& root = "");

}  // namespace kvkeep
