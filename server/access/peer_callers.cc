#include "server/access/peer_callers.h"

#include <absl/strings/ascii.h>

#include <algorithm>

#include "tiers/base/status_macros.h"

namespace kvkeep {

void PeerCallers::SetNames(const std::vector<std::string>& names) {
  absl::flat_hash_set<std::string> lower;
  for (const std::string& name : names) lower.insert(absl::AsciiStrToLower(name));
  MutexLock lock(&mu_);
  names_ = std::move(lower);
}

absl::StatusOr<std::string> PeerCallers::Who(const Callers::Context& context) const {
  KVKEEP_RETURN_IF_ERROR(CheckTls(*context.auth_context(), certificates_.get()));
  const std::vector<std::string> shown = CertificateNames(context);
  MutexLock lock(&mu_);
  for (const std::string& name : shown) {
    if (names_.contains(name)) return name;
  }
  return absl::PermissionDeniedError(
      "peers: none of the certificate's names is a node's in this node's list of peers");
}

absl::Status PeerCallers::CheckIs(const Callers::Context& context, const std::string& name) const {
  KVKEEP_RETURN_IF_ERROR(Who(context).status());
  const std::string lower = absl::AsciiStrToLower(name);
  const std::vector<std::string> shown = CertificateNames(context);
  MutexLock lock(&mu_);
  const bool its_own = std::find(shown.begin(), shown.end(), lower) != shown.end();
  if (its_own && names_.contains(lower)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "node: no name of the certificate that is in the list of peers");
}

}  // namespace kvkeep
