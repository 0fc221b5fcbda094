// SessionStream: the stream that keeps a session open, for as long as it runs. Internal.
//
// Thread-safe. `changed` runs after each change of what the accessors return, with no lock of the
// stream held.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <memory>
#include <string>

#include "client/values/types.h"
#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

ServerLimits FromWire(const v1::Limits& limits);
ServerInfo FromWire(const v1::GetServerInfoResponse& response);
v1::OpenNamespaceRequest ToWire(const NamespaceSpec& spec, const std::string& session_token);

class SessionStream final : public grpc::ClientReadReactor<v1::SessionEvent> {
 public:
  explicit SessionStream(absl::AnyInvocable<void()> changed) : changed_(std::move(changed)) {}
  ~SessionStream() override;  // REQUIRES: never started, or WaitDone has returned

  // `authorization`: metadata, empty: none.
  void Start(v1::KvCache::Stub* stub, absl::string_view client_name,
             const std::string& authorization);
  void Cancel() { context_.TryCancel(); }
  // Blocks until the stream is over, which is soon after Cancel. Returns why it ended.
  absl::Status WaitDone();

  bool opened() const;  // the daemon sent the session's token
  bool done() const;
  absl::Status status() const;  // once done
  std::string token() const;    // once opened
  ServerLimits limits() const;  // once opened

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  absl::AnyInvocable<void()> changed_;
  grpc::ClientContext context_;
  v1::OpenSessionRequest request_;
  v1::SessionEvent event_;  // being read
  bool started_ = false;

  mutable Mutex mu_;
  CondVar over_;
  bool opened_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  bool returned_ ABSL_GUARDED_BY(mu_) = false;  // OnDone uses no member any more
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::string token_ ABSL_GUARDED_BY(mu_);
  ServerLimits limits_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
