#include "tiers/store/encrypted_image.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tests/fakes/seeded_random.h"

namespace kvkeep::store_internal {
namespace {

// The bytes of an image behind its header page, up to the end of an extent of `run` bytes.
class Plain {
 public:
  Plain(const ImageShape& shape, uint64_t run, SeededRandom* random)
      : bytes_(shape.blocks().value() * kBlockBytes - kHeaderBytes), run_(run) {
    random->Fill(bytes_);
  }
  ImageRuns runs() const {
    return [this](uint64_t offset, uint64_t most) {
      const uint64_t at = offset - kHeaderBytes;
      const uint64_t left = std::min(run_ - at % run_, bytes_.size() - at);
      return std::span<const std::byte>(bytes_).subspan(at, std::min(most, left));
    };
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  const uint64_t run_;
};

class Encryption {
 public:
  explicit Encryption(const ImageShape& shape) : key_{random_.Next<KeyId>(), Secret()} {
    random_.Fill(key_.secret.writable());
    header_.identity.shape = shape;
    header_.identity.piece_checksums.resize(shape.pieces());
    header_.placement = {.tier = Tier::kG4,
                         .place = random_.Next<Uuid>(),
                         .incarnation = Incarnation(0),
                         .generation = Generation(0),
                         .extents = {Extent{BlockNumber(0), shape.blocks()}}};
  }
  absl::StatusOr<std::shared_ptr<const EncryptedImage>> Make(const Plain& plain) {
    return EncryptedImage::Make(header_, key_, plain.runs(), MacKey{}, *buffers_, &random_);
  }
  // Decrypts the image, by runs of at most this length.
  std::vector<std::byte> Decrypted(const EncryptedImage& image, uint64_t most) {
    const absl::StatusOr<ImageHeader> header = DecodeHeader(image.header(), MacKey{});
    REQUIRE(header.ok());
    const ImageShape& shape = header->identity.shape;
    const ImageCipher cipher(key_, header->identity, *header->encryption);
    std::vector<std::byte> plain;
    for (size_t unit = 0; unit < shape.units(); ++unit) {
      AesGcm message = cipher.Unit(AesGcm::Direction::kDecrypt, unit);
      for (uint64_t at = shape.unit_begin(unit); at < shape.unit_end(unit);) {
        const auto run = image.Run(at, most);
        REQUIRE((!run.empty() && run.size() <= std::min(most, shape.unit_end(unit) - at)));
        plain.resize(plain.size() + run.size());
        message.Append(run, plain.data() + plain.size() - run.size());
        at += run.size();
      }
      CHECK(message.Matches(header->encryption->unit_tags[unit]));
    }
    return plain;
  }
  SeededRandom* random() { return &random_; }
  const CipherBuffers& buffers() const { return *buffers_; }

 private:
  SeededRandom random_{1};
  DataKey key_;
  ImageHeader header_;
  const std::shared_ptr<CipherBuffers> buffers_ = std::make_shared<CipherBuffers>();
};

}  // namespace

TEST_CASE("an image encrypted whole is the one that was, by runs of any length") {
  const uint64_t payload = GENERATE(1, 5000, 3 * kMiB + 5, 66 * kMiB + 5);
  const ImageShape shape{.payload_bytes = static_cast<uint32_t>(payload), .tail_bytes = 100};
  Encryption encryption(shape);
  const Plain plain(shape, 12 * kBlockBytes, encryption.random());
  const auto image = encryption.Make(plain);
  REQUIRE(image.ok());
  for (const uint64_t most : {uint64_t{10 * kBlockBytes}, uint64_t{1} << 40}) {
    CHECK(encryption.Decrypted(**image, most) == plain.bytes());
  }
  CHECK(encryption.buffers().bytes_out() == plain.bytes().size());
}

TEST_CASE("the next image is encrypted into the buffers of the one before") {
  const ImageShape shape{.payload_bytes = 64 * kMiB};
  Encryption encryption(shape);
  const Plain plain(shape, kMiB, encryption.random());
  std::set<const std::byte*> before;
  std::vector<std::vector<std::byte>> others;  // take whatever is given back to the allocator
  for (int times = 0; times < 3; ++times) {
    others.resize(others.size() + CipherBuffers::kMaxKept,
                  std::vector<std::byte>(CipherBuffers::kUnitBytes));
    const auto image = encryption.Make(plain);
    REQUIRE(image.ok());
    std::set<const std::byte*> now;
    for (size_t unit = 0; unit < shape.units(); ++unit) {
      now.insert((*image)->Run(shape.unit_begin(unit), 1).data());
    }
    CHECK(now.size() == CipherBuffers::kMaxKept);
    if (times > 0) CHECK(now == before);
    before = now;
  }
  CHECK(encryption.buffers().bytes_out() == 0);
}

}  // namespace kvkeep::store_internal
