// Helpers of the tests of sources: images in memory, keys of fleets, and a read's callbacks.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tests/fakes/stored_page.h"
#include "tiers/remote/fleet_keys.h"
#include "tiers/remote/remote_source.h"

namespace kvkeep {

inline std::vector<std::byte> RandomBytes(size_t bytes, uint64_t seed) {
  std::vector<std::byte> made(bytes);
  SeededRandom(seed).Fill(made);
  return made;
}

inline ChunkId Chunk(uint8_t number) {
  return {CountedFrom<NamespaceDigest>(1), CountedFrom<ChunkKey>(number), PartId(0)};
}

inline FleetKeys KeysOf(uint8_t fleet) {
  const auto bytes = CountedFrom<std::array<std::byte, 32>>(fleet);
  return FleetKeys::Derive(Secret(bytes), "fleet");
}

// An image in memory, header page included; contiguous for this many bytes at a time.
struct Image {
  ChunkId id;
  ImageShape shape;
  std::vector<std::byte> bytes;

  static Image Make(const RemoteSource& of, const ChunkId& id, uint32_t payload, uint64_t seed,
                    Tier tier = Tier::kG4, bool encrypted = true) {
    Image image{id, {payload, 40}, {}};
    const BlockCount blocks = image.shape.blocks();
    image.bytes = RandomBytes(blocks.value() * kBlockBytes, seed);
    ImageHeader header;
    header.identity = {id, image.shape, 1, 2,
                       std::vector<uint64_t>(image.shape.pieces(), seed)};
    header.placement = {tier, of.place(), Incarnation(0), Generation(0),
                        {Extent{BlockNumber(0), blocks}}};
    if (encrypted) {
      header.encryption.emplace().key_id = CountedFrom<KeyId>(1);
      header.encryption->unit_tags.resize(image.shape.units());
    }
    EncodeHeader(header, of.mac_key(), image.header());
    return image;
  }
  HeaderPage header() { return HeaderPage(bytes.data(), kHeaderBytes); }
  RemoteSource::Memory memory() {
    return [this](uint64_t offset, uint64_t most) {
      return std::span(bytes).subspan(offset, std::min<uint64_t>(most, 300'000));
    };
  }
};

// The callbacks of a read, each checked to come once.
struct Told {
  std::optional<absl::Status> header;
  std::vector<uint64_t> piece_bytes;
  absl::Status pieces;
  std::optional<std::chrono::seconds> age;

  bool ended(const ImageShape& shape) const {
    for (size_t i = 0; i < shape.pieces(); ++i) {
      if (piece_bytes[i] != shape.piece_end(i) - shape.piece_begin(i)) return false;
    }
    return header.has_value();
  }
  bool well() const { return header->ok() && pieces.ok(); }
};

inline Image Empty(const Image& like) {
  return {like.id, like.shape, std::vector<std::byte>(like.bytes.size())};
}

// Both have to live until everything was reported.
inline void StartRead(RemoteSource& source, Image& into, Told* told) {
  told->piece_bytes.resize(into.shape.pieces());
  source.Read({.id = into.id,
               .shape = into.shape,
               .header = into.header(),
               .memory = into.memory(),
               .header_done =
                   [told](absl::Status status) {
                     REQUIRE_FALSE(told->header.has_value());
                     told->header = status;
                   },
               .piece_done =
                   [told](size_t piece, uint64_t bytes, absl::Status status) {
                     told->piece_bytes[piece] += bytes;
                     told->pieces.Update(status);
                   },
               .age =
                   [told](std::chrono::seconds age) {
                     CHECK_FALSE(told->header.has_value());
                     told->age = age;
                   }});
}

}  // namespace kvkeep
