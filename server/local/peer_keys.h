// PeerKeys: one peer's requests about keys: lookup, get, touch, prefetch, release, delete. Most are
// answered at once. A delete is answered once a kill of the daemon could not bring the chunks back.
// A lookup that reaches beyond the node waits for the store's search; its request is kept until
// then, and looked up again.
//
// One thread, the loop's. The store's answers come back there and hold this weakly, as the
// connection may be gone.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "proto/local/message.h"
#include "server/local/context.h"
#include "server/local/keys_call.h"
#include "server/local/message_memory.h"
#include "server/local/peer_replies.h"
#include "server/local/peer_session.h"

namespace kvkeep {

class PeerKeys : public std::enable_shared_from_this<PeerKeys> {
 public:
  PeerKeys(std::shared_ptr<const LocalContext> context, std::shared_ptr<PeerSession> session,
           std::shared_ptr<PeerReplies> replies);

  // Serves one of the six requests. kLater: the reply, and the note of its end, come later.
  enum class Answered { kNow, kLater };
  absl::StatusOr<Answered> Serve(const local::Message& message);
  // Returns the number of keys in the request served last.
  size_t keys() const { return call_.chunks().keys.size(); }

  // Returns how many requests are not answered yet.
  size_t in_flight() const { return searching_.size() + deleting_.size(); }
  // Call when the connection is gone: nothing more is answered.
  void End();

 private:
  // A lookup or get that waits for a search beyond the node.
  struct Searching {
    local::Kind kind{};
    uint64_t id = 0;  // of the message
    MonotonicTime began{0};
    MessageHold held;
    std::vector<std::byte> body;
  };
  // A delete that is done but not answered yet.
  struct Deleting {
    uint64_t id = 0;  // of the message
    MonotonicTime began{0};
    size_t keys = 0;
    uint64_t chunks = 0;  // deleted
  };

  // Names all parts of the namespace if the request names none.
  absl::Status ResolveParts();
  void DoReleases();
  absl::StatusOr<Answered> Prefetch(uint64_t id);
  absl::StatusOr<Answered> Touch(uint64_t id);

  absl::StatusOr<Answered> Delete(uint64_t id);
  void OnDeleted(uint64_t number, const absl::Status& status);
  absl::StatusOr<Answered> LookupBeyond(const local::Message& message);
  void OnSearched(uint64_t number);
  absl::Status LookAgain(const Searching& searching);

  // `searched`: the store looked beyond the node for this request.
  absl::Status ReplyLookup(local::Kind kind, uint64_t id, const LookupResult& found, bool searched);
  absl::Status AddPlaces(const LookupResult& found);
  void UndoLease(const LookupResult& found, bool known);

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<PeerSession> session_;
  const std::shared_ptr<PeerReplies> replies_;
  uint64_t next_number_ = 1;
  absl::flat_hash_map<uint64_t, Searching> searching_;
  absl::flat_hash_map<uint64_t, Deleting> deleting_;
  // The scratch.
  KeysCall& call_;
  std::vector<local::Place>& places_;
  std::vector<local::ImageRun>& runs_;
};

}  // namespace kvkeep
