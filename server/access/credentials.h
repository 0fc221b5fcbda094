// Credentials: identifies a client over TCP by the names in its certificate and by its token.
//
// A name belongs to one tenant; a token to the tenant in whose file its SHA-256 stands. With a
// token the token decides, and another tenant's certificate beside it is refused. A client that
// shows neither, or only unknown ones, is refused: no client becomes the default tenant by default,
// unless no tenant has any credentials at all (open()).
//
// A token file has a line for each token: 64 hex digits, then "read" or "write" if the token grants
// no more than that; "#" begins a comment. Tokens are compared by their hashes, all of them, in
// constant time. Thread-safe, but Reload is for one thread.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/base/private_file.h"
#include "tiers/store/types.h"

namespace kvkeep {

// The identified caller of a call.
struct Caller {
  TenantId tenant;
  Grants grants;
  std::string who;  // for status and logs
};

// The credentials by which a tenant is known over TCP.
struct TenantCredentials {
  std::string tenant;                          // its name, for messages
  std::vector<std::string> certificate_names;  // "NAME", "NAME read", "NAME write"; "any"
  std::string token_file;                      // empty: none
};

// The credentials that a client shows.
struct Presented {
  std::vector<absl::string_view> dns_names, uri_names;  // of its verified certificate
  std::optional<absl::string_view> token;
};

inline constexpr size_t kMaxTokensPerFile = 64;
inline constexpr size_t kMinTokenBytes = 16, kMaxTokenBytes = 1024;

class Credentials {
 public:
  // `tenants`: by TenantId. `may_be_open`: false if certificates of others, who are no clients,
  // reach the address, too. InvalidArgument: a token file cannot be read, or is not one.
  static absl::StatusOr<std::unique_ptr<Credentials>> Load(
      const std::vector<TenantCredentials>& tenants, bool may_be_open = true);

  // True if no tenant has any credentials, and that is allowed: every client is then the default
  // tenant.
  bool open() const { return open_; }
  // Unauthenticated says what is missing or wrong, and nothing of other tenants' credentials.
  absl::StatusOr<Caller> Identify(const Presented& presented) const;

  struct News {
    std::string file;
    absl::Status status;  // not OK: why the tokens are still those of before
  };
  // Reads the token files that changed. To be called about every second.
  std::vector<News> Reload();

 private:
  struct Owner {
    TenantId tenant;
    Grants grants;
    std::string shown;
  };
  struct Token {
    std::array<unsigned char, 32> sha256;
    Grants grants;
    size_t line = 0;
  };
  using Tokens = std::vector<Token>;
  struct TokenFile {
    TenantId tenant;
    std::string tenant_name, path;
    FileChanges changes;
  };

  Credentials() = default;
  static absl::StatusOr<Tokens> ReadTokens(const std::string& path);
  const Owner* FindName(const Presented& presented, bool* two_tenants) const;
  std::optional<Owner> FindToken(absl::string_view token) const;

  bool open_ = true;
  absl::flat_hash_map<std::string, Owner> dns_names_, uri_names_;  // constant; DNS in lower case
  std::optional<Owner> any_certificate_;                           // constant
  std::vector<TokenFile> files_;  // Reload's thread, but for tenant and its name: constant
  mutable Mutex mu_;
  std::vector<std::shared_ptr<const Tokens>> tokens_ ABSL_GUARDED_BY(mu_);  // of files_
};

}  // namespace kvkeep
