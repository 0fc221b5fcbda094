// What policies of eviction have learned, kept over a restart beside the records of each device.
//
// Named values of the index, "learned.TIER.TAG" with the tenant's tag in hex, version 1: u8
// version, XXH3-64 of the rest (little-endian), then what the policy said. What G2's policies
// learned is kept on every device, and taken from the first that has it. Saved with the recency;
// what cannot be read, is damaged, or of another version or policy, begins anew: only hits suffer.
#include <absl/strings/str_cat.h>

#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

constexpr char kPrefix[] = "learned.";
constexpr char kVersion = 1;
constexpr size_t kHeadBytes = 1 + sizeof(uint64_t);
constexpr size_t kMaxBytes = 256 * kKiB;  // of one policy

std::string NameOf(absl::string_view tier, const TenantOptions& tenant) {
  const uint32_t tag = TenantOptions::Tag(tenant.name);
  return absl::StrCat(kPrefix, tier, ".", absl::Hex(tag, absl::kZeroPad8));
}

std::string Encode(absl::string_view learned) {
  std::string value(kHeadBytes, kVersion);
  StoreAt<uint64_t>(reinterpret_cast<std::byte*>(value.data() + 1), Xxh3(AsBytes(learned)));
  value.append(learned.data(), learned.size());
  return value;
}

// What is there already is not written again.
void SaveIfChanged(ChunkIndex& index, const std::string& name, const std::string& value) {
  const absl::StatusOr<std::optional<std::string>> there = index.GetMeta(name);
  if (there.ok() && *there == value) return;
  index.PutMeta(name, value).IgnoreError();
}

// Empty: nothing usable.
absl::string_view Decode(absl::string_view value) {
  if (value.size() < kHeadBytes || value.size() > kHeadBytes + kMaxBytes) return "";
  const absl::string_view learned = value.substr(kHeadBytes);
  const auto sum = LoadAt<uint64_t>(AsBytes(value).data() + 1);
  return value[0] == kVersion && sum == Xxh3(AsBytes(learned)) ? learned : "";
}

void Load(ChainLearner* learner, absl::string_view learned) {
  if (learner != nullptr) learner->Load(learned);
}

}  // namespace

void Core::LoadLearned(DeviceTier& tier) {
  const auto saved = tier.device->index().ListMeta(kPrefix);
  if (!saved.ok()) return;
  Section section(&chunks_, Section::Kind::kMaintenance);
  for (uint32_t t = 0; t < options_.tenants.size(); ++t) {
    const std::string g2 = NameOf("g2", options_.tenants[t]);
    const std::string g3 = NameOf("g3", options_.tenants[t]);
    for (const auto& [name, value] : *saved) {
      const absl::string_view learned = Decode(value);
      if (learned.empty()) continue;
      G2Pool& own = *pools_[t];
      if (name == g2 && !std::exchange(own.has_learned, true)) Load(own.learner, learned);
      if (name == g3) Load(tier.learners[t], learned);
    }
  }
}

void Core::SaveLearned(DeviceTier& tier) {
  std::vector<std::pair<std::string, std::string>> all;
  const auto add = [&all](std::string name, const ChainLearner* learner) {
    if (learner == nullptr) return;
    std::string learned = learner->Save();
    if (learned.empty() || learned.size() > kMaxBytes) return;
    all.emplace_back(std::move(name), std::move(learned));
  };
  for (uint32_t t = 0; t < options_.tenants.size(); ++t) {
    add(NameOf("g2", options_.tenants[t]), pools_[t]->learner);
    add(NameOf("g3", options_.tenants[t]), tier.learners[t]);
  }
  if (all.empty()) return;
  ++tier.saves;
  ChunkIndex* index = &tier.device->index();
  Later([this, &tier, index, all = std::move(all)]() mutable {
    tier.index_executor->Post([this, &tier, index, all = std::move(all)] {
      for (const auto& [name, learned] : all) SaveIfChanged(*index, name, Encode(learned));
      OnLearnedSaved(tier);
    });
  });
}

}  // namespace kvkeep::store_internal
