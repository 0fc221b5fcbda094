// AdminClient: the operator's client, on the daemon's admin socket, or over TCP with a certificate
// that the daemon accepts for admin calls. Blocking; thread-safe.
//
// It has no session and no background work: each call connects if needed and ends by its deadline.
// UNAVAILABLE: nobody listens on the socket. Replies are the generated messages, for tools.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "client/values/security.h"
#include "client/values/types.h"
#include "kvkeep/v1/kvkeep.grpc.pb.h"

namespace kvkeep::client {

class AdminClient {
 public:
  // `endpoint` as in ClientOptions; `deadline` of every call.
  AdminClient(const std::string& endpoint, Deadline deadline, const SecurityOptions& security = {});

  absl::StatusOr<v1::StatusResponse> Status();
  // Forgets the chunks of one namespace; null: of all. `g4`: also forgets all chunks that the fleet
  // has in G4; only without a namespace.
  absl::StatusOr<v1::ClearResponse> Clear(const NamespaceDigest* ns, bool g4 = false);
  // Waits for dirty chunks at most `timeout` (zero: as the daemon is configured), which replaces
  // the usual deadline when it is longer. `g4`: waits as long for writes to G4, too. `to_peers`:
  // and for peers, which take the hottest chunks.
  absl::StatusOr<v1::DrainResponse> Drain(Deadline timeout, bool g4 = false, bool to_peers = false);
  absl::StatusOr<v1::ReloadConfigResponse> ReloadConfig();
  absl::StatusOr<v1::ShowConfigResponse> ShowConfig();
  absl::StatusOr<v1::ListNamespacesResponse> ListNamespaces();
  absl::StatusOr<v1::EvictResponse> Evict(const v1::EvictRequest& request);
  absl::StatusOr<v1::VerifyResponse> Verify(const v1::VerifyRequest& request);
  absl::StatusOr<v1::ShowReuseResponse> ShowReuse();

 private:
  // One call, by `deadline`.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Admin::Stub::*call)(grpc::ClientContext*,
                                                                      const Request&, Response*),
                                const Request& request, Deadline deadline);
  std::unique_ptr<grpc::ClientContext> NewContext(Deadline deadline) const;
  // Returns the absl::Status, with an explanation if TLS is the cause.
  absl::Status ErrorOf(const grpc::Status& status) const;

  const std::string endpoint_;
  const Deadline deadline_;
  const SecurityOptions security_;
  absl::Status unusable_;                  // options or files are wrong; constant
  std::unique_ptr<v1::Admin::Stub> stub_;  // null: unusable; constant
};

}  // namespace kvkeep::client
