#include "tiers/crypt/key_ring.h"

#include <absl/container/flat_hash_set.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <algorithm>
#include <cstring>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kFirstWord = "kvkeep-keyring";
constexpr absl::string_view kFirstLine = "kvkeep-keyring 1";
constexpr absl::string_view kKeyRingLabel = "kvkeep keyring 1";
constexpr size_t kTagAt = sizeof(GcmIv) + Secret::kBytes;
constexpr size_t kWrappedBytes = kTagAt + sizeof(CipherTag);
constexpr size_t kKeyIdDigits = 2 * KeyId::kSize;

std::string AssociatedData(const KeyRing::Entry& entry) {
  return absl::StrCat(kKeyRingLabel, entry.id.view(), entry.tenant);
}

absl::StatusOr<KeyRing::Entry> ParseLine(absl::string_view line, size_t number) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
  KeyRing::Entry entry;
  const bool whole = words.size() == 4 && words[0] == "key" && words[1].size() == kKeyIdDigits &&
                     words[2].size() == 2 * kWrappedBytes &&
                     std::all_of(words[2].begin(), words[2].end(), absl::ascii_isxdigit);
  const absl::StatusOr<KeyId> id = whole ? KeyId::FromHex(words[1]) : KeyId{};
  if (!whole || !id.ok() || id->is_zero()) {
    return absl::DataLossError(absl::StrCat("line ", number, " is no key of a tenant"));
  }
  entry.tenant = std::string(words[3]);
  entry.id = *id;
  entry.wrapped = absl::HexStringToBytes(words[2]);
  return entry;
}

bool Open(const KeyRing::Entry& entry, const Secret& master, Secret* key) {
  KVKEEP_CHECK(entry.wrapped.size() == kWrappedBytes);
  const std::byte* const at = AsBytes(entry.wrapped).data();
  AesGcm message(AesGcm::Direction::kDecrypt, master, LoadAt<GcmIv>(at),
                 AsBytes(AssociatedData(entry)));
  message.Append({at + sizeof(GcmIv), Secret::kBytes}, key->writable().data());
  return message.Matches(LoadAt<CipherTag>(at + kTagAt));
}

// Wraps the key under a new IV.
void Wrap(const Secret& key, const Secret& master, RandomSource* random, KeyRing::Entry* entry) {
  GcmIv iv;
  random->Fill(iv);
  entry->wrapped.resize(kWrappedBytes);
  std::byte* const at = reinterpret_cast<std::byte*>(entry->wrapped.data());
  StoreAt<GcmIv>(at, iv);
  AesGcm message(AesGcm::Direction::kEncrypt, master, iv, AsBytes(AssociatedData(*entry)));
  message.Append(key.bytes(), at + sizeof(GcmIv));
  StoreAt<CipherTag>(at + kTagAt, message.Tag());
}

bool OpenWithAny(const KeyRing::Entry& entry, std::span<const Secret> masters, Secret* key) {
  return std::any_of(masters.begin(), masters.end(),
                     [&](const Secret& master) { return Open(entry, master, key); });
}

}  // namespace

