// KeyRing: every tenant's data key, and its form in a file, where they are wrapped by the master
// key.
//
// The file is text, one key a line, so that a person can see which tenant has one and take one out:
//
//   kvkeep-keyring 1
//   key <id: 32 hex digits> <wrapped: 120 hex digits> <tenant, nothing for the default one>
//
// wrapped = IV (12 bytes) + AES-256-GCM of the key under the master key (32) + tag (16); associated
// data: "kvkeep keyring 1", the id, the tenant's name. IVs are random; a ring has kMaxKeys at most,
// and a key is wrapped once by each master key, so a master key meets few of them.
//
// A change of the master key unwraps each data key with the previous master key and wraps it anew.
// The data keys and their ids stay, so all images stay readable.
//
// Constant once made, hence thread-safe. Keys are wiped when the ring is destroyed, and never
// printed.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/random.h"
#include "tiers/crypt/image_cipher.h"

namespace kvkeep {

class KeyRing {
 public:
  static constexpr size_t kMaxKeys = 1024;
  static constexpr size_t kMaxTextBytes = 512 * 1024;

  // A line of the file: what anybody who may read the file can see, without the master key.
  struct Entry {
    std::string tenant;  // empty: the default tenant
    KeyId id;
    std::string wrapped;  // bytes

    bool operator==(const Entry&) const = default;
  };
  // DataLoss names the line that is damaged; FailedPrecondition for another version.
  static absl::StatusOr<std::vector<Entry>> ParseText(absl::string_view text);
  static std::string FormatText(const std::vector<Entry>& entries);

  // Makes a new key and returns it wrapped.
  static Entry MakeEntry(std::string tenant, const Secret& master, RandomSource* random);

  // Unwraps each entry with whichever of `master` and `previous` opens it. PermissionDenied if no
  // entry opens: the ring has another master key. DataLoss names the tenant of the first entry that
  // does not open while others do.
  static absl::StatusOr<std::unique_ptr<KeyRing>> Unwrap(const std::vector<Entry>& entries,
                                                         const Secret& master,
                                                         std::span<const Secret> previous = {});
  // Wraps with `master` each entry that only one of `previous` opens, and returns how many. An
  // entry that no key opens stays as it is.
  static size_t Rewrap(std::vector<Entry>* entries, const Secret& master,
                       std::span<const Secret> previous, RandomSource* random);
  // Makes a ring without a file, of one key for each tenant, made elsewhere. REQUIRES: every tenant
  // and every id once.
  struct TenantKey {
    std::string tenant;
    DataKey key;
  };
  // `earlier`: keys found by their ids alone, for older images.
  static std::unique_ptr<KeyRing> Of(std::vector<TenantKey> keys,
                                     std::vector<DataKey> earlier = {});
  // The same of random keys, for tests.
  static std::unique_ptr<KeyRing> InMemory(const std::vector<std::string>& tenants,
                                           RandomSource* random);

  // Returns null if there is none.
  const DataKey* ForTenant(absl::string_view tenant) const;
  const DataKey* Find(const KeyId& id) const;
  size_t size() const { return keys_.size(); }

 private:
  std::vector<std::unique_ptr<DataKey>> keys_;
  absl::flat_hash_map<std::string, const DataKey*> by_tenant_;
  absl::flat_hash_map<KeyId, const DataKey*> by_id_;

  void Add(const std::string& tenant, std::unique_ptr<DataKey> key);
  void AddById(std::unique_ptr<DataKey> key);
};

}  // namespace kvkeep
