#include "server/local/client_memory.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tiers/base/undumped_buffer.h"
#include "tiers/base/units.h"

namespace kvkeep {

absl::Status ClientMemory::ReadFile(const char* what, const UniqueFd& file, uint64_t offset,
                                    uint64_t bytes, Give give) {
  constexpr uint64_t kReadBytes = 64 * kKiB;  // at a time, so that the copy reads from a cache
  thread_local const UndumpedBuffer own(kReadBytes);
  const std::span<std::byte> buffer = own.memory();
  if (buffer.empty()) {
    return absl::OutOfRangeError(absl::StrCat(what, ": no buffer to read it with"));
  }
  const uint64_t end = offset + bytes;
  while (offset < end) {
    const ssize_t got =
        pread(file.get(), buffer.data(), std::min<uint64_t>(end - offset, buffer.size()),
              static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::OutOfRangeError(absl::StrCat(what, ": ", std::strerror(errno)));
    if (got == 0) {
      return absl::OutOfRangeError(
          absl::StrCat(what, " ends at ", offset, ", ", end - offset, " bytes short"));
    }
    give(buffer.first(static_cast<size_t>(got)));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