absl::StatusOr<std::vector<KeyRing::Entry>> KeyRing::ParseText(absl::string_view text) {
  std::vector<Entry> entries;
  absl::flat_hash_set<std::string> tenants;
  absl::flat_hash_set<KeyId> ids;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (++number == 1) {
      if (line == kFirstLine) continue;
      if (absl::StartsWith(line, kFirstWord)) {
        return absl::FailedPreconditionError(
            absl::StrCat("is '", line.substr(0, 32), "', this build reads '", kFirstLine, "'"));
      }
      return absl::DataLossError(absl::StrCat("does not begin with '", kFirstLine, "'"));
    }
    if (line.empty()) continue;
    absl::StatusOr<Entry> entry = ParseLine(line, number);
    if (!entry.ok()) return entry.status();
    if (!tenants.insert(entry->tenant).second || !ids.insert(entry->id).second) {
      return absl::DataLossError(
          absl::StrCat("line ", number, " is of a tenant or key that has one already"));
    }
    if (entries.size() == kMaxKeys) {
      return absl::DataLossError(absl::StrCat("has more than ", kMaxKeys, " keys"));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

std::string KeyRing::FormatText(const std::vector<Entry>& entries) {
  std::string text = absl::StrCat(kFirstLine, "\n");
  for (const Entry& entry : entries) {
    absl::StrAppend(&text, "key ", entry.id.ToHex(), " ", absl::BytesToHexString(entry.wrapped),
                    " ", entry.tenant, "\n");
  }
  return text;
}

KeyRing::Entry KeyRing::MakeEntry(std::string tenant, const Secret& master, RandomSource* random) {
  Entry entry{.tenant = std::move(tenant), .id = random->Next<KeyId>()};
  Secret key;
  random->Fill(key.writable());
  Wrap(key, master, random, &entry);
  return entry;
}

size_t KeyRing::Rewrap(std::vector<Entry>* entries, const Secret& master,
                       std::span<const Secret> previous, RandomSource* random) {
  size_t wrapped = 0;
  for (Entry& entry : *entries) {
    Secret key;
    if (Open(entry, master, &key) || !OpenWithAny(entry, previous, &key)) continue;
    Wrap(key, master, random, &entry);
    ++wrapped;
  }
  return wrapped;
}

absl::StatusOr<std::unique_ptr<KeyRing>> KeyRing::Unwrap(const std::vector<Entry>& entries,
                                                         const Secret& master,
                                                         std::span<const Secret> previous) {
  auto ring = std::make_unique<KeyRing>();
  const Entry* closed = nullptr;
  for (const Entry& entry : entries) {
    auto key = std::make_unique<DataKey>();
    key->id = entry.id;
    if (Open(entry, master, &key->secret) || OpenWithAny(entry, previous, &key->secret)) {
      ring->Add(entry.tenant, std::move(key));
    } else if (closed == nullptr) {
      closed = &entry;
    }
  }
  if (closed == nullptr) return ring;
  if (ring->size() == 0) {
    return absl::PermissionDeniedError(
        "the master key opens none of the keys: it is another one; name the one before in "
        "encryption.previous_master_key_files");
  }
  return absl::DataLossError(absl::StrCat(
      "the key of tenant '", closed->tenant,
      "' is damaged, or wrapped by a master key "
      "that is not named; restore the file, or drop that key and lose the tenant's chunks on G3"));
}

std::unique_ptr<KeyRing> KeyRing::InMemory(const std::vector<std::string>& tenants,
                                           RandomSource* random) {
  auto ring = std::make_unique<KeyRing>();
  for (const std::string& tenant : tenants) {
    auto key = std::make_unique<DataKey>();
    key->id = random->Next<KeyId>();
    random->Fill(key->secret.writable());
    ring->Add(tenant, std::move(key));
  }
  return ring;
}

std::unique_ptr<KeyRing> KeyRing::Of(std::vector<TenantKey> keys,
                                     std::vector<DataKey> earlier) {
  auto ring = std::make_unique<KeyRing>();
  for (TenantKey& one : keys) {
    ring->Add(one.tenant, std::make_unique<DataKey>(std::move(one.key)));
  }
  for (DataKey& key : earlier) ring->AddById(std::make_unique<DataKey>(std::move(key)));
  return ring;
}

void KeyRing::Add(const std::string& tenant, std::unique_ptr<DataKey> key) {
  KVKEEP_CHECK(by_tenant_.emplace(tenant, key.get()).second);
  AddById(std::move(key));
}

void KeyRing::AddById(std::unique_ptr<DataKey> key) {
  KVKEEP_CHECK(by_id_.emplace(key->id, key.get()).second);
  keys_.push_back(std::move(key));
}

const DataKey* KeyRing::ForTenant(absl::string_view tenant) const {
  const auto found = by_tenant_.find(tenant);
  return found == by_tenant_.end() ? nullptr : found->second;
}

const DataKey* KeyRing::Find(const KeyId& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

}  // namespace kvkeep
