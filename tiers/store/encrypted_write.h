// EncryptedWrite: one image on its way from G2 to its device, encrypted on the way.
//
// The bytes in G2 stay as they are, since readers hold leases on them. The executor encrypts each
// unit into a buffer of this write, and the unit is written from there. Up to kLanes units are
// under way at once. The header page goes last, since it has the tags. So a write needs at most
// kLanes buffers of a unit each, and never more than its image has. If there is no memory for
// kLanes buffers, it takes fewer. The buffers of all writes are counted.
//
// Make it with std::make_shared and start it once. It keeps itself alive until `done` has run.
// Thread-safe.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tiers/base/executor.h"
#include "tiers/base/image.h"
#include "tiers/base/mutex.h"
#include "tiers/crypt/image_cipher.h"
#include "tiers/io/device.h"
#include "tiers/store/aligned_page.h"
#include "tiers/store/cipher_buffers.h"
#include "tiers/store/encrypted_image.h"

namespace kvkeep::store_internal {

class EncryptedWrite : public std::enable_shared_from_this<EncryptedWrite> {
 public:
  static constexpr size_t kLanes = 4;

  struct Job {
    ImageHeader header;  // of plaintext, with the placement on the device and an ImageEncryption
    ImageCipher cipher;
    MacKey mac_key;
    ImageRuns source;  // the image in G2
    Device* device = nullptr;
    Executor* executor = nullptr;
    std::optional<int> node;  // where `source` begins; nearly every image lies on one node
    std::shared_ptr<CipherBuffers> buffers;
    std::function<void()> heard;  // called when the device has ended one of the writes
    // Called once, at the end. Gets the first failure, or OK and the root of the written header.
    absl::AnyInvocable<void(absl::Status, const Digest128& root) &&> done;
  };

  explicit EncryptedWrite(Job job);

  // Returns whether it has memory for at least one unit. If not, Start ends it with Unavailable.
  bool has_memory() const { return !lanes_.empty() && header_page_.ok(); }
  // Starts the write. Call it on a thread of the executor.
  void Start();

 private:
  struct Lane {
    CipherBuffers::Buffer buffer;
    uint32_t outstanding = 0;  // writes; guarded by mu_
  };

  void NextUnit(size_t lane);
  void WriteUnit(size_t lane, size_t unit);
  void OnUnitWritten(size_t lane, const absl::Status& status);
  void WriteHeader();

  Job job_;
  const size_t units_;
  AlignedPage header_page_;
  std::vector<Lane> lanes_;

  Mutex mu_;
  size_t next_unit_ ABSL_GUARDED_BY(mu_) = 0;
  size_t lanes_left_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);  // the first one
};

}  // namespace kvkeep::store_internal
