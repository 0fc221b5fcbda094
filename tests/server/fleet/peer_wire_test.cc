#include "server/fleet/peer_wire.h"

#include <catch2/catch.hpp>

#include "server/grpc/byte_buffer.h"
#include "tests/fakes/seeded_random.h"
#include "tests/fakes/stored_page.h"

namespace kvkeep {
namespace {

using Catch::Matchers::Contains;

std::vector<ChunkId> SomeIds(size_t count) {
  std::vector<ChunkId> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back({CountedFrom<NamespaceDigest>(1), CountedFrom<ChunkKey>(static_cast<uint8_t>(i)),
                   PartId(static_cast<uint32_t>(i % 3))});
  }
  return ids;
}

std::string WhyNotFind(const v1::FindRequest& request) {
  return std::string(ParseFindRequest(request).status().message());
}

absl::StatusOr<ReceivedFetchFrame> Parse(const std::string& bytes) {
  const WireRun run(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  return ParseFetchFrame(std::span(&run, 1));
}

TEST_CASE("questions and answers come through as they were") {
  const std::vector<ChunkId> ids = SomeIds(5);
  CHECK(ParseFindRequest(ToFindRequest(ids)).value() == ids);
  const PeerSource::Found found = {PeerChunk{{1, 0}, Tier::kG2}, std::nullopt,
                                   PeerChunk{{kPieceBytes * 256, 40}, Tier::kG3}};
  v1::FindResponse response;
  ToFindResponse(found, &response);
  CHECK(ParseFindResponse(response, 3).value() == found);
  const absl::StatusOr<WantedImage> wanted =
      ParseFetchRequest(ToFetchRequest(ids[4], {3'000'000, 7}));
  CHECK(wanted->id == ids[4]);
  CHECK(wanted->shape == ImageShape{3'000'000, 7});
}

TEST_CASE("nodes of two versions talk by the highest that both know, or not at all") {
  const auto chosen = [](uint32_t min, uint32_t max, uint32_t own_min, uint32_t own_max) {
    v1::PeerHelloRequest hello;
    hello.set_min_version(min);
    hello.set_max_version(max);
    return ChooseVersion(hello, own_min, own_max);
  };
  CHECK(chosen(1, 1, 1, 1).value() == 1);
  CHECK(chosen(1, 2, 2, 3).value() == 2);  // the one that asks is older
  CHECK(chosen(2, 3, 1, 2).value() == 2);
  CHECK(chosen(1, 9, 3, 4).value() == 4);
  CHECK_THAT(std::string(chosen(1, 2, 3, 4).status().message()), Contains("versions 3 to 4"));
  CHECK(absl::IsFailedPrecondition(chosen(5, 6, 3, 4).status()));
  CHECK_FALSE(chosen(0, 0, 1, 1).ok());
  CHECK_FALSE(chosen(3, 2, 1, 9).ok());
}

TEST_CASE("a question that is not as it must be names the field and the limit") {
  v1::FindRequest request = ToFindRequest(SomeIds(2));
  request.set_namespace_id("short");
  CHECK_THAT(WhyNotFind(request), Contains("namespace_id: must have 16 bytes"));
  request = ToFindRequest(SomeIds(2));
  request.mutable_keys()->pop_back();
  CHECK_THAT(WhyNotFind(request), Contains("keys: must have 32 bytes"));
  request = ToFindRequest(SomeIds(2));
  request.add_parts(1);
  CHECK_THAT(WhyNotFind(request), Contains("parts: must have one number for each key"));
  CHECK_THAT(WhyNotFind(ToFindRequest(SomeIds(kMostChunksAFind + 1))), Contains("4096 chunks"));
  v1::FetchRequest fetch = ToFetchRequest(SomeIds(1)[0], {1, 0});
  fetch.set_key("short");
  CHECK_FALSE(ParseFetchRequest(fetch).ok());
  CHECK_FALSE(ParseFetchRequest(ToFetchRequest(SomeIds(1)[0], {0, 0})).ok());
  CHECK_FALSE(ParseFetchRequest(ToFetchRequest(SomeIds(1)[0], {UINT32_MAX, 0})).ok());
}

TEST_CASE("offers and what became of them come through as they were") {
  std::vector<OfferedChunk> chunks;
  for (const ChunkId& id : SomeIds(3)) chunks.push_back({id, {3'000'000, 7}});
  CHECK(ParseOfferRequest(ToOfferRequest(chunks)).value() == chunks);
  const OfferAnswer answer{{OfferEnd::kTaken, OfferEnd::kRefused, OfferEnd::kHad}, true};
  v1::OfferResponse response;
  ToOfferResponse(answer, &response);
  CHECK(ParseOfferResponse(response, 3).value() == answer);
  CHECK_FALSE(ParseOfferResponse(response, 2).ok());
  response.set_ends("\1\2\3");
  CHECK_FALSE(ParseOfferResponse(response, 3).ok());
  response.set_ends("\1\2\377");
  CHECK_FALSE(ParseOfferResponse(response, 3).ok());
}

TEST_CASE("an offer that is not as it must be is refused") {
  const std::vector<OfferedChunk> one = {{SomeIds(1)[0], {1, 0}}};
  v1::OfferRequest request = ToOfferRequest(one);
  request.set_keys("");
  CHECK_FALSE(ParseOfferRequest(request).ok());
  request = ToOfferRequest(one);
  request.add_tail_bytes(0);
  CHECK_FALSE(ParseOfferRequest(request).ok());
  request = ToOfferRequest(one);
  request.clear_payload_bytes();
  CHECK_FALSE(ParseOfferRequest(request).ok());
  CHECK_FALSE(ParseOfferRequest(ToOfferRequest({{SomeIds(1)[0], {0, 0}}})).ok());
  CHECK_FALSE(ParseOfferRequest(ToOfferRequest({{SomeIds(1)[0], {UINT32_MAX, 0}}})).ok());
  const std::vector<OfferedChunk> many(kMostChunksAFind + 1, one[0]);
  CHECK_FALSE(ParseOfferRequest(ToOfferRequest(many)).ok());
}

TEST_CASE("an answer of another length, tier or size is refused") {
  v1::FindResponse response;
  ToFindResponse({PeerChunk{{1, 0}, Tier::kG2}}, &response);
  CHECK(ParseFindResponse(response, 1).ok());
  CHECK_FALSE(ParseFindResponse(response, 2).ok());
  v1::FindResponse other = response;
  other.set_tiers("\4");
  CHECK_FALSE(ParseFindResponse(other, 1).ok());
  other = response;
  other.set_payload_bytes(0, 0);
  CHECK_FALSE(ParseFindResponse(other, 1).ok());
  other = response;
  other.clear_tail_bytes();
  CHECK_FALSE(ParseFindResponse(other, 1).ok());
}

TEST_CASE("a frame is what the generated code would write, and is read back") {
  const std::string image = "image bytes";
  std::string bytes =
      EncodeFetchFrameHead({.header = "header page", .offset = 77, .image_bytes = image.size()});
  bytes += image;
  v1::FetchFrame generated;
  REQUIRE(generated.ParseFromString(bytes));
  CHECK(generated.header() == "header page");
  CHECK(generated.offset() == 77);
  CHECK(generated.image() == image);
  const absl::StatusOr<ReceivedFetchFrame> frame = Parse(bytes);
  REQUIRE(frame.ok());
  CHECK(frame->header == "header page");
  CHECK(frame->offset == 77);
  CHECK(frame->image_bytes == image.size());
  REQUIRE(frame->image.size() == 1);
  CHECK(frame->image[0].size() == image.size());
  CHECK_FALSE(Parse(bytes.substr(0, bytes.size() - 1)).ok());
  CHECK_FALSE(Parse(bytes + bytes).ok());  // each field once
}

TEST_CASE("bytes of any kind are a frame or an error") {
  SeededRandom random(20261130);
  size_t frames = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = EncodeFetchFrameHead({.header = std::string(random.NextU64() % 40, 'h'),
                                              .offset = random.NextU64(),
                                              .image_bytes = 5});
    bytes += "image";
    for (uint64_t changes = random.NextU64() % 4; changes > 0; --changes) {
      bytes[random.NextU64() % bytes.size()] = static_cast<char>(random.NextU64());
    }
    const absl::StatusOr<ReceivedFetchFrame> frame = Parse(bytes);
    if (!frame.ok()) continue;
    ++frames;
    uint64_t sum = 0;
    for (const WireRun& run : frame->image) sum += run.size();
    CHECK(sum == frame->image_bytes);
    CHECK(sum <= bytes.size());
  }
  CHECK(frames > 0);
}

TEST_CASE("a call that was cancelled did not answer") {
  CHECK(absl::IsUnavailable(FromPeer(grpc::Status::CANCELLED)));
  CHECK(absl::IsResourceExhausted(
      FromPeer(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy"))));
  CHECK(FromPeer(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace kvkeep
