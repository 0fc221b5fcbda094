// PeerCallers: tells PeerService which node of the fleet makes a call. A node is who its
// certificate says: one that fleet.ca_file signed, that still holds, and whose DNS name is in this
// node's list of peers.
//
// Thread-safe.
#pragma once

#include <absl/container/flat_hash_set.h>
#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "server/access/callers.h"
#include "server/access/client_certificates.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class PeerCallers {
 public:
  explicit PeerCallers(std::shared_ptr<ClientCertificates> certificates)
      : certificates_(std::move(certificates)) {}

  // Replaces the names of the peers.
  void SetNames(const std::vector<std::string>& names);
  // Returns the node's name. Unauthenticated or PermissionDenied: the caller is no peer.
  absl::StatusOr<std::string> Who(const Callers::Context& context) const;
  // Returns OK if the caller may say that it is this node: a certificate may have several names.
  absl::Status CheckIs(const Callers::Context& context, const std::string& name) const;

 private:
  const std::shared_ptr<ClientCertificates> certificates_;
  mutable Mutex mu_;
  absl::flat_hash_set<std::string> names_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
