#include "client/transport/declared_namespaces.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/status_macros.h"

namespace kvkeep::client {

NamespaceDigest DeclaredNamespace::digest() const {
  MutexLock lock(&mu_);
  return digest_;
}

bool DeclaredNamespace::AnsweredIn(uint64_t epoch) const {
  MutexLock lock(&mu_);
  return answered_epoch_ == epoch;
}

absl::StatusOr<NamespaceDigest> DeclaredNamespace::DigestIn(uint64_t epoch) const {
  MutexLock lock(&mu_);
  if (answered_epoch_ != epoch) {
    return absl::UnavailableError("namespace: the daemon has not confirmed it yet");
  }
  KVKEEP_RETURN_IF_ERROR(refusal_);
  return digest_;
}

absl::Status DeclaredNamespace::refusal() const {
  MutexLock lock(&mu_);
  return refusal_;
}

absl::Status DeclaredNamespace::TakeAnswer(uint64_t epoch,
                                           const absl::StatusOr<NamespaceDigest>& answer) {
  const absl::Status& status = answer.status();
  const bool refused = absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
                       absl::IsPermissionDenied(status);
  if (!status.ok() && !refused) return status;
  MutexLock lock(&mu_);
  answered_epoch_ = epoch;
  refusal_ = status;
  if (status.ok()) digest_ = *answer;
  return absl::OkStatus();
}

absl::StatusOr<DeclaredNamespaces::Ptr> DeclaredNamespaces::Add(const NamespaceSpec& spec) {
  for (const Ptr& known : all_) {
    if (known->spec() == spec) return known;
  }
  if (all_.size() >= kMost) {
    return absl::ResourceExhaustedError(
        absl::StrCat("namespaces of this client: at the limit of ", kMost));
  }
  return all_.emplace_back(std::make_shared<DeclaredNamespace>(spec));
}

void DeclaredNamespaces::Remove(const Ptr& ns) { std::erase(all_, ns); }

std::vector<DeclaredNamespaces::Ptr> DeclaredNamespaces::Undeclared(uint64_t epoch) const {
  std::vector<Ptr> missing;
  for (const Ptr& ns : all_) {
    if (!ns->AnsweredIn(epoch)) missing.push_back(ns);
  }
  return missing;
}

}  // namespace kvkeep::client
