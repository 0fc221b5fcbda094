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
constexpr size_t kMaxBytes = 256 * kKiB;  // of one policy's value

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

// Writes the value, unless the index has it already.
void SaveIfChanged(ChunkIndex& index, const std::string& name, const std::string& value) {
  const absl::StatusOr<std::optional<std::string>> there = index.GetMeta(name);
  if (there.ok() && *there == value) return;
  index.PutMeta(name, value).IgnoreError();
}

// Returns the policy's own bytes; empty: the value cannot be used.
absl::string_view Decode(absl::string_view value) {
  if (value.size() < kHeadBytes || value.size() > kHeadBytes + kMaxBytes) return "";
  const absl::string_view learned = value.substr(kHeadBytes);
  const auto sum = LoadAt<uint64_t>(AsBytes(value).data() + 1);
  return value[0] == kVersion && sum == Xxh3(AsBytes(learned)) ? learned : "";
}

}  // namespace

LearnedState::LearnedState(const std::vector<TenantOptions>& tenants, Chunks* chunks,
                           DeviceTiers* tiers)
    : chunks_(*chunks) {
  chunks_.AssertHeld();  // nobody else knows this object yet
  const auto add = [this](std::string name, EvictionPolicy& policy) STORE_LOCKED {
    if (policy.learner() == nullptr) return;
    learners_.push_back({.name = std::move(name), .learner = policy.learner()});
  };
  for (uint32_t t = 0; t < tenants.size(); ++t) {
    add(NameOf("g2", tenants[t]), *chunks_.pools[t]->policy);
    if (!tiers->empty()) add(NameOf("g3", tenants[t]), tiers->at(0).policy(TenantId(t)));
  }
}

void LearnedState::Load(DeviceTier& tier) {
  const auto saved = tier.device->index().ListMeta(kPrefix);
  if (!saved.ok()) return;
  for (const auto& [name, value] : *saved) {
    const absl::string_view learned = Decode(value);
    if (learned.empty()) continue;
    ChainLearner* learner = nullptr;
    {
      Section section(&chunks_, Section::Kind::kMaintenance);
      for (Named& known : learners_) {
        if (known.name == name && !std::exchange(known.loaded, true)) learner = known.learner;
      }
    }
    if (learner != nullptr) learner->Load(learned);
  }
}

// Asks the learners on the index executor, as they may be busy for a moment.
void LearnedState::Save(DeviceTier& tier) {
  if (learners_.empty()) return;
  ++tier.saves;
  ChunkIndex* index = &tier.device->index();
  chunks_.Later([this, &tier, index, learners = learners_]() mutable {
    tier.index_executor->Post([this, &tier, index, learners = std::move(learners)] {
      for (const Named& known : learners) {
        const std::string learned = known.learner->Save();
        if (learned.empty() || learned.size() > kMaxBytes) continue;
        SaveIfChanged(*index, known.name, Encode(learned));
      }
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
