// AdminService: the gRPC service kvkeep.v1.Admin, on the admin socket, and over TCP for
// certificates that are named for it. Every call is in the audit log. Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <optional>
#include <string>

#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "server/access/audit_log.h"
#include "server/access/callers.h"
#include "server/life/config_keeper.h"
#include "server/life/drainer.h"
#include "server/observe/peer_counters.h"
#include "server/observe/server_state.h"
#include "tiers/remote/g4.h"
#include "tiers/store/store.h"

namespace kvkeep {

// Facts that the status shows besides the store's own snapshot.
struct StatusFacts {
  std::string arena;
  std::string io_engine;
  std::string gpu;
  uint64_t gpu_arena_registered_bytes = 0;  // of the arena, by the GPU's driver
  uint64_t gpu_arena_refused_bytes = 0;
  std::optional<G4Snapshot> g4;  // none: nothing lies beyond the node
  std::optional<FleetSnapshot> fleet = {};  // none: the node has no peers
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  struct Deps {
    Store* store = nullptr;
    ServerState* state = nullptr;
    Drainer* drainer = nullptr;
    std::function<std::chrono::nanoseconds()> drain_timeout;  // when the request names none
    // StorageStack's.
    std::function<void(absl::AnyInvocable<void(absl::Status) &&>)> clear_g4;
    std::function<StoreSnapshot()> snapshot;  // the store's, and devices that it does not know
    std::function<StatusFacts()> facts;
    Callers* callers = nullptr;  // of the listeners that have this service
    AuditLog* audit = nullptr;
    // ConfigKeeper's.
    std::string config_file;
    std::function<std::optional<LoadResult>()> config;
    std::function<void(ConfigKeeper::Done)> reload;
  };
  // All must outlive the service and the calls it serves.
  explicit AdminService(Deps deps);

  using Context = grpc::CallbackServerContext;
  grpc::ServerUnaryReactor* Status(Context* context, const v1::StatusRequest* request,
                                   v1::StatusResponse* response) override;
  grpc::ServerUnaryReactor* Clear(Context* context, const v1::ClearRequest* request,
                                  v1::ClearResponse* response) override;
  grpc::ServerUnaryReactor* Drain(Context* context, const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* ReloadConfig(Context* context, const v1::ReloadConfigRequest* request,
                                         v1::ReloadConfigResponse* response) override;
  grpc::ServerUnaryReactor* ShowConfig(Context* context, const v1::ShowConfigRequest* request,
                                       v1::ShowConfigResponse* response) override;
  grpc::ServerUnaryReactor* ListNamespaces(Context* context, const v1::ListNamespacesRequest*,
                                           v1::ListNamespacesResponse* response) override;
  grpc::ServerUnaryReactor* Evict(Context* context, const v1::EvictRequest* request,
                                  v1::EvictResponse* response) override;
  grpc::ServerUnaryReactor* Verify(Context* context, const v1::VerifyRequest* request,
                                   v1::VerifyResponse* response) override;
  grpc::ServerUnaryReactor* ShowReuse(Context* context, const v1::ShowReuseRequest*,
                                      v1::ShowReuseResponse* response) override;

 private:
  // One call, as the audit log records it.
  struct Asked {
    absl::string_view call;
    std::string what;
    std::string who;
  };
  // On an error the caller may not make the call, and the refusal is already recorded.
  absl::Status Begin(const Context& context, Asked* asked);
  void Record(const Asked& asked, std::string outcome);
  // Records a call that only reads; the log sums up repeated ones.
  void RecordLook(const Asked& asked);
  absl::Status DoClear(const std::string& digest, v1::ClearResponse* response);

  const Deps deps_;
};

void FillStatus(const StoreSnapshot& snapshot, const ServerState& state, v1::StatusResponse* out);
void FillG4(const G4Snapshot& g4, const RemoteCounters& counters, v1::StatusResponse* out);

}  // namespace kvkeep
