#include "tiers/nvme/key_ring_file.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "tiers/base/bytes.h"
#include "tiers/base/private_file.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/test_point.h"

namespace kvkeep {
namespace {

constexpr size_t kMaxMasterKeyFileBytes = 256;

absl::Status About(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<UniqueFd> OpenRing(const std::string& path, int flags) {
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(AT_FDCWD, path, flags | O_NONBLOCK, 0, path));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, path, "stat");
  if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": must be a regular file with mode 0600 of this user, ", geteuid(),
                     "; run this as the user that kvkeepd runs as"));
  }
  return fd;
}

absl::Status FlushParent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string dir_path = parent.empty() ? "." : parent;
  const UniqueFd dir(open(dir_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return ErrnoStatus(errno, dir_path, "open");
  return FlushFile(dir.get(), dir_path);
}

absl::Status Zero(int fd, uint64_t bytes, const std::string& path) {
  const std::string zeros(bytes, '\0');
  KVKEEP_RETURN_IF_ERROR(WriteAt(fd, 0, AsBytes(zeros), path));
  return FlushFile(fd, path);
}

std::string NewPath(const std::string& path) { return absl::StrCat(path, ".new"); }

// Removes the new ring of a change that was cut short: it has all keys, and would keep keys dropped
// since.
absl::Status RemoveUnfinished(const std::string& path) {
  const std::string unfinished = NewPath(path);
  const absl::StatusOr<UniqueFd> fd = OpenRing(unfinished, O_WRONLY);
  if (absl::IsNotFound(fd.status())) return absl::OkStatus();
  if (!fd.ok()) return fd.status();
  struct stat st;
  if (fstat(fd->get(), &st) != 0) return ErrnoStatus(errno, unfinished, "stat");
  KVKEEP_RETURN_IF_ERROR(Zero(fd->get(), static_cast<uint64_t>(st.st_size), unfinished));
  if (unlink(unfinished.c_str()) != 0) return ErrnoStatus(errno, unfinished, "unlink");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Secret> ReadMasterKey(const std::string& path) {
  KVKEEP_ASSIGN_OR_RETURN(std::string text,
                          ReadPrivateFile(path, kMaxMasterKeyFileBytes, Secrecy::kSecret));
  std::string raw = text;
  if (raw.size() != Secret::kBytes) {
    absl::StripAsciiWhitespace(&raw);
    const bool hex = raw.size() == 2 * Secret::kBytes &&
                     std::all_of(raw.begin(), raw.end(), absl::ascii_isxdigit);
    raw = hex ? absl::HexStringToBytes(raw) : std::string();
  }
  // A file of equal bytes was only made long enough, and is not random.
  const bool varied = !raw.empty() && raw.find_first_not_of(raw[0]) != std::string::npos;
  absl::StatusOr<Secret> key =
      varied ? absl::StatusOr<Secret>(Secret(AsBytes(raw).first<Secret::kBytes>()))
             : absl::InvalidArgumentError(absl::StrCat(
                   path,
                   ": must hold 32 random bytes, or 64 hexadecimal digits; make it with "
                   "'head -c 32 /dev/urandom'"));
  OPENSSL_cleanse(text.data(), text.size());
  OPENSSL_cleanse(raw.data(), raw.size());
  return key;
}

absl::StatusOr<std::vector<Secret>> ReadPreviousMasterKeys(
    const std::vector<std::string>& paths, const std::vector<KeyRing::Entry>& entries,
    const Secret& master) {
  std::vector<Secret> keys;
  if (KeyRing::Unwrap(entries, master).ok()) return keys;
  for (const std::string& path : paths) {
    KVKEEP_ASSIGN_OR_RETURN(Secret key, ReadMasterKey(path));
    keys.push_back(std::move(key));
  }
  return keys;
}

absl::StatusOr<std::vector<KeyRing::Entry>> KeyRingFile::Read(const std::string& path) {
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRing(path, O_RDONLY));
  KVKEEP_ASSIGN_OR_RETURN(const std::string text,
                          ReadWhole(fd.get(), KeyRing::kMaxTextBytes, path));
  absl::StatusOr<std::vector<KeyRing::Entry>> entries = KeyRing::ParseText(text);
  if (!entries.ok()) return About(path, entries.status());
  return entries;
}

absl::StatusOr<std::unique_ptr<KeyRingFile>> KeyRingFile::Open(const std::string& path) {
  // Reads the ring first, so that only its owner leaves a lock beside it.
  if (const absl::Status there = Read(path).status(); !there.ok() && !absl::IsNotFound(there)) {
    return there;
  }
  const std::string lock_path = absl::StrCat(path, ".lock");
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd lock,
                          OpenAt(AT_FDCWD, lock_path, O_RDWR | O_CREAT, 0600, lock_path));
  KVKEEP_RETURN_IF_ERROR(TryLock(lock.get(), lock_path));
  KVKEEP_RETURN_IF_ERROR(RemoveUnfinished(path));
  std::unique_ptr<KeyRingFile> file(new KeyRingFile(path, std::move(lock)));
  absl::StatusOr<std::vector<KeyRing::Entry>> entries = Read(path);
  if (entries.ok()) {
    file->entries_ = *std::move(entries);
  } else if (!absl::IsNotFound(entries.status())) {
    return entries.status();
  }
  return file;
}

