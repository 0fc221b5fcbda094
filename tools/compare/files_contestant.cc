#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tools/compare/contestant.h"
#include "tools/compare/ring_of_keys.h"

namespace kvkeep::compare {
namespace {

class Files final : public Contestant {
 public:
  Files(std::string directory, uint64_t capacity_bytes)
      : directory_(std::move(directory)), capacity_bytes_(capacity_bytes) {}

  // A reader never sees half a file: written under another name.
  absl::Status Put(const ChunkKey& key, std::span<const std::byte> payload) override {
    ring_.Resize(capacity_bytes_ / payload.size());
    const RingOfKeys::Slot slot = ring_.Take(key);
    if (slot.evicted.has_value()) unlink(PathOf(*slot.evicted).c_str());
    const std::string path = PathOf(key), unfinished = path + ".new";
    {
      const UniqueFd fd(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      if (!fd.valid()) return absl::ErrnoToStatus(errno, unfinished);
      for (size_t at = 0; at < payload.size();) {
        const ssize_t wrote = write(fd.get(), payload.data() + at, payload.size() - at);
        if (wrote <= 0) return absl::ErrnoToStatus(errno, unfinished);
        at += static_cast<size_t>(wrote);
      }
    }
    if (rename(unfinished.c_str(), path.c_str()) != 0) return absl::ErrnoToStatus(errno, path);
    return absl::OkStatus();
  }

  absl::Status Get(const ChunkKey& key, std::span<std::byte> out) override {
    const std::string path = PathOf(key);
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return absl::ErrnoToStatus(errno, path);
    for (size_t at = 0; at < out.size();) {
      const ssize_t got = read(fd.get(), out.data() + at, out.size() - at);
      if (got < 0) return absl::ErrnoToStatus(errno, path);
      if (got == 0) return absl::DataLossError(absl::StrCat(path, " ends early"));
      at += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) override {
    uint64_t found = 0;
    for (const ChunkKey& key : keys) found += access(PathOf(key).c_str(), R_OK) == 0 ? 1 : 0;
    return found;
  }

  absl::Status Clear() override {
    ring_ = {};
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
      std::filesystem::remove(entry.path(), error);
    }
    return absl::OkStatus();
  }

 private:
  std::string PathOf(const ChunkKey& key) const {
    return absl::StrCat(directory_, "/", key.ToHex());
  }

  const std::string directory_;
  const uint64_t capacity_bytes_;
  RingOfKeys ring_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> MakeFiles(const Setup& setup) {
  const std::string directory = setup.directory + "/files";
  std::error_code error;
  std::filesystem::create_directory(directory, error);
  if (error) return absl::UnavailableError(absl::StrCat(directory, ": ", error.message()));
  return std::make_unique<Files>(directory, setup.capacity_bytes);
}

}  // namespace kvkeep::compare
