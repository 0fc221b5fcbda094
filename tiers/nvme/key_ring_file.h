// KeyRingFile: the key ring of a store (tiers/crypt/key_ring.h) in its state directory. One process
// at a time has it open.
//
// The file is 0600 and of the daemon's user, and is replaced only as a whole (write, flush,
// rename). What it held before is overwritten with zeros where it lay, so that a key that was
// dropped does not stay there; so is the new file of a change that was cut short, at the next Open.
// The dropped key may remain, wrapped, if the drive or file system writes elsewhere, or if the
// process is killed after the rename.
//
// The lock, on `PATH.lock`, is held until this goes: a daemon never works with keys that `kvkeep
// keys drop` takes away. Not thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/random.h"
#include "tiers/crypt/key_ring.h"
#include "tiers/nvme/posix_file.h"

namespace kvkeep {

// 32 bytes as they are, or 64 hexadecimal digits and white space; a file that others cannot read
// (tiers/base/private_file.h). InvalidArgument names the file and what is wrong, never its bytes.
absl::StatusOr<Secret> ReadMasterKey(const std::string& path);

// The master keys of before, as far as somebody needs them: none when `master` opens all of the
// ring already, so that their files may go before the config says so. Errors as those of
// ReadMasterKey.
absl::StatusOr<std::vector<Secret>> ReadPreviousMasterKeys(
    const std::vector<std::string>& paths, const std::vector<KeyRing::Entry>& entries,
    const Secret& master);

class KeyRingFile {
 public:
  // Unavailable: another process has it. FailedPrecondition, DataLoss: what is there is no ring of
  // ours. A file that is not there is an empty ring.
  static absl::StatusOr<std::unique_ptr<KeyRingFile>> Open(const std::string& path);
  // To look at it, also while a daemon has it. NotFound when it is not there.
  static absl::StatusOr<std::vector<KeyRing::Entry>> Read(const std::string& path);

  const std::vector<KeyRing::Entry>& entries() const { return entries_; }
  // The file holds these, on stable storage, once it returns OK; on an error it is what it was, or
  // holds them already.
  absl::Status Replace(std::vector<KeyRing::Entry> entries);

  // The keys, made for those tenants that have none, and all wrapped by `master`, in one change of
  // the file: whoever is killed in it leaves a ring that these master keys open, and once this
  // returns OK that is on stable storage, and nobody needs `previous` any more. InvalidArgument:
  // the master key is not the one that the ring was made with, nor is one of `previous`; then the
  // file is what it was. On another error it may be the new one already: keep `previous`.
  absl::StatusOr<std::unique_ptr<KeyRing>> UnwrapWithKeysFor(
      const std::vector<std::string>& tenants, const Secret& master, RandomSource* random,
      std::span<const Secret> previous = {});

 private:
  KeyRingFile(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const UniqueFd lock_;
  std::vector<KeyRing::Entry> entries_;
};

}  // namespace kvkeep
