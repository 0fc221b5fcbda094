// LocalGet: one get into the caller's memory: leases chunks, copies them out of the arena, checks
// them, and gives the lease back.
//
// Without a lease of the caller's it takes leases of its own, for as many keys at a time as the
// daemon grants. It copies the complete chunks of a lease first, so that a chunk whose bytes do not
// come in time costs no other chunk. Blocks; runs on one thread. Internal.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/local/local_lease.h"
#include "client/local/local_transport.h"
#include "client/transport/destination.h"

namespace kvkeep::client {

class LocalGet {
 public:
  struct What {
    LocalSessionPtr session;
    NamespaceDigest ns;
    Keys keys;
    size_t parts = 0;  // number asked for
    GetOptions options;
    LocalSession::Time deadline;
    std::shared_ptr<LocalCounters> counters;
  };
  explicit LocalGet(What what);

  // Not OK: no chunk has an outcome.
  absl::StatusOr<GetResult> Run();

 private:
  absl::Status RunLeased();
  absl::Status RunUnleased();
  // Finishes the keys from `begin` on whose outcome `found` decides. Returns the first of the
  // others.
  absl::StatusOr<size_t> Take(size_t begin, const Found& found);
  // Delivers a complete chunk, and leaves one that is on its way to DeliverLate, which waits.
  absl::Status DeliverOrPutOff(size_t chunk, const Layout& layout, const LaidChunk& laid);
  absl::Status DeliverLate(const Layout& layout);
  // Copies a chunk that lies in `layout`. Not OK: the get cannot go on.
  absl::Status Deliver(size_t chunk, const Layout& layout, const LaidChunk& laid);
  absl::Status Copy(const Layout& layout, const LaidChunk& laid, uint64_t begin, uint64_t end,
                    Destination to, std::vector<uint64_t>* checksums);
  bool HeaderFits(size_t chunk, const Layout& layout, const LaidChunk& laid, uint64_t begin,
                  const std::vector<uint64_t>& checksums) const;
  void Finish(size_t chunk, GetStatus status) {
    result_.chunks[chunk].status = status;
    ++finished_;
  }

  // Checks that the chunk's memory was not given to others while it was read.
  absl::Status CheckHeld(size_t chunk) const;

  What what_;
  const Destinations destinations_;
  const LocalLease* lease_ = nullptr;  // the caller's, if there is one
  GetResult result_;
  size_t finished_ = 0;
  std::vector<std::pair<size_t, const LaidChunk*>> late_;
};

}  // namespace kvkeep::client
