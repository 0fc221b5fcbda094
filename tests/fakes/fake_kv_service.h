// FakeKvService: kvkeep.v1 over a std::map, with failures on request; and FakeDaemon, which serves
// it on a Unix socket and can die and come back.
//
// It keeps the chunks across restarts, and loses sessions, namespaces and leases, like the real
// daemon. Thread-safe.
#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "tiers/base/mutex.h"

namespace kvkeep::fakes {

class FakeKvService final : public v1::KvCache::Service {
 public:
  // Failures and other settings; may be changed at any time.
  struct Script {
    std::atomic<bool> hang_lookup{false};  // until the client gives up or it is off
    std::atomic<bool> hang_get{false};
    std::atomic<bool> hang_put{false};         // reads nothing, answers nothing
    std::atomic<bool> hang_session{false};     // OpenSession sends no event
    std::atomic<bool> forget_sessions{false};  // every token is unknown, the streams stay
    std::atomic<int> corrupt_gets{0};          // this many chunks are sent with one byte flipped
    std::atomic<bool> wrong_bytes{false};      // as above, with checksums that match: a liar
    std::atomic<int> corrupt_midway{0};  // this many chunks become CORRUPT after their first frame
    std::atomic<int> end_get_after{-1};  // frames after which the stream ends
    std::atomic<int> end_get_code{0};    // with this code
    std::atomic<bool> reject_puts{false};
    std::atomic<bool> skip_part_of_frame{false};  // breaks the protocol: an offset too far
    std::atomic<uint32_t> max_leased_keys{UINT32_MAX};
    std::atomic<bool> in_g3{false};  // lookups say G3 instead of G2
    // Everything is beyond the node: on its way for lookups and gets that wait, else absent.
    std::atomic<bool> in_g4{false};
    std::atomic<uint64_t> max_frame_bytes{4 << 20};
  };
  Script script;

  // Counters of requests.
  std::atomic<int> sessions_opened{0}, namespaces_opened{0}, lookups{0}, gets{0}, put_streams{0},
      releases{0};
  size_t chunks() const;
  size_t leases() const;
  std::string last_parent_key() const;

  // Answers each Watch from now on; without a handler it is UNIMPLEMENTED.
  using WatchHandler =
      std::function<grpc::Status(grpc::ServerContext*, grpc::ServerWriter<v1::WatchEvents>*)>;
  void OnWatch(WatchHandler handler);

  // Forgets sessions, namespaces and leases, as a restart does.
  void NewIncarnation();
  // Ends the streams of all sessions, so that a server can stop.
  void EndSessions(bool end) { end_sessions_ = end; }
  void ClearChunks();

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override;
  grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest*,
                           grpc::ServerWriter<v1::SessionEvent>* writer) override;
  grpc::Status OpenNamespace(grpc::ServerContext*, const v1::OpenNamespaceRequest* request,
                             v1::OpenNamespaceResponse* response) override;
  grpc::Status Lookup(grpc::ServerContext* context, const v1::LookupRequest* request,
                      v1::LookupResponse* response) override;
  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request,
                   grpc::ServerWriter<v1::GetFrame>* writer) override;
  grpc::Status Put(grpc::ServerContext* context,
                   grpc::ServerReaderWriter<v1::PutResult, v1::PutFrame>* stream) override;
  grpc::Status Touch(grpc::ServerContext*, const v1::TouchRequest* request,
                     v1::TouchResponse* response) override;
  grpc::Status Prefetch(grpc::ServerContext*, const v1::PrefetchRequest* request,
                        v1::PrefetchResponse* response) override;
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override;
  grpc::Status Delete(grpc::ServerContext*, const v1::DeleteRequest* request,
                      v1::DeleteResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchEvents>* writer) override;

 private:
  struct Chunk {
    std::string payload;
    std::string metadata;
  };
  struct Lease {
    std::vector<std::string> keys;
    uint64_t request_id = 0;
  };
  using Id = std::tuple<std::string, std::string, uint32_t>;  // namespace, key, part

  grpc::Status CheckSession(const std::string& token, const std::string& digest) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<uint32_t> PartsOf(const std::string& digest,
                                const google::protobuf::RepeatedField<uint32_t>& asked) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns false if the stream must end.
  bool SendChunk(const v1::GetRequest& request, v1::GetFrame frame, const Chunk& chunk, int* frames,
                 grpc::ServerWriter<v1::GetFrame>* writer);
  v1::PutResult Store(const std::string& digest, const v1::PutChunkHeader& header,
                      std::string payload);
  size_t CountPresent(const std::string& digest, const std::string& keys,
                      const google::protobuf::RepeatedField<uint32_t>& parts) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<bool> end_sessions_{false};
  mutable Mutex mu_;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::set<std::string> sessions_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<std::string, std::string>> opened_ ABSL_GUARDED_BY(mu_);  // session, namespace
  std::map<std::string, uint32_t> parts_ ABSL_GUARDED_BY(mu_);                 // by namespace
  std::map<uint64_t, Lease> leases_ ABSL_GUARDED_BY(mu_);
  std::map<Id, Chunk> chunks_ ABSL_GUARDED_BY(mu_);
  std::string last_parent_key_ ABSL_GUARDED_BY(mu_);
  WatchHandler on_watch_ ABSL_GUARDED_BY(mu_);
};

