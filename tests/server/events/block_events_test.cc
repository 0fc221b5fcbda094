// Messages to routers, byte for byte.
#include "server/events/block_events.h"

#include <absl/strings/escaping.h>

#include <catch2/catch.hpp>

#include "kvkeep/v1/kvkeep.pb.h"
#include "server/events/msgpack.h"

namespace kvkeep {
namespace {

using Kind = BlockEvent::Kind;

// As vLLM 0.33.0's own classes read them: tests/engines/kv_events_golden.py.
constexpr char kVllmBytes[] =
    "93cb41d954fc401000009581a474797065b0416c6c426c6f636b73436c656172656488a474797065ab426c6f"
    "636b53746f726564ac626c6f636b5f68617368657392cf0102030405060707cf0102030405060708b1706172"
    "656e745f626c6f636b5f68617368c0a9746f6b656e5f69647396017fcc80cd012cce0001117005aa626c6f63"
    "6b5f73697a6503a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65c089a474797065"
    "ab426c6f636b53746f726564ac626c6f636b5f68617368657391cffffffffffffffffeb1706172656e745f62"
    "6c6f636b5f68617368cf0102030405060708a9746f6b656e5f696473dc0014000102030405060708090a0b0c"
    "0d0e0f10111213aa626c6f636b5f73697a6514a76c6f72615f6964c0a66d656469756da753544f52414745a9"
    "6c6f72615f6e616d65aa616e2061646170746572a86c6f63616c697479a54c4f43414c84a474797065ac426c"
    "6f636b52656d6f766564ac626c6f636b5f68617368657391cffffffffffffffffea66d656469756da753544f"
    "52414745a86c6f63616c697479a54c4f43414c83a474797065ac426c6f636b52656d6f766564ac626c6f636b"
    "5f6861736865739207cd012ca66d656469756da343505500";
// As msgspec writes them from array_like classes, which SGLang had before 0.5.23.
constexpr char kSglangBytes[] =
    "93cb41d954fc401000009591b0416c6c426c6f636b73436c656172656497ab426c6f636b53746f72656492cf"
    "0102030405060707cf0102030405060708c096017fcc80cd012cce000111700503c0aa4350555f50494e4e45"
    "4497ab426c6f636b53746f72656491cffffffffffffffffecf0102030405060708dc00140001020304050607"
    "08090a0b0c0d0e0f1011121314c0a44449534b93ac426c6f636b52656d6f76656491cffffffffffffffffea4"
    "4449534b93ac426c6f636b52656d6f7665649207cd012caa4350555f50494e4e454400";

// As the Python package writes it: tests/client/python/client_test.py.
constexpr char kMetadataBytes[] =
    "0d6b766d311220000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f1a0a017f"
    "8001ac02f0a2040520032a0a616e2061646170746572";

std::vector<BlockEvent> Events() {
  std::vector<uint32_t> twenty;
  for (uint32_t i = 0; i < 20; ++i) twenty.push_back(i);
  return {{.kind = Kind::kCleared},
          {.kind = Kind::kStored,
           .tier = Tier::kG2,
           .blocks = {0x0102030405060707, 0x0102030405060708},
           .token_ids = {1, 127, 128, 300, 70000, 5},
           .block_size = 3},
          {.kind = Kind::kStored,
           .tier = Tier::kG3,
           .blocks = {0xfffffffffffffffe},
           .parent = 0x0102030405060708,
           .token_ids = twenty,
           .block_size = 20,
           .lora_name = "an adapter"},
          {.kind = Kind::kRemoved, .tier = Tier::kG3, .blocks = {0xfffffffffffffffe}},
          {.kind = Kind::kRemoved, .tier = Tier::kG2, .blocks = {7, 300}}};
}

std::string Encoded(EventForm form) {
  return absl::BytesToHexString(EncodeEvents(form, 1700000000.25, Events()));
}

v1::ChunkMetadata TwoBlocks() {
  v1::ChunkMetadata metadata;
  metadata.set_format(0x316d766b);
  for (const uint32_t token : {1, 127, 128, 300, 70000, 5}) metadata.add_token_ids(token);
  metadata.set_block_size(3);
  return metadata;
}

const ChunkKey kKey = *ChunkKey::FromBytes("\1\2\3\4\5\6\7\10 and more of it");

}  // namespace

TEST_CASE("messages are what the engines' own classes read") {
  CHECK(Encoded(EventForm::kVllm) == kVllmBytes);
  CHECK(Encoded(EventForm::kSglang) == kSglangBytes);
}

TEST_CASE(
    "a chunk's blocks are named from its key backwards, its parent's last from that one's key") {
  v1::ChunkMetadata metadata = TwoBlocks();
  const BlockEvent first = BlocksOf(kKey, metadata.SerializeAsString()).value();
  CHECK(first.blocks == Events()[1].blocks);
  CHECK(first.token_ids == Events()[1].token_ids);
  CHECK(first.block_size == 3);
  CHECK_FALSE(first.parent.has_value());
  metadata.set_parent_key(std::string(kKey.view()));
  metadata.set_block_size(0);
  metadata.set_lora_name("lora");
  const BlockEvent child = BlocksOf(ChunkKey(), metadata.SerializeAsString()).value();
  CHECK(child.parent == first.blocks.back());
  CHECK(child.block_size == 6);
  CHECK(child.blocks.size() == 1);
  CHECK(child.lora_name == "lora");
}

TEST_CASE("metadata of the Python package is what Protobuf writes and reads") {
  v1::ChunkMetadata metadata = TwoBlocks();
  for (char byte = 0; byte < 32; ++byte) metadata.mutable_parent_key()->push_back(byte);
  metadata.set_lora_name("an adapter");
  CHECK(absl::BytesToHexString(metadata.SerializeAsString()) == kMetadataBytes);
  const BlockEvent read = BlocksOf(kKey, absl::HexStringToBytes(kMetadataBytes)).value();
  CHECK(read.token_ids == Events()[1].token_ids);
  CHECK(read.parent == 0x0001020304050607);
  CHECK(read.lora_name == "an adapter");
}

TEST_CASE("what is no ChunkMetadata, or makes no sense, says nothing") {
  CHECK_FALSE(BlocksOf(kKey, "").has_value());
  CHECK_FALSE(BlocksOf(kKey, "opaque").has_value());
  v1::ChunkMetadata metadata = TwoBlocks();
  metadata.set_format(1);
  CHECK_FALSE(BlocksOf(kKey, metadata.SerializeAsString()).has_value());
  metadata = TwoBlocks();
  metadata.set_block_size(4);
  CHECK_FALSE(BlocksOf(kKey, metadata.SerializeAsString()).has_value());
  metadata.clear_token_ids();
  CHECK_FALSE(BlocksOf(kKey, metadata.SerializeAsString()).has_value());
  metadata = TwoBlocks();
  metadata.set_parent_key(std::string(33, 'k'));
  CHECK_FALSE(BlocksOf(kKey, metadata.SerializeAsString()).has_value());
}

TEST_CASE("metadata that names more blocks than a chunk can have says nothing") {
  v1::ChunkMetadata metadata;
  metadata.set_format(0x316d766b);
  for (uint64_t token = 0; token < kMostBlocks; ++token) metadata.add_token_ids(7);
  metadata.set_block_size(1);
  CHECK(BlocksOf(kKey, metadata.SerializeAsString()).value().blocks.size() == kMostBlocks);
  CHECK(BlocksOf(kKey, metadata.SerializeAsString(), kMostBlocks).has_value());
  CHECK_FALSE(BlocksOf(kKey, metadata.SerializeAsString(), kMostBlocks - 1).has_value());
  metadata.add_token_ids(7);
  CHECK_FALSE(BlocksOf(kKey, metadata.SerializeAsString()).has_value());
  metadata.set_block_size(0);  // all of it one block
  CHECK(BlocksOf(kKey, metadata.SerializeAsString(), 1).has_value());
}

TEST_CASE("lengths take the shortest form") {
  const auto head = [](size_t length) {
    Msgpack out;
    out.Text(std::string(length, 'x'));
    return absl::BytesToHexString(out.bytes().substr(0, out.bytes().size() - length));
  };
  CHECK(head(31) == "bf");
  CHECK(head(32) == "d920");
  CHECK(head(255) == "d9ff");
  CHECK(head(256) == "da0100");
  CHECK(head(65536) == "db00010000");
}

}  // namespace kvkeep
