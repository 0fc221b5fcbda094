// PutMemory: the memory that the daemon reads a client's puts from: the session's staging area and
// what the caller registered. Belongs to the transport, over all sessions. Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/local/requests.h"
#include "client/local/staging.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class PutMemory {
 public:
  // The session's staging area, asked for when there is none, or none that holds a chunk of
  // `chunk_bytes`. RESOURCE_EXHAUSTED: over the daemon's limit, or the smaller one is in use.
  absl::StatusOr<std::shared_ptr<StagingArea>> Area(const LocalSessionPtr& session,
                                                    uint64_t chunk_bytes,
                                                    LocalSession::Time deadline);
  absl::StatusOr<std::shared_ptr<LocalRegion>> Register(const LocalSessionPtr& session, int fd,
                                                        std::span<const std::byte> mapping,
                                                        LocalSession::Time deadline);
  // A new session: what is registered with the old one is made known to it.
  void RegisterAgain(const LocalSessionPtr& session, LocalSession::Time deadline);
  // The session is over.
  void Close(uint64_t epoch);

  // Where the daemon can read `run` itself; none: it has to be copied.
  struct Direct {
    uint32_t region = local::kStagingRegion;
    uint64_t offset = 0;
    std::shared_ptr<StagingArea> area;  // one of the two
    std::shared_ptr<LocalRegion> registered;
  };
  std::optional<Direct> Find(uint64_t epoch, std::span<const std::byte> run);

 private:
  // Perhaps a smaller one, when the daemon has no more.
  absl::StatusOr<std::shared_ptr<StagingArea>> AskForArea(const LocalSessionPtr& session,
                                                          uint64_t chunk_bytes,
                                                          LocalSession::Time deadline);

  Mutex mu_;
  CondVar asked_;
  bool asking_ ABSL_GUARDED_BY(mu_) = false;  // a thread is getting an area
  uint64_t area_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<StagingArea> area_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<LocalRegion>> regions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
