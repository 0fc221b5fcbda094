// DeclaredNamespaces: the namespaces of one transport, which it declares anew in each session, and
// the daemon's answers. The owner locks the list; each namespace is thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/transport/transport.h"
#include "client/values/types.h"
#include "tiers/base/key.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class DeclaredNamespace final : public NamespaceBinding {
 public:
  explicit DeclaredNamespace(NamespaceSpec spec) : spec_(std::move(spec)) {}

  const NamespaceSpec& spec() const { return spec_; }
  NamespaceDigest digest() const override;
  // Returns whether the daemon has answered in the session of that number, with any answer.
  bool AnsweredIn(uint64_t epoch) const;
  // Returns its digest in that session. UNAVAILABLE: there is no answer yet. Otherwise the refusal.
  absl::StatusOr<NamespaceDigest> DigestIn(uint64_t epoch) const;
  absl::Status refusal() const;  // of the last answer; OK: it was accepted, or there is none

  // Takes the daemon's answer in that session. A refusal is an answer, too, and no reason to end
  // the session. Any other error is not an answer: it is returned, and changes nothing.
  absl::Status TakeAnswer(uint64_t epoch, const absl::StatusOr<NamespaceDigest>& answer);

 private:
  const NamespaceSpec spec_;
  mutable Mutex mu_;
  NamespaceDigest digest_ ABSL_GUARDED_BY(mu_);
  uint64_t answered_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
};

class DeclaredNamespaces {
 public:
  using Ptr = std::shared_ptr<DeclaredNamespace>;
  static constexpr size_t kMost = 1024;

  // Returns the namespace with this spec, added if it is new. RESOURCE_EXHAUSTED: there are kMost.
  absl::StatusOr<Ptr> Add(const NamespaceSpec& spec);
  void Remove(const Ptr& ns);
  // Returns the namespaces without an answer in the session of that number.
  std::vector<Ptr> Undeclared(uint64_t epoch) const;

 private:
  std::vector<Ptr> all_;
};

}  // namespace kvkeep::client
