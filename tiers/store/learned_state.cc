#include "tiers/store/learned_state.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"
#include "tiers/store/section.h"

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

void LoadInto(ChainLearner* learner, absl::string_view learned) {
  if (learner != nullptr) learner->Load(learned);
}

}  // namespace

LearnedState::LearnedState(const std::vector<TenantOptions>& tenants, Chunks* chunks)
    : tenants_(tenants), chunks_(*chunks) {}

void LearnedState::Load(DeviceTier& tier) {
  const auto saved = tier.device->index().ListMeta(kPrefix);
  if (!saved.ok()) return;
  Section section(&chunks_, Section::Kind::kMaintenance);
  for (uint32_t t = 0; t < tenants_.size(); ++t) {
    const std::string g2 = NameOf("g2", tenants_[t]);
    const std::string g3 = NameOf("g3", tenants_[t]);
    for (const auto& [name, value] : *saved) {
      const absl::string_view learned = Decode(value);
      if (learned.empty()) continue;
      G2Pool& own = *chunks_.pools[t];
      if (name == g2 && !std::exchange(own.has_learned, true)) LoadInto(own.learner, learned);
      if (name == g3) LoadInto(tier.learners[t], learned);
    }
  }
}

void LearnedState::Save(DeviceTier& tier) {
  std::vector<std::pair<std::string, std::string>> all;
  const auto add = [&all](std::string name, const ChainLearner* learner) {
    if (learner == nullptr) return;
    std::string learned = learner->Save();
    if (learned.empty() || learned.size() > kMaxBytes) return;
    all.emplace_back(std::move(name), std::move(learned));
  };
  for (uint32_t t = 0; t < tenants_.size(); ++t) {
    add(NameOf("g2", tenants_[t]), chunks_.pools[t]->learner);
    add(NameOf("g3", tenants_[t]), tier.learners[t]);
  }
  if (all.empty()) return;
  ++tier.saves;
  ChunkIndex* index = &tier.device->index();
  chunks_.Later([this, &tier, index, all = std::move(all)]() mutable {
    tier.index_executor->Post([this, &tier, index, all = std::move(all)] {
      for (const auto& [name, learned] : all) SaveIfChanged(*index, name, Encode(learned));
      OnSaved(tier);
    });
  });
}

void LearnedState::OnSaved(DeviceTier& tier) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  KVKEEP_CHECK(tier.saves > 0);
  --tier.saves;
}

}  // namespace kvkeep::store_internal
