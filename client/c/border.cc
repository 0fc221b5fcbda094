#include "client/c/border.h"

namespace kvkeep::client {

static_assert(static_cast<int>(absl::StatusCode::kInvalidArgument) == KVKEEP_INVALID_ARGUMENT);
static_assert(static_cast<int>(absl::StatusCode::kPermissionDenied) == KVKEEP_PERMISSION_DENIED);
static_assert(static_cast<int>(absl::StatusCode::kUnavailable) == KVKEEP_UNAVAILABLE);
static_assert(static_cast<int>(absl::StatusCode::kDataLoss) == KVKEEP_DATA_LOSS);
static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) == KVKEEP_UNAUTHENTICATED);

void CopyText(absl::string_view text, char* to, size_t room) {
  size_t bytes = std::min(text.size(), room - 1);
  // Does not cut a character of UTF-8.
  while (bytes < text.size() && bytes > 0 && (static_cast<uint8_t>(text[bytes]) & 0xC0) == 0x80) {
    --bytes;
  }
  if (bytes > 0) std::memcpy(to, text.data(), bytes);
  std::memset(to + bytes, 0, room - bytes);
}

int Report(const absl::Status& status, absl::string_view note, kvkeep_error* error) {
  const int code = static_cast<int>(status.code());
  if (error != nullptr) {
    error->code = code;
    CopyText(status.ok() ? note : status.message(), error->message, sizeof(error->message));
  }
  return code;
}

absl::Status IsNull(absl::string_view field) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": NULL"));
}

absl::Status CheckSize(absl::string_view name, const void* given, uint32_t size, StructSize known) {
  if (size < known.first || size > kMaxStructBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".size: ", size, ", ", known.first, " to ",
                                                   kMaxStructBytes, " are possible"));
  }
  const char* bytes = static_cast<const char*>(given);
  if (size > known.ours &&
      std::any_of(bytes + known.ours, bytes + size, [](char byte) { return byte != 0; })) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": says what this library, older than the caller's header, does not know"));
  }
  return absl::OkStatus();
}

void Ending::Tell(const absl::Status& status, absl::string_view note) {
  MutexLock lock(&mu_);
  Report(status, note, &outcome_);
  done_ = true;
  told_.NotifyOne();  // with the lock held: once it is released, this object may be gone
}

int Ending::Await(kvkeep_error* error) {
  MutexLock lock(&mu_);
  while (!done_) told_.Wait(&mu_);
  if (error != nullptr) *error = outcome_;
  return outcome_.code;
}

}  // namespace kvkeep::client
