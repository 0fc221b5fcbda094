#include "server/fleet/image_taker.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "server/fleet/peer_wire.h"
#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

// A frame as another node sends it: `from` to `to` of the image, the header page if it is the
// first.
std::string FrameOf(const std::string& image, uint64_t from, uint64_t to) {
  FetchFrameHead head{.offset = from, .image_bytes = to - from};
  std::string body = image.substr(from, to - from);
  if (from == 0) {
    head.header = image.substr(0, kHeaderBytes);
    head.image_bytes = to - kHeaderBytes;
    body = image.substr(kHeaderBytes, to - kHeaderBytes);
  }
  return EncodeFetchFrameHead(head) + body;
}

// The reader of an image of 2.5 pieces, in memory of runs of 100,000 bytes.
class Reader {
 public:
  explicit Reader(const ImageShape& of_shape)
      : shape(of_shape), memory(of_shape.blocks().value() * kBlockBytes, std::byte{0xee}) {
    SeededRandom random(1);
    sent.resize(memory.size());
    random.Fill(std::as_writable_bytes(std::span(sent)));
    for (uint64_t at = shape.used_bytes(); at < sent.size(); ++at) sent[at] = 0;
    request.shape = shape;
    request.memory = [this](uint64_t offset, uint64_t most) {
      REQUIRE(offset < memory.size());
      const uint64_t run = 100'000 - offset % 100'000;
      return std::span(memory).subspan(offset,
                                       std::min<uint64_t>({most, run, memory.size() - offset}));
    };
    request.header_done = [this](absl::Status status) { headers.push_back(std::move(status)); };
    request.piece_done = [this](size_t piece, uint64_t bytes, absl::Status status) {
      (status.ok() ? good : bad)[piece] += bytes;
    };
  }
  absl::Status Take(const std::string& frame) {
    const WireRun run(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
    return taker.Take(std::span(&run, 1));
  }
  uint64_t told() const {
    uint64_t bytes = kHeaderBytes;
    for (const auto& [piece, of_it] : good) bytes += of_it;
    for (const auto& [piece, of_it] : bad) bytes += of_it;
    return bytes;
  }
  bool whole() const {
    return std::equal(memory.begin() + kHeaderBytes, memory.end(),
                      reinterpret_cast<const std::byte*>(sent.data()) + kHeaderBytes) &&
           std::equal(header.begin(), header.end(),
                      reinterpret_cast<const std::byte*>(sent.data()));
  }

  ImageShape shape;
  std::string sent;  // the image
  std::vector<std::byte> memory;
  std::array<std::byte, kHeaderBytes> header{};
  std::vector<absl::Status> headers;
  std::map<size_t, uint64_t> good, bad;  // bytes that were told, by piece
  absl::Status checked;                  // what the reader says to the header page
  PeerRead read{.request = {.id = {}, .shape = {}, .header = header},
                .check_header = [this] { return checked; }};
  RemoteSource::ReadRequest& request = read.request;
  ImageTaker taker{&read};
};

constexpr ImageShape kShape{.payload_bytes = 2'600'000, .tail_bytes = 77};

TEST_CASE("an image in frames of any size is told piece by piece, and is whole") {
  SeededRandom random(20261130);
  for (int round = 0; round < 20; ++round) {
    Reader reader(kShape);
    const uint64_t used = reader.shape.used_bytes();
    for (uint64_t at = 0; at < used;) {
      const uint64_t least = at == 0 ? kHeaderBytes : at;
      const uint64_t to = std::min(used, least + 1 + random.NextU64() % 900'000);
      REQUIRE(reader.Take(FrameOf(reader.sent, at, to)).ok());
      at = to;
    }
    CHECK(reader.taker.complete());
    CHECK(reader.headers == std::vector<absl::Status>{absl::OkStatus()});
    CHECK(reader.good.size() == reader.shape.pieces());
    CHECK(reader.told() == reader.sent.size());
    CHECK(reader.whole());
  }
}

TEST_CASE("what is not the next bytes of the image is refused, and nothing of it is written") {
  Reader reader(kShape);
  const uint64_t used = reader.shape.used_bytes();
  const std::string first = FrameOf(reader.sent, 0, 1'000'000);
  SECTION("no header page first") {
    CHECK(absl::IsDataLoss(reader.Take(FrameOf(reader.sent, 4096, 10'000))));
  }
  SECTION("a header page of another size") {
    CHECK(absl::IsDataLoss(reader.Take(EncodeFetchFrameHead({.header = "short"}))));
  }
  SECTION("more bytes than the image has, at once") {
    CHECK(absl::IsDataLoss(reader.Take(FrameOf(reader.sent + "x", 0, reader.sent.size() + 1))));
  }
  SECTION("the header page alone") {
    CHECK(absl::IsDataLoss(reader.Take(FrameOf(reader.sent, 0, kHeaderBytes))));
  }
  SECTION("a gap, a repetition, a second header page, no bytes") {
    REQUIRE(reader.Take(first).ok());
    CHECK(absl::IsDataLoss(reader.Take(FrameOf(reader.sent, 1'000'001, 1'100'000))));
    CHECK(absl::IsDataLoss(reader.Take(FrameOf(reader.sent, 999'999, 1'100'000))));
    CHECK(absl::IsDataLoss(reader.Take(first)));
    CHECK(absl::IsDataLoss(reader.Take(EncodeFetchFrameHead({.offset = 1'000'000}))));
    CHECK(absl::IsDataLoss(reader.Take("not a frame")));
    CHECK(reader.memory[1'000'000] == std::byte{0xee});
  }
  SECTION("a frame behind the last one") {
    for (const uint64_t from : {used, reader.sent.size()}) {
      Reader other(kShape);
      REQUIRE(other.Take(FrameOf(other.sent, 0, used)).ok());
      REQUIRE(other.taker.complete());
      const std::string more = EncodeFetchFrameHead({.offset = from, .image_bytes = 5}) + "bytes";
      CHECK(absl::IsDataLoss(other.Take(more)));
      CHECK(other.whole());
    }
  }
}

TEST_CASE("a header page that the reader does not take ends the image, and no byte is written") {
  Reader reader(kShape);
  reader.checked = absl::DataLossError("of another chunk");
  const absl::Status status = reader.Take(FrameOf(reader.sent, 0, 500'000));
  CHECK(status == reader.checked);
  CHECK(reader.taker.untold());
  CHECK(reader.headers.empty());
  CHECK(std::all_of(reader.memory.begin(), reader.memory.end(),
                    [](std::byte one) { return one == std::byte{0xee}; }));
  reader.taker.TellRest(status);
  CHECK(reader.headers == std::vector<absl::Status>{reader.checked});
  CHECK(reader.told() == reader.sent.size());
}

TEST_CASE("a call that fails tells the rest, each byte once") {
  for (const uint64_t came : {uint64_t{0}, uint64_t{500'000}, uint64_t{1'500'000}}) {
    Reader reader(kShape);
    if (came > 0) REQUIRE(reader.Take(FrameOf(reader.sent, 0, came)).ok());
    CHECK(reader.taker.untold() == (came == 0));
    reader.taker.TellRest(absl::UnavailableError("gone"));
    CHECK(reader.headers.size() == 1);
    CHECK(reader.headers[0].ok() == (came > 0));
    CHECK(reader.told() == reader.sent.size());
    CHECK(reader.good.size() == (came > 1'100'000 ? 1 : 0));
    CHECK(reader.bad.size() == reader.shape.pieces() - reader.good.size());
  }
}

}  // namespace
}  // namespace kvkeep
