// PeerSession: the session that one client's Hello opened: its tenant, protocol version,
// namespaces, leases and state. One thread, the loop's.
//
//   New --Open--> Open --Revoke--> Revoked      every state --End--> Ended
//
// Revoke and End give the session's leases back. The owners of puts and GPU memory end these
// before.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/gpu_account.h"
#include "server/local/message_memory.h"
#include "server/local/peer_replies.h"
#include "server/local/progress_memory.h"
#include "server/local/session_leases.h"

namespace kvkeep {

// One connection's client, and what its tenant may have.
struct PeerIdentity {
  std::string peer;  // for status and logs
  TenantId tenant;
  Grants grants;
  SegmentRange segments;
  std::vector<SegmentRange> shared = {};               // of tenants whose chunks it may read
  std::shared_ptr<StagingAccount> staging;             // of its tenant; null: no limit of its own
  std::shared_ptr<GpuAccount> gpu;                     // likewise
  std::shared_ptr<MessageAccount> messages = nullptr;  // likewise
  GpuOwner gpu_owner;                                  // this connection's
  int process = 0;                     // its number, from the kernel; 0: not known
  absl::Status refusal;                // not OK: the answer to its Hello
  DescriptorCloser::Owner closes = 0;  // whom descriptors that it passes are charged to
};

class PeerSession {
 public:
  PeerSession(std::shared_ptr<const LocalContext> context, PeerIdentity identity,
              std::shared_ptr<PeerReplies> replies);

  // ---- requests; those that succeed are answered
  // Serves Hello: opens the session and sends its arena. On an error the session may be open; the
  // connection ends in any case. REQUIRES: fresh().
  absl::Status Open(const local::Message& message);
  absl::Status OpenNamespace(const local::Message& message);
  absl::Status ServerInfo(const local::Message& message);

  bool fresh() const { return state_ == State::kNew; }
  bool open() const { return state_ == State::kOpen; }
  bool revoked() const { return state_ == State::kRevoked; }
  bool ended() const { return state_ == State::kEnded; }

  const PeerIdentity& identity() const { return identity_; }
  // Returns the version of the protocol in use. REQUIRES: Hello was taken.
  uint16_t version() const { return version_; }
  // REQUIRES, also for leases(): the session is or was open.
  const SessionToken& token() const { return token_; }
  SessionLeases& leases() { return *leases_; }
  // Returns how many parts a namespace has. FailedPrecondition: the session did not open it.
  absl::StatusOr<uint32_t> PartsOf(const NamespaceDigest& ns) const;
  // Returns the largest chunk size that the session's namespaces declare; 0: none declares one.
  uint64_t LargestChunk() const;
  // Returns how much staging memory the session may have.
  uint64_t MostStaging() const;
  // Takes memory for a request that is answered later, by the size of its message.
  // ResourceExhausted names the limit.
  absl::StatusOr<MessageHold> HoldFor(size_t message_bytes) const;

  // Revokes the session of a client that does not respond: its bytes may go to others from now on.
  // REQUIRES: open().
  void Revoke();
  // Call when the connection is gone. Idempotent.
  void End();

 private:
  enum class State { kNew, kOpen, kRevoked, kEnded };
  struct Namespace {
    uint32_t parts = 0;
    uint64_t bytes_per_part = 0;
  };

  absl::Status OpenInStore(std::string client_name);
  absl::Status SendWelcome(uint64_t id);
  absl::Status SendSegments(const SegmentRange& range);

  const std::shared_ptr<const LocalContext> context_;
  const PeerIdentity identity_;
  const std::shared_ptr<PeerReplies> replies_;
  State state_ = State::kNew;
  uint16_t version_ = 0;
  SessionToken token_;
  std::shared_ptr<ProgressMemory> progress_;
  std::optional<SessionLeases> leases_;
  absl::flat_hash_map<NamespaceDigest, Namespace> namespaces_;
};

}  // namespace kvkeep