class FakeAdminService final : public v1::Admin::Service {
 public:
  explicit FakeAdminService(FakeKvService* kv) : kv_(kv) {}
  std::atomic<uint64_t> g2_used{4096}, g2_capacity{1 << 20}, g2_to_come{0};
  std::atomic<int> dirty_answers{0};    // this many answers report 4096 dirty bytes
  std::atomic<int> joining_answers{0};  // this many answers report that the device is joining
  std::atomic<int> g4_state{v1::G4_STATE_UNSPECIFIED};  // UNSPECIFIED: there is no G4
  std::atomic<bool> g4_takes_puts{true};
  // Chunks left by a drain that waits for G4; whether the last drain waited.
  std::atomic<uint64_t> g4_left_at_drain{0};
  std::atomic<bool> drain_waited_for_g4{false};
  // Answers a drain to peers; null: it is not known here. Set between calls.
  std::function<void(v1::DrainResponse*)> hand_over_at_drain;
  std::atomic<uint64_t> directory_bytes{0}, device_capacity{1 << 20};

  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusResponse* response) override;
  grpc::Status Clear(grpc::ServerContext*, const v1::ClearRequest*,
                     v1::ClearResponse* response) override;
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*,
                     v1::DrainResponse* response) override;
  // Reports one change; FAILED_PRECONDITION with `refuse_reload`.
  grpc::Status ReloadConfig(grpc::ServerContext*, const v1::ReloadConfigRequest*,
                            v1::ReloadConfigResponse* response) override;
  grpc::Status ShowConfig(grpc::ServerContext*, const v1::ShowConfigRequest*,
                          v1::ShowConfigResponse* response) override;
  grpc::Status ListNamespaces(grpc::ServerContext*, const v1::ListNamespacesRequest*,
                              v1::ListNamespacesResponse* response) override;
  // Evicts the requested bytes, in one chunk.
  grpc::Status Evict(grpc::ServerContext*, const v1::EvictRequest* request,
                     v1::EvictResponse* response) override;
  // Ends at once; finds `damaged` chunks.
  grpc::Status Verify(grpc::ServerContext*, const v1::VerifyRequest* request,
                      v1::VerifyResponse*) override;
  // Reports 10 lookups of 1000 chunks of 1 MiB over an hour: 400 for the first time, 300 within 1
  // MiB, 300 within 16 GiB; so a smaller cache hits 30 %. Reports nothing with `unused`.
  grpc::Status ShowReuse(grpc::ServerContext*, const v1::ShowReuseRequest*,
                         v1::ShowReuseResponse* response) override;

  std::atomic<bool> unused{false};

  std::atomic<bool> refuse_reload{false};
  std::atomic<uint64_t> damaged{0}, verify_rate{0};
  std::atomic<uint64_t> statuses{0};  // asked for

 private:
  FakeKvService* const kv_;
  std::atomic<uint64_t> scrubbed_{0}, scrub_damaged_{0};
};

// Serves both on sockets in a new directory under /tmp, which it removes at the end.
class FakeDaemon {
 public:
  FakeDaemon();  // started
  ~FakeDaemon();

  void Stop();   // as if killed: connections break, the sockets stay as dead files
  void Start();  // on the same sockets
  std::string endpoint() const { return "unix://" + directory_ + "/kv.sock"; }
  std::string admin_endpoint() const { return "unix://" + directory_ + "/admin.sock"; }

  FakeKvService kv;
  FakeAdminService admin{&kv};

 private:
  std::string directory_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace kvkeep::fakes
