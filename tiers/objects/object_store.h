// ObjectStore: the seam to objects under names: a bucket, or a directory that machines share.
//
// Get, Put, Delete, List and Cancel return at once. Each request is answered once, later, never
// inside the call and with no lock held. The answer comes by the deadline, or soon after Cancel, as
// far as the store can cut short what it does. The callbacks of one request (its sink, its `done`)
// are called one after another, on threads of the store; those of two requests may run at the same
// time. The store touches memory that a request names until `done` has begun, no longer.
// Thread-safe.
//
// An object is put as a whole or not at all, and its bytes never change: it is replaced or deleted.
// A read gives the bytes of one version. After a failure it goes on with the same version, or
// fails. Beyond that a store is not trusted: the reader checks the bytes.
//
// The destructor cancels all requests under way, and returns when all of them are answered.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/strong_int.h"
#include "tiers/objects/http_date.h"
#include "tiers/objects/object_outcome.h"

namespace kvkeep {

using ObjectCall = StrongInt<struct ObjectCallTag, uint64_t>;

inline constexpr size_t kMaxObjectNameBytes = 512;

struct ByteRange {
  uint64_t first = 0;
  uint64_t bytes = 0;  // above 0

  bool operator==(const ByteRange&) const = default;
};

// A deadline that is not set is the store's own longest one.
struct GetObject {
  std::string name;
  std::optional<ByteRange> range;  // none: all of it
  std::string if_match;            // an ETag as the store told it; empty: any version
  MonotonicTime deadline{MonotonicTime::max()};
};
struct PutObject {
  std::string name;
  std::vector<std::span<const std::byte>> body;
  std::optional<uint32_t> crc32c;  // of the body; the store checks what it received by it
  bool if_absent = false;          // kExists instead of replacing it, where the store supports that
  MonotonicTime deadline{MonotonicTime::max()};
};
struct DeleteObject {
  std::string name;
  MonotonicTime deadline{MonotonicTime::max()};
};
struct ListObjects {
  std::string prefix;  // of names
  std::string token;   // of the page before; empty: the first
  MonotonicTime deadline{MonotonicTime::max()};
};

struct ObjectHead {
  std::string etag;                       // names the version; empty: the store names none
  std::optional<uint64_t> object_bytes;   // of the whole object, whatever the range
  std::optional<UnixSeconds> modified;
  std::optional<UnixSeconds> answered;  // when, by the store's clock; `modified` is of that clock
};

// Takes the bytes of a read. A status that is not OK ends the read: the answer is kCancelled, with
// the status's message.
class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // Called once, before the first byte.
  virtual absl::Status Begin(const ObjectHead& head) = 0;
  // Called in order, with each byte of the range once, even if the store had to ask again, and no
  // byte beyond it.
  virtual absl::Status Take(std::span<const std::byte> bytes) = 0;
};

struct ObjectAnswer {
  ObjectOutcome outcome = ObjectOutcome::kBroken;
  ObjectError error;
  ObjectHead head;          // of a read, and the ETag of a put where the store tells it
  uint64_t given = 0;       // bytes that the sink was given; kOk: all of the range
  uint32_t attempts = 0;    // 0: no request was sent
  std::chrono::nanoseconds first_byte{0}, total{0};  // since the call

  bool ok() const { return outcome == ObjectOutcome::kOk; }
};

struct ListedObject {
  std::string name;
  uint64_t bytes = 0;
  UnixSeconds modified;

  bool operator==(const ListedObject&) const = default;
};
struct ObjectListing {
  static constexpr size_t kMaxObjects = 1000;  // S3's own
  static constexpr size_t kMaxTokenBytes = 4096;

  std::vector<ListedObject> objects;  // by name
  std::string next_token;             // empty: the last page

  bool operator==(const ObjectListing&) const = default;
};

// The health of a store: to show it, and to decide whether to ask it.
struct ObjectStoreHealth {
  enum class State : uint8_t {
    kWell,           // it is asked
    kAway,           // it fails; it is asked again in `retry_in`
    kMisconfigured,  // it refuses until somebody changes something; it is asked now and then
  };
  State state = State::kWell;
  bool takes_puts = true;  // false, too: it is full, or refuses puts alone
  ObjectError error;       // the store's last reason for refusing
  std::string what_to_do;  // for people; empty: nothing
  std::chrono::nanoseconds retry_in{0};

  bool readable() const { return state == State::kWell; }
  bool writable() const { return state == State::kWell && takes_puts; }
};

class ObjectStore {
 public:
  using Done = absl::AnyInvocable<void(ObjectAnswer) &&>;
  // The page is empty when the answer is not OK.
  using ListDone = absl::AnyInvocable<void(ObjectAnswer, ObjectListing) &&>;

  virtual ~ObjectStore() = default;

  // `sink` lives until `done` has begun.
  virtual ObjectCall Get(GetObject get, ObjectSink* sink, Done done) = 0;
  virtual ObjectCall Put(PutObject put, Done done) = 0;
  // kOk, too, if there was no such object.
  virtual ObjectCall Delete(DeleteObject request, Done done) = 0;
  // Lists one page of objects, by name. Only checks and sweeps list.
  virtual ObjectCall List(ListObjects list, ListDone done) = 0;
  // No-op for a request that is over. A request that succeeds meanwhile may still answer kOk.
  virtual void Cancel(ObjectCall call) = 0;

  // Never waits.
  virtual ObjectStoreHealth health() const = 0;
};

}  // namespace kvkeep