absl::Status KeyRingFile::Replace(std::vector<KeyRing::Entry> entries) {
  if (entries.size() > KeyRing::kMaxKeys) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path_, ": would have ", entries.size(), " keys, the most are ", KeyRing::kMaxKeys,
        "; drop those of tenants that are no more (kvkeep keys drop)"));
  }
  KVKEEP_RETURN_IF_ERROR(RemoveUnfinished(path_));  // of one that failed before
  const std::string temporary = NewPath(path_);
  {
    KVKEEP_ASSIGN_OR_RETURN(
        const UniqueFd fd,
        OpenAt(AT_FDCWD, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600, temporary));
    KVKEEP_RETURN_IF_ERROR(WriteAt(fd.get(), 0, AsBytes(KeyRing::FormatText(entries)), temporary));
    KVKEEP_RETURN_IF_ERROR(FlushFile(fd.get(), temporary));
  }
  TestPoint("keyring-written");
  const absl::StatusOr<UniqueFd> old = OpenRing(path_, O_WRONLY);
  if (!old.ok() && !absl::IsNotFound(old.status())) return old.status();
  if (rename(temporary.c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, path_, "rename");
  TestPoint("keyring-renamed");
  KVKEEP_RETURN_IF_ERROR(FlushParent(path_));
  const size_t old_bytes = KeyRing::FormatText(entries_).size();
  entries_ = std::move(entries);
  return old.ok() ? Zero(old->get(), old_bytes, path_) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KeyRing>> KeyRingFile::UnwrapWithKeysFor(
    const std::vector<std::string>& tenants, const Secret& master, RandomSource* random,
    std::span<const Secret> previous) {
  std::vector<KeyRing::Entry> entries = entries_;
  // Unwraps the present keys first: a ring of another master key must not get keys of this one.
  absl::Status opened = KeyRing::Unwrap(entries, master, previous).status();
  if (absl::IsPermissionDenied(opened)) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", opened.message()));
  }
  if (!opened.ok()) return About(path_, opened);
  KeyRing::Rewrap(&entries, master, previous, random);
  for (const std::string& tenant : tenants) {
    const bool there = std::any_of(entries.begin(), entries.end(),
                                   [&](const auto& entry) { return entry.tenant == tenant; });
    if (!there) entries.push_back(KeyRing::MakeEntry(tenant, master, random));
  }
  if (entries != entries_) {
    KVKEEP_RETURN_IF_ERROR(Replace(entries));
  } else if (!entries.empty()) {  // who replaced it may have ended before it was durable
    KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRing(path_, O_RDONLY));
    KVKEEP_RETURN_IF_ERROR(FlushFile(fd.get(), path_));
    KVKEEP_RETURN_IF_ERROR(FlushParent(path_));
  }
  return KeyRing::Unwrap(entries_, master);
}

}  // namespace kvkeep
