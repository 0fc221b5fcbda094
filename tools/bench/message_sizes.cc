#include "tools/bench/message_sizes.h"

#include "proto/local/protocol.h"
#include "tiers/base/key.h"

namespace kvkeep::bench {
namespace {

constexpr size_t kHead = sizeof(local::MessageHeader);
constexpr size_t kReplyHead = kHead + sizeof(local::ReplyHead);
constexpr size_t kBitmaps = 2;  // G2 and G3; one byte a key when there are at most 8 parts

constexpr size_t LookupReplyBytes(size_t keys) {
  return kReplyHead + sizeof(local::LookupReply) + kBitmaps * keys + sizeof(local::LookupCost);
}

}  // namespace

MessageSizes GetMessages(size_t keys) {
  return {.request_bytes = kHead + sizeof(local::KeysRequest) + sizeof(local::ReleaseEntry) +
                           keys * ChunkKey::kSize,
          .reply_bytes =
              LookupReplyBytes(keys) + keys * (sizeof(local::Place) + sizeof(local::ImageRun))};
}

MessageSizes LookupMessages(size_t keys) {
  return {.request_bytes = kHead + sizeof(local::KeysRequest) + keys * ChunkKey::kSize,
          .reply_bytes = LookupReplyBytes(keys)};
}

MessageSizes PutMessages(size_t chunks) {
  return {.request_bytes = kHead + sizeof(local::PutRequest) +
                           chunks * (sizeof(local::PutChunk) + sizeof(local::PutRun)),
          .reply_bytes = kReplyHead + sizeof(local::PutReply) + chunks * sizeof(local::PutAnswer)};
}

}  // namespace kvkeep::bench
