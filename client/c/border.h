// The border between C and C++: statuses become codes and messages, structs with a size are read
// and written at the size that the caller knows, no exception leaves, and one way of starting a
// call becomes two functions, one that blocks and one that reports to a queue.
//
// Stateless; all functions are thread-safe.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "client/c/completion_queue.h"
#include "client/c/kvkeep.h"
#include "client/client.h"
#include "client/internal/await.h"
#include "tiers/base/mutex.h"

struct kvkeep_client {
  std::unique_ptr<kvkeep::client::Client> impl;
};
struct kvkeep_namespace {
  kvkeep::client::Namespace impl;
};
struct kvkeep_lease {
  kvkeep::client::Lease impl;
};

namespace kvkeep::client {

// A struct of more bytes is not a newer version but garbage.
inline constexpr uint32_t kMaxStructBytes = 4096;

// Copies what fits into `error`, which may be null. Returns the code.
int Report(const absl::Status& status, absl::string_view note, kvkeep_error* error);
inline int Report(const absl::Status& status, kvkeep_error* error) {
  return Report(status, "", error);
}

absl::Status IsNull(absl::string_view field);

// The sizes of a versioned struct. A caller's struct, of a header of any age, is read into today's:
// fields that an older header lacks are zero. `first`: bytes of its first version, the least
// accepted.
struct StructSize {
  size_t first, ours;
};
absl::Status CheckSize(absl::string_view name, const void* given, uint32_t size, StructSize known);
template <typename T>
absl::StatusOr<T> CopyIn(absl::string_view name, const T* given, size_t first = sizeof(T)) {
  if (given == nullptr) return IsNull(name);
  const absl::Status sized = CheckSize(name, given, given->size, {first, sizeof(T)});
  if (!sized.ok()) return sized;
  T copy = {};
  std::memcpy(&copy, given, std::min<size_t>(given->size, sizeof(T)));
  return copy;
}

// A reply of the caller's size: fields that this library does not know become zero, and fields that
// the caller does not know are not written.
template <typename T>
class Reply {
 public:
  // `first`: the size of its first version.
  static absl::StatusOr<Reply> Of(absl::string_view name, T* given, size_t first = sizeof(T)) {
    if (given == nullptr) return IsNull(name);
    if (given->size < first || given->size > kMaxStructBytes) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".size: ", given->size, ", ", first,
                                                     " to ", kMaxStructBytes, " are possible"));
    }
    return Reply(given);
  }
  void Write(T value) const {
    value.size = size_;
    const size_t known = std::min<size_t>(size_, sizeof(T));
    std::memcpy(given_, &value, known);
    std::memset(reinterpret_cast<char*>(given_) + known, 0, size_ - known);
  }
  void Clear() const { Write(T{}); }

 private:
  explicit Reply(T* given) : given_(given), size_(given->size) {}
  T* given_;
  uint32_t size_;
};

// Copies `text`, cut off to fit `room`, with a zero at its end.
void CopyText(absl::string_view text, char* to, size_t room);

// Runs `body`, which returns a code. Turns an exception (mostly out of memory) into a code.
template <typename Body>
int Guarded(kvkeep_error* error, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Report(absl::ResourceExhaustedError("out of memory"), error);
  } catch (const std::exception& thrown) {
    return Report(absl::InternalError(thrown.what()), error);
  }
}

// Called once with a call's end; a call that is OK may still have a note.
using Finish = absl::AnyInvocable<void(const absl::Status& status, absl::string_view note) &&>;

// The end of one call, for a thread that waits for it.
class Ending {
 public:
  void Tell(const absl::Status& status, absl::string_view note);
  int Await(kvkeep_error* error);

 private:
  Mutex mu_;
  CondVar told_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  kvkeep_error outcome_ ABSL_GUARDED_BY(mu_) = {};
};

// Starts a call by `start(Finish)` and waits for its end. If `start` is not OK, no call started,
// and Finish is not used.
template <typename Start>
int Blocking(kvkeep_error* error, Start start) {
  return Guarded(error, [&] {
    Ending ending;
    absl::Status refused;
    {
      const CallerWaits here;
      refused = start([&ending](const absl::Status& status, absl::string_view note) {
        ending.Tell(status, note);
      });
    }
    return refused.ok() ? ending.Await(error) : Report(refused, error);
  });
}

struct Completer {  // where a call reports to
  kvkeep_queue* queue;
  void* user_data;
  kvkeep_op op;
};

template <typename Start>
int Async(const Completer& to, kvkeep_error* error, Start start) {
  return Guarded(error, [&] {
    if (to.queue == nullptr) return Report(IsNull("queue"), error);
    std::shared_ptr<CompletionQueue> queue = to.queue->impl;
    const absl::Status reserved = queue->Reserve();
    if (!reserved.ok()) return Report(reserved, error);
    const absl::Status refused = start([queue, user_data = to.user_data, op = to.op](
                                           const absl::Status& status, absl::string_view note) {
      kvkeep_completion ended = {.user_data = user_data, .op = static_cast<uint32_t>(op)};
      Report(status, note, &ended.error);
      queue->Complete(ended);
    });
    if (!refused.ok()) queue->Unreserve();
    return Report(refused, error);
  });
}

}  // namespace kvkeep::client
