#include <catch2/catch.hpp>
#include <span>
#include <vector>

#include "proto/local/message.h"
#include "tiers/base/key.h"
#include "tools/bench/client/baselines.h"

namespace kvkeep::bench {
namespace {

using local::Kind;
using local::MessageWriter;

template <typename T>
void AppendMany(MessageWriter* writer, size_t count) {
  const std::vector<T> values(count);
  writer->AppendAll(std::span<const T>(values));
}

MessageWriter Request(Kind kind) { return MessageWriter(static_cast<uint16_t>(kind), 1); }

}  // namespace

TEST_CASE("sizes are those of messages built with the protocol's own writer") {
  for (size_t keys : {1, 64, 512}) {
    MessageWriter get = Request(Kind::kGet);
    get.Append(local::KeysRequest{});
    AppendMany<local::ReleaseEntry>(&get, 1);
    AppendMany<ChunkKey>(&get, keys);
    CHECK(GetMessages(keys).request_bytes == get.Finish().size());

    MessageWriter places = local::StartReply(Kind::kGet, 1);
    places.Append(local::LookupReply{});
    places.Extend(2 * keys);
    AppendMany<local::Place>(&places, keys);
    AppendMany<local::ImageRun>(&places, keys);
    places.Append(local::LookupCost{});
    CHECK(GetMessages(keys).reply_bytes == places.Finish().size());

    MessageWriter put = Request(Kind::kPut);
    put.Append(local::PutRequest{});
    AppendMany<local::PutChunk>(&put, keys);
    AppendMany<local::PutRun>(&put, keys);
    CHECK(PutMessages(keys).request_bytes == put.Finish().size());
  }
  // "16 KiB round trip": the keys are 16 KiB, and little comes back.
  CHECK(LookupMessages(512).request_bytes == 16384 + 56);
  CHECK(LookupMessages(512).reply_bytes < 2048);
}

}  // namespace kvkeep::bench
