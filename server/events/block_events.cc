#include "server/events/block_events.h"

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/events/msgpack.h"

namespace kvkeep {
namespace {

constexpr uint32_t kMetadataFormat = 0x316d766b;  // "kvm1"
constexpr uint64_t kRank = 0;                     // of data parallelism: the daemon has none

void Numbers(Msgpack& out, const auto& numbers) {
  out.Array(numbers.size());
  for (const uint64_t number : numbers) out.Uint(number);
}

void TextOrNil(Msgpack& out, absl::string_view text) { text.empty() ? out.Nil() : out.Text(text); }

void ParentOrNil(Msgpack& out, const BlockEvent& event) {
  event.parent.has_value() ? out.Uint(*event.parent) : out.Nil();
}

// Fields in the order of vLLM's classes; those with a default are left out when they have it.
void AppendVllm(Msgpack& out, const BlockEvent& event) {
  const bool in_g3 = event.tier == Tier::kG3;
  const char* const medium = in_g3 ? "STORAGE" : "CPU";
  if (event.kind == BlockEvent::Kind::kCleared) {
    out.Map(1);
    out.Text("type");
    return out.Text("AllBlocksCleared");
  }
  const bool stored = event.kind == BlockEvent::Kind::kStored;
  out.Map((stored ? 8 : 3) + (in_g3 ? 1 : 0));
  out.Text("type");
  out.Text(stored ? "BlockStored" : "BlockRemoved");
  out.Text("block_hashes");
  Numbers(out, event.blocks);
  if (stored) {
    out.Text("parent_block_hash");
    ParentOrNil(out, event);
    out.Text("token_ids");
    Numbers(out, event.token_ids);
    out.Text("block_size");
    out.Uint(event.block_size);
    out.Text("lora_id");
    out.Nil();
  }
  out.Text("medium");
  out.Text(medium);
  if (stored) {
    out.Text("lora_name");
    TextOrNil(out, event.lora_name);
  }
  if (in_g3) {
    out.Text("locality");
    out.Text("LOCAL");
  }
}

void AppendSglang(Msgpack& out, const BlockEvent& event) {
  const char* const medium = event.tier == Tier::kG3 ? "DISK" : "CPU_PINNED";
  switch (event.kind) {
    case BlockEvent::Kind::kCleared:
      out.Array(1);
      return out.Text("AllBlocksCleared");
    case BlockEvent::Kind::kRemoved:
      out.Array(3);
      out.Text("BlockRemoved");
      Numbers(out, event.blocks);
      return out.Text(medium);
    case BlockEvent::Kind::kStored:
      out.Array(7);
      out.Text("BlockStored");
      Numbers(out, event.blocks);
      ParentOrNil(out, event);
      Numbers(out, event.token_ids);
      out.Uint(event.block_size);
      out.Nil();  // lora_id
      return out.Text(medium);
  }
}

}  // namespace

uint64_t LastBlock(const ChunkKey& key) {
  uint64_t block = 0;
  for (size_t byte = 0; byte < sizeof(block); ++byte) block = block << 8 | key.bytes[byte];
  return block;
}

std::optional<BlockEvent> BlocksOf(const ChunkKey& key, absl::string_view metadata,
                                   uint64_t most_blocks) {
  v1::ChunkMetadata said;
  const bool parsed = said.ParseFromArray(metadata.data(), static_cast<int>(metadata.size()));
  if (!parsed || said.format() != kMetadataFormat || said.token_ids().empty()) return std::nullopt;
  const auto tokens = static_cast<uint32_t>(said.token_ids_size());
  const uint32_t size = said.block_size() == 0 ? tokens : said.block_size();
  if (tokens % size != 0 || tokens / size > most_blocks) return std::nullopt;
  BlockEvent event{.kind = BlockEvent::Kind::kStored, .block_size = size};
  const uint64_t last = LastBlock(key);
  for (uint64_t left = tokens / size; left > 0; --left) event.blocks.push_back(last - (left - 1));
  if (!said.parent_key().empty()) {
    const absl::StatusOr<ChunkKey> parent = ChunkKey::FromBytes(said.parent_key());
    if (!parent.ok()) return std::nullopt;
    event.parent = LastBlock(*parent);
  }
  event.token_ids.assign(said.token_ids().begin(), said.token_ids().end());
  event.lora_name = said.lora_name();
  return event;
}

std::string EncodeEvents(EventForm form, double unix_seconds,
                         const std::vector<BlockEvent>& events) {
  Msgpack out;
  out.Array(3);
  out.Double(unix_seconds);
  out.Array(events.size());
  for (const BlockEvent& event : events) {
    form == EventForm::kVllm ? AppendVllm(out, event) : AppendSglang(out, event);
  }
  out.Uint(kRank);
  return out.bytes();
}

}  // namespace kvkeep
