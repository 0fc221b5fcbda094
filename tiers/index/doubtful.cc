#include "tiers/index/doubtful.h"

#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

constexpr char kVersion = 1;
constexpr size_t kBytes = 1 + 2 * sizeof(uint64_t);

}  // namespace

std::string EncodeDoubtful(const Doubtful& doubtful) {
  std::string value(kBytes, kVersion);
  auto* const at = reinterpret_cast<std::byte*>(value.data() + 1);
  StoreAt<uint64_t>(at, doubtful.after.value());
  StoreAt<uint64_t>(at + sizeof(uint64_t), doubtful.to.value());
  return value;
}

Doubtful DecodeDoubtful(const std::optional<std::string>& value) {
  if (!value.has_value()) return Doubtful{};
  if (value->size() != kBytes || (*value)[0] != kVersion) return kAllDoubtful;
  const auto* const at = reinterpret_cast<const std::byte*>(value->data() + 1);
  return {CommitSequence(LoadAt<uint64_t>(at)),
          CommitSequence(LoadAt<uint64_t>(at + sizeof(uint64_t)))};
}

}  // namespace kvkeep
