#include <cstring>
#include <memory>

#include "tiers/base/status_macros.h"
#include "tools/bench/shared_pages.h"
#include "tools/compare/contestant.h"
#include "tools/compare/ring_of_keys.h"

namespace kvkeep::compare {
namespace {

// Chunks lie one after the other in pages like the arena's; the oldest is written over.
class Memcpy final : public Contestant {
 public:
  explicit Memcpy(bench::SharedPages pages) : pages_(std::move(pages)) {}

  absl::Status Put(const ChunkKey& key, std::span<const std::byte> payload) override {
    ring_.Resize(pages_.memory().size() / payload.size());
    const RingOfKeys::Slot slot = ring_.Take(key);
    std::memcpy(At(slot.number, payload.size()), payload.data(), payload.size());
    return absl::OkStatus();
  }
  absl::Status Get(const ChunkKey& key, std::span<std::byte> out) override {
    const std::optional<uint64_t> slot = ring_.Find(key);
    if (!slot.has_value()) return absl::NotFoundError("no such chunk");
    std::memcpy(out.data(), At(*slot, out.size()), out.size());
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) override {
    uint64_t found = 0;
    for (const ChunkKey& key : keys) found += ring_.Find(key).has_value() ? 1 : 0;
    return found;
  }
  absl::Status Clear() override {
    ring_ = {};
    return absl::OkStatus();
  }

 private:
  std::byte* At(uint64_t slot, uint64_t size) { return pages_.memory().data() + slot * size; }

  const bench::SharedPages pages_;
  RingOfKeys ring_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> MakeMemcpy(const Setup& setup) {
  KVKEEP_ASSIGN_OR_RETURN(bench::SharedPages pages,
                          bench::SharedPages::Create(setup.capacity_bytes, ""));
  return std::make_unique<Memcpy>(std::move(pages));
}

}  // namespace kvkeep::compare
