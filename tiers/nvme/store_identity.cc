// The state file: 72 bytes, little-endian.
//    0   8  magic "KVKSTATE"     16  16  store UUID
//    8   4  format version = 1   32  32  MAC key
//   12   4  zero                 64   8  XXH3-64 of bytes 0..64
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"
#include "tiers/nvme/nvme_device.h"
#include "tiers/nvme/posix_file.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kMagic = "KVKSTATE";
constexpr uint32_t kVersion = 1;
constexpr size_t kStateStoreAt = 16;
constexpr size_t kStateMacKeyAt = 32;
constexpr size_t kStateChecksumAt = 64;
constexpr size_t kStateBytes = 72;
static_assert(kStateMacKeyAt + sizeof(MacKey) == kStateChecksumAt);

std::string Encode(const StoreIdentity& identity) {
  std::string state(kStateBytes, '\0');
  std::byte* const at = reinterpret_cast<std::byte*>(state.data());
  std::memcpy(at, kMagic.data(), kMagic.size());
  StoreAt<uint32_t>(at + 8, kVersion);
  std::memcpy(at + kStateStoreAt, identity.store_uuid.bytes.data(), Uuid::kSize);
  StoreAt<MacKey>(at + kStateMacKeyAt, identity.mac_key);
  StoreAt<uint64_t>(at + kStateChecksumAt, Xxh3(AsBytes(state).first(kStateChecksumAt)));
  return state;
}

absl::StatusOr<StoreIdentity> Decode(absl::string_view state, const std::string& path) {
  const std::byte* const at = AsBytes(state).data();
  if (state.size() != kStateBytes || state.substr(0, kMagic.size()) != kMagic ||
      LoadAt<uint64_t>(at + kStateChecksumAt) != Xxh3(AsBytes(state).first(kStateChecksumAt))) {
    return absl::DataLossError(absl::StrCat(
        path, ": the state file is damaged; restore it, or remove it and empty the devices"));
  }
  if (const auto version = LoadAt<uint32_t>(at + 8); version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": state file of format version ",
                                                      version, ", this build reads ", kVersion));
  }
  StoreIdentity identity;
  std::memcpy(identity.store_uuid.bytes.data(), at + kStateStoreAt, Uuid::kSize);
  identity.mac_key = LoadAt<MacKey>(at + kStateMacKeyAt);
  return identity;
}

absl::StatusOr<StoreIdentity> Load(int fd, const std::string& path) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, path, "stat");
  if (!S_ISREG(st.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a regular file"));
  }
  if (st.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": belongs to user ", st.st_uid,
                                                      ", this is user ", geteuid(), "; chown it"));
  }
  if ((st.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": others may read the secret in it; chmod 600 it"));
  }
  KVKEEP_ASSIGN_OR_RETURN(const std::string state, ReadWhole(fd, kStateBytes, path));
  return Decode(state, path);
}

// The file appears whole or not at all, and never replaces another one.
absl::Status Create(const StoreIdentity& identity, const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string dir_path = parent.empty() ? "." : parent;
  const std::string temporary = absl::StrCat(path, ".new");
  // May be a symbolic link, as systemd's state directories are.
  const UniqueFd dir(open(dir_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return ErrnoStatus(errno, dir_path, "open");
  unlink(temporary.c_str());  // of a start that was cut short
  {
    KVKEEP_ASSIGN_OR_RETURN(
        const UniqueFd fd,
        OpenAt(AT_FDCWD, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600, temporary));
    KVKEEP_RETURN_IF_ERROR(WriteAt(fd.get(), 0, AsBytes(Encode(identity)), temporary));
    KVKEEP_RETURN_IF_ERROR(FlushFile(fd.get(), temporary));
  }
  // A link, not a rename: it fails when another process made the file meanwhile.
  const int linked = link(temporary.c_str(), path.c_str());
  const int error = errno;
  unlink(temporary.c_str());
  if (linked != 0 && error == EEXIST) {
    return absl::UnavailableError(
        absl::StrCat(path, ": just made by another process; start again"));
  }
  if (linked != 0) return ErrnoStatus(error, path, "link");
  return FlushFile(dir.get(), dir_path);
}

}  // namespace

absl::StatusOr<StoreIdentity> LoadStoreIdentity(const std::string& path) {
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd,
                          OpenAt(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0, path));
  return Load(fd.get(), path);
}

absl::StatusOr<StoreIdentity> LoadOrCreateStoreIdentity(const std::string& path,
                                                        RandomSource* random) {
  const absl::StatusOr<StoreIdentity> there = LoadStoreIdentity(path);
  if (!absl::IsNotFound(there.status())) return there;
  StoreIdentity identity;
  identity.store_uuid = random->Next<Uuid>();
  random->Fill(identity.mac_key);
  KVKEEP_RETURN_IF_ERROR(Create(identity, path));
  return identity;
}

absl::StatusOr<Uuid> ReadBootId() {
  const std::string path = "/proc/sys/kernel/random/boot_id";
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(AT_FDCWD, path, O_RDONLY, 0, path));
  KVKEEP_ASSIGN_OR_RETURN(std::string text, ReadWhole(fd.get(), 64, path));
  absl::StripAsciiWhitespace(&text);
  text = absl::StrReplaceAll(text, {{"-", ""}});
  if (text.size() != 2 * Uuid::kSize) {
    return absl::DataLossError(absl::StrCat(path, ": not a UUID: '", text, "'"));
  }
  return Uuid::FromHex(text);
}

}  // namespace kvkeep
