// ObjectStore: the seam to objects under names: a bucket, or a directory that machines share.
//
// Get, Put, Delete, List and Cancel return at once. Each request is answered once, later, never
// inside the call and with no lock held: by its deadline, or soon after Cancel, as far as the store
// can cut short what it does. All that is called for one request (its sink, its `done`) is called
// one after another, on threads of the store; two requests may be answered at the same time. Memory
// that a request names is touched until `done` has begun, no longer. Thread-safe.
//
// An object is put as a whole or not at all, and its bytes never change: it is replaced or deleted.
// A read is of one version; what is read again after a failure is of that version, or the read
// fails. A store is not believed further than that: who reads checks what came.
//
// The destructor cancels what is there, and has answered all of it when it returns.
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
  std::string if_match;            // an ETag as it was told; empty: any version
  MonotonicTime deadline{MonotonicTime::max()};
};
struct PutObject {
  std::string name;
  std::vector<std::span<const std::byte>> body;
  std::optional<uint32_t> crc32c;  // of the body; what the store checks it by
  bool if_absent = false;          // kExists instead of replacing it, where the store can tell
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
  std::optional<uint64_t> object_bytes;   // all of it
  std::optional<UnixSeconds> modified;
};

// Where the bytes of a read go. What it returns ends the read when it is not OK: kCancelled, with
// its message.
class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  // Once, before the first byte.
  virtual absl::Status Begin(const ObjectHead& head) = 0;
  // In order, each byte of the range once, whatever had to be asked for again; never a byte beyond.
  virtual absl::Status Take(std::span<const std::byte> bytes) = 0;
};

struct ObjectAnswer {
  ObjectOutcome outcome = ObjectOutcome::kBroken;
  ObjectError error;
  ObjectHead head;          // of a read, and the ETag of a put where the store tells it
  uint64_t given = 0;       // bytes that the sink was given; kOk: all of the range
  uint32_t attempts = 0;    // 0: nobody was asked
  std::chrono::nanoseconds first_byte{0}, total{0};  // since it was handed over

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

// How a store is, for who shows it and for who decides whether to ask.
struct ObjectStoreHealth {
  enum class State : uint8_t {
    kWell,           // it is asked
    kAway,           // it fails: asked again in `retry_in`
    kMisconfigured,  // it takes nothing until somebody changes something; asked now and then
  };
  State state = State::kWell;
  bool takes_puts = true;  // false as well when it is full, or refuses them alone
  ObjectError error;       // what it said last of why not
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
  // kOk as well where there was none.
  virtual ObjectCall Delete(DeleteObject request, Done done) = 0;
  // One page, by name. For check and sweep: no other path lists.
  virtual ObjectCall List(ListObjects list, ListDone done) = 0;
  // Of a request that is over: nothing. One that succeeds meanwhile may still say so.
  virtual void Cancel(ObjectCall call) = 0;

  // Never waits.
  virtual ObjectStoreHealth health() const = 0;
};

}  // namespace kvkeep
