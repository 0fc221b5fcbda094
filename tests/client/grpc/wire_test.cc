#include "client/grpc/wire.h"

#include <catch2/catch.hpp>
#include <random>

#include "client/grpc/put_frames.h"
#include "kvkeep/v1/kvkeep.pb.h"
#include "tiers/base/checksum.h"

namespace kvkeep::client {
namespace {

// The buffer of `bytes`, cut into slices of random sizes, empty ones among them.
grpc::ByteBuffer Cut(const std::string& bytes, std::mt19937& random) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min<size_t>(random() % 40, bytes.size() - at);
    slices.emplace_back(bytes.data() + at, size);
    at += size;
  }
  return {slices.data(), slices.size()};
}

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  REQUIRE(buffer.Dump(&slices).ok());
  std::string flat;
  for (const auto& s : slices) flat.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return flat;
}

v1::GetFrame RandomFrame(std::mt19937& random) {
  v1::GetFrame frame;
  if (random() % 2) frame.set_key_index(random());
  if (random() % 2) frame.set_part_index(random());
  frame.set_status(static_cast<v1::ChunkStatus>(random() % 5));
  if (random() % 2) frame.set_offset(uint64_t{random()} << 20);
  if (random() % 2) frame.set_payload_bytes(uint64_t{random()} * random());
  frame.set_last(random() % 2);
  for (unsigned n = random() % 4; n > 0; --n) {
    frame.add_piece_checksums(uint64_t{random()} << 32 | random());
  }
  frame.set_metadata(std::string(random() % 50, 'm'));
  for (unsigned n = random() % 300; n > 0; --n) {
    frame.mutable_payload()->push_back(static_cast<char>(random()));
  }
  return frame;
}

void RequireSame(const wire::GetFrameView& view, const v1::GetFrame& frame) {
  CHECK(view.key_index == frame.key_index());
  CHECK(view.part_index == frame.part_index());
  CHECK(view.status == static_cast<uint32_t>(frame.status()));
  CHECK(view.offset == frame.offset());
  CHECK(view.payload_bytes == frame.payload_bytes());
  CHECK(view.last == frame.last());
  CHECK(view.piece_checksums ==
        std::vector<uint64_t>(frame.piece_checksums().begin(), frame.piece_checksums().end()));
  CHECK(view.metadata == frame.metadata());
  std::string payload;
  for (auto run : view.payload) {
    payload.append(reinterpret_cast<const char*>(run.data()), run.size());
  }
  CHECK(payload == frame.payload());
  CHECK(view.payload_size == frame.payload().size());
}

class CountingGuard final : public SliceGuard {
 public:
  void Made() override {
    ++live;
    ++made;
  }
  void Gone() override { --live; }
  std::atomic<int> live{0}, made{0};
};

}  // namespace

TEST_CASE("a get frame reads as the generated parser reads it, however the message is cut") {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const v1::GetFrame frame = RandomFrame(random);
    auto view = wire::ParseGetFrame(Cut(frame.SerializeAsString(), random));
    REQUIRE(view.ok());
    RequireSame(*view, frame);
  }
}

TEST_CASE("a get frame's fields may come in any order, unknown ones are skipped") {
  std::mt19937 random(2);
  v1::GetFrame payload_part;
  payload_part.set_payload("bytes");
  v1::GetFrame rest;
  rest.set_key_index(7);
  rest.add_piece_checksums(99);
  // Field 100 as length-delimited, 101 as fixed32, 102 as fixed64.
  const std::string unknown = std::string("\xA2\x06\x03", 3) + "abc" +
                              std::string("\xAD\x06\0\0\0\0", 6) +
                              std::string("\xB1\x06\0\0\0\0\0\0\0\0", 10);
  const std::string bytes = payload_part.SerializeAsString() + unknown + rest.SerializeAsString();
  v1::GetFrame generated;
  REQUIRE(generated.ParseFromString(bytes));
  auto view = wire::ParseGetFrame(Cut(bytes, random));
  REQUIRE(view.ok());
  RequireSame(*view, generated);
}

TEST_CASE("a get frame that is cut short or scrambled is refused or harmless, never overread") {
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = RandomFrame(random).SerializeAsString();
    if (i % 2 == 0) {
      bytes.resize(random() % (bytes.size() + 1));
    } else {
      for (int n = 0; n < 3 && !bytes.empty(); ++n) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
    }
    auto view = wire::ParseGetFrame(Cut(bytes, random));
    v1::GetFrame generated;
    if (!view.ok()) ++refused;
    // Our reader agrees with the generated parser on every message that both accept.
    if (view.ok() && generated.ParseFromString(bytes)) RequireSame(*view, generated);
  }
  CHECK(refused > 100);
}

TEST_CASE("an empty get frame has all defaults") {
  auto view = wire::ParseGetFrame(grpc::ByteBuffer());
  REQUIRE(view.ok());
  RequireSame(*view, v1::GetFrame());
}

TEST_CASE("put frames parse back to the chunks they were cut from, without a copy of the payload") {
  std::vector<std::byte> a(9 << 20), b(1), c(4 << 20);
  std::mt19937 random(4);
  for (auto* bytes : {&a, &b, &c}) {
    for (size_t i = 0; i < bytes->size(); i += 97) (*bytes)[i] = static_cast<std::byte>(random());
  }
  std::vector<PutChunk> chunks(3);
  const std::span<const std::byte> whole(a);
  chunks[0] = {
      .key = *ChunkKey::FromBytes("a"),
      .runs = {whole.subspan(0, 3), whole.subspan(3, 5 << 20), whole.subspan((5 << 20) + 3)},
      .metadata = "tail"};
  chunks[1] = {.key = *ChunkKey::FromBytes("b"), .part = 3, .runs = {b}};
  chunks[2] = {.key = *ChunkKey::FromBytes("c"), .runs = {c}, .parent_key = chunks[0].key};
  CountingGuard guard;
  {
    PutFrames frames({.session_token = "0123456789abcdef", .namespace_digest = "ns"},
                     {.durable = true, .checksum = true}, &chunks, {0, 1, 2}, &guard);
    std::vector<v1::PutFrame> sent;
    for (; !frames.done();) REQUIRE(sent.emplace_back().ParseFromString(Flatten(frames.Next())));
    REQUIRE(sent.size() == 8);  // four of 2 MiB and one of 1 MiB, 1 byte, two of 2 MiB
    CHECK(sent[0].stream().session_token() == "0123456789abcdef");
    CHECK(sent[0].stream().namespace_digest() == "ns");
    CHECK(sent[0].chunk().payload_bytes() == a.size());
    CHECK(sent[0].chunk().durable());
    CHECK(sent[0].chunk().checksum() == Xxh3(a));
    CHECK(sent[0].chunk().metadata() == "tail");
    CHECK(sent[0].payload().size() == 2 << 20);
    std::string back;
    for (size_t i = 0; i < 5; ++i) back += sent[i].payload();
    REQUIRE(back.size() == a.size());
    CHECK(std::memcmp(back.data(), a.data(), a.size()) == 0);
    CHECK_FALSE(sent[1].has_stream());
    CHECK_FALSE(sent[1].has_chunk());
    CHECK(sent[5].chunk().part() == 3);
    CHECK(sent[5].payload().size() == 1);
    CHECK(sent[6].chunk().hints().parent_key() == chunks[0].key.view());
  }
  CHECK(guard.made > 5);
  CHECK(guard.live == 0);
}

}  // namespace kvkeep::client
