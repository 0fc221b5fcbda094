// KeyRingFile: the key ring of a store (tiers/crypt/key_ring.h) in its state directory. One process
// at a time has it open.
//
// The file is 0600 and of the daemon's user, and is replaced only as a whole (write, flush,
// rename). The old contents are overwritten with zeros in place, so that a dropped key does not
// stay there; so is the new file of a change that was cut short, at the next Open. The dropped key
// may remain, wrapped, if the drive or file system writes elsewhere, or if the process is killed
// after the rename.
//
// The lock, on `PATH.lock`, is held until this is destroyed: a daemon never works with keys that
// `kvkeep keys drop` takes away. Not thread-safe.
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

// Reads 32 raw bytes, or 64 hexadecimal digits and white space, from a file that others cannot read
// (tiers/base/private_file.h). InvalidArgument names the file and what is wrong, never its bytes.
absl::StatusOr<Secret> ReadMasterKey(const std::string& path);

// Returns the previous master keys that are still needed: none if `master` opens all of the ring
// already, so that their files may go before the config says so. Errors are ReadMasterKey's.
absl::StatusOr<std::vector<Secret>> ReadPreviousMasterKeys(
    const std::vector<std::string>& paths, const std::vector<KeyRing::Entry>& entries,
    const Secret& master);

class KeyRingFile {
 public:
  // Opens the ring; an absent file is an empty ring. Unavailable: another process has it.
  // FailedPrecondition, DataLoss: the file is not a ring of ours.
  static absl::StatusOr<std::unique_ptr<KeyRingFile>> Open(const std::string& path);
  // Reads the ring, also while a daemon has it. NotFound when it is not there.
  static absl::StatusOr<std::vector<KeyRing::Entry>> Read(const std::string& path);

  const std::vector<KeyRing::Entry>& entries() const { return entries_; }
  // Replaces the entries. After OK the file holds them on stable storage; after an error it holds
  // the old ones, or the new ones already.
  absl::Status Replace(std::vector<KeyRing::Entry> entries);

  // Returns the keys, after making missing ones for `tenants` and wrapping all by `master`, in one
  // change of the file. A process killed during the change leaves a ring that these master keys
  // open. After OK the new ring is on stable storage, and `previous` is no longer needed.
  // InvalidArgument: the ring was made with none of these master keys; the file is unchanged. After
  // another error the file may be the new one already: keep `previous`.
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
