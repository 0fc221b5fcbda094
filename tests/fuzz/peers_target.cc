// What another node of the fleet may send: frames of a Fetch into an image, and the messages of
// the other calls. Whatever comes, each byte of the image is told once, none outside of it is
// written, and what was told well is what the frames said.
#include <algorithm>
#include <array>
#include <iterator>

#include "kvkeep/v1/peer.pb.h"
#include "server/fleet/image_taker.h"
#include "server/fleet/peer_wire.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr uint64_t kBeyond = 64;  // bytes behind the image, which nobody may touch

// The reader of one image.
class FuzzedReader {
 public:
  explicit FuzzedReader(const ImageShape& shape)
      : bytes_(shape.blocks().value() * kBlockBytes), memory_(bytes_ + kBeyond, std::byte{0xee}) {
    read_.request.shape = shape;
    read_.request.header = header_;
    read_.request.memory = [this](uint64_t offset, uint64_t most) {
      KVKEEP_CHECK(offset >= kHeaderBytes && offset < bytes_ && most > 0);
      const uint64_t run = 70'000 - offset % 70'000;
      return std::span(memory_).subspan(offset, std::min({most, run, bytes_ - offset}));
    };
    read_.request.header_done = [this](const absl::Status& status) {
      KVKEEP_CHECK(headers_++ == 0 && told_ == kHeaderBytes);
      well_ = status.ok();
    };
    read_.request.piece_done = [this](size_t piece, uint64_t bytes, const absl::Status& status) {
      KVKEEP_CHECK(headers_ == 1 && bytes > 0 && (well_ || !status.ok()));
      KVKEEP_CHECK(told_ + bytes <= read_.request.shape.piece_end(piece));
      told_ += bytes;
      if (status.ok()) good_ = told_;
    };
    read_.check_header = [this] {
      return header_[0] == std::byte{'x'} ? absl::DataLossError("not taken") : absl::OkStatus();
    };
  }
  // Returns whether more may come.
  bool Take(const std::string& message, uint64_t cut) {
    const WireRun whole = AsBytes(message);
    const WireRun first = whole.first(std::min<uint64_t>(cut, whole.size()));
    const WireRun runs[] = {first, whole.subspan(first.size())};
    status_ = taker_.Take(runs);
    return status_.ok();
  }
  void End() {
    if (!taker_.complete()) {
      taker_.TellRest(status_.ok() ? absl::UnavailableError("it ended") : status_);
    }
    KVKEEP_CHECK(headers_ == 1 && told_ == bytes_);
    KVKEEP_CHECK(std::all_of(memory_.end() - kBeyond, memory_.end(),
                             [](std::byte one) { return one == std::byte{0xee}; }));
    // Frames hold bytes of one value each: what was told well has no hole.
    const auto begin = memory_.begin() + kHeaderBytes;
    const uint64_t good = std::min(good_, read_.request.shape.used_bytes());
    if (good > kHeaderBytes) {
      KVKEEP_CHECK(std::find(begin, memory_.begin() + static_cast<ptrdiff_t>(good),
                             std::byte{0xee}) == memory_.begin() + static_cast<ptrdiff_t>(good));
    }
  }

 private:
  const uint64_t bytes_;
  std::vector<std::byte> memory_;
  std::array<std::byte, kHeaderBytes> header_{};
  int headers_ = 0;
  bool well_ = false;
  uint64_t told_ = kHeaderBytes, good_ = 0;
  absl::Status status_;
  PeerRead read_{.request = {.id = {}, .shape = {}, .header = header_}};
  ImageTaker taker_{&read_};
};

void TakeFrames(InputReader& input) {
  const ImageShape shape{.payload_bytes = 1 + (input.U16() % 48) * 60'007u,
                         .tail_bytes = input.U8()};
  FuzzedReader reader(shape);
  uint64_t next = 0;
  bool more = true;
  for (int frames = 0; more && frames < 12 && !input.done(); ++frames) {
    const uint8_t kind = input.U8();
    std::string message;
    if (kind % 8 == 0) {
      message = input.Text(input.U8());
    } else {
      // Nearly what a node would send; some bits of `kind` say what is wrong.
      const uint64_t begin = next == 0 ? kHeaderBytes : next;
      const uint64_t left = shape.used_bytes() - std::min(begin, shape.used_bytes());
      const uint64_t bytes = std::min<uint64_t>(left, input.U16() * 16 + 1) + (kind % 8 == 1);
      const bool header = (next == 0) != (kind % 8 == 2);
      message = EncodeFetchFrameHead(
          {.header = header ? std::string(kHeaderBytes - (kind % 8 == 3), kind % 8 == 4 ? 'x' : 'h')
                            : std::string(),
           .offset = kind % 8 == 5 ? input.U64() : next,
           .image_bytes = bytes});
      message += std::string(bytes, 'b');
      next = begin + bytes;
    }
    more = reader.Take(message, input.U16());
  }
  reader.End();
}

void ParseOffers(const std::string& bytes, size_t offered) {
  v1::OfferRequest offer;
  if (offer.ParseFromString(bytes)) {
    const absl::StatusOr<std::vector<OfferedChunk>> chunks = ParseOfferRequest(offer);
    for (size_t i = 0; chunks.ok() && i < chunks->size(); ++i) {
      KVKEEP_CHECK(ValidateShape((*chunks)[i].shape).ok());
      KVKEEP_CHECK((*chunks)[i].id.ns == chunks->front().id.ns);
    }
    KVKEEP_CHECK(!chunks.ok() || (!chunks->empty() && chunks->size() <= kMostChunksAFind));
  }
  v1::OfferResponse answer;
  if (answer.ParseFromString(bytes)) {
    const absl::StatusOr<OfferAnswer> ends = ParseOfferResponse(answer, offered);
    KVKEEP_CHECK(!ends.ok() || ends->chunks.size() == offered);
  }
}

void ParseSummary(const std::string& bytes) {
  v1::SummaryResponse response;
  if (!response.ParseFromString(bytes)) return;
  const absl::StatusOr<ChunkSummary> summary =
      ChunkSummary::Parse(response.level(), std::move(*response.mutable_bits()));
  if (!summary.ok()) return;
  const std::vector<uint64_t> run = {0, 1, response.version(), UINT64_MAX};
  const ChunkSummary::Answer front = summary->LookFromFront(run);
  KVKEEP_CHECK(front.sampled <= run.size() && front.sampled - front.there <= 1);
}

void ParseMessages(InputReader& input) {
  const uint8_t asked = input.U8();
  const std::string bytes = input.RestText();
  ParseOffers(bytes, asked);
  ParseSummary(bytes);
  v1::FindRequest find;
  if (find.ParseFromString(bytes)) {
    const absl::StatusOr<std::vector<ChunkId>> ids = ParseFindRequest(find);
    if (ids.ok()) {
      KVKEEP_CHECK(!ids->empty() && ids->size() <= kMostChunksAFind);
      KVKEEP_CHECK(ParseFindRequest(ToFindRequest(*ids)).value() == *ids);
    }
  }
  v1::FindResponse answer;
  if (answer.ParseFromString(bytes)) {
    const absl::StatusOr<PeerSource::Found> found = ParseFindResponse(answer, asked);
    KVKEEP_CHECK(!found.ok() || found->size() == asked);
    for (size_t i = 0; found.ok() && i < found->size(); ++i) {
      KVKEEP_CHECK(!(*found)[i].has_value() || ValidateShape((*found)[i]->shape).ok());
    }
  }
  v1::FetchRequest fetch;
  if (fetch.ParseFromString(bytes)) {
    const absl::StatusOr<WantedImage> wanted = ParseFetchRequest(fetch);
    KVKEEP_CHECK(!wanted.ok() || ValidateShape(wanted->shape).ok());
  }
  v1::PeerHelloRequest hello;
  if (hello.ParseFromString(bytes)) {
    const absl::StatusOr<uint32_t> version = ChooseVersion(hello);
    KVKEEP_CHECK(!version.ok() || (*version >= kPeerVersionMin && *version <= kPeerVersionMax));
  }
}

void RunPeers(std::span<const uint8_t> bytes) {
  InputReader input(bytes);
  return input.U8() % 4 == 0 ? ParseMessages(input) : TakeFrames(input);
}

FuzzInput MessageSeed(uint8_t asked, const std::string& message) {
  FuzzInput seed = {0, asked};
  for (const char byte : message) seed.push_back(static_cast<uint8_t>(byte));
  return seed;
}

std::vector<FuzzInput> PeersSeeds() {
  std::vector<ChunkId> ids(3);
  ids[1].part = PartId(1);
  v1::FindResponse answer;
  ToFindResponse({PeerChunk{{1'000, 7}, Tier::kG3}, std::nullopt}, &answer);
  v1::OfferResponse taken;
  ToOfferResponse({.chunks = {OfferEnd::kTaken, OfferEnd::kHad}, .full = true}, &taken);
  v1::SummaryResponse summary;
  summary.set_version(7);
  summary.set_bits(std::string(ChunkSummary::kBlockBytes, '\xff'));
  // Frames of 32 KiB each, as a node would send them, and one of each fault.
  FuzzInput whole = {1, 3, 0, 9};
  constexpr std::array<uint8_t, 5> kFrame = {6, 0xff, 0x07, 5, 0};
  for (int i = 0; i < 8; ++i) std::copy(kFrame.begin(), kFrame.end(), std::back_inserter(whole));
  std::vector<FuzzInput> seeds = {
      MessageSeed(0, ToFindRequest(ids).SerializeAsString()),
      MessageSeed(2, answer.SerializeAsString()),
      MessageSeed(0, ToFetchRequest(ids[1], {1'000, 7}).SerializeAsString()),
      MessageSeed(0, ToOfferRequest({{ids[0], {1'000, 7}}, {ids[1], {9, 0}}}).SerializeAsString()),
      MessageSeed(2, taken.SerializeAsString()),
      MessageSeed(0, summary.SerializeAsString()),
      whole};
  for (uint8_t fault = 0; fault < 6; ++fault) {
    seeds.push_back(whole);
    seeds.back()[4] = fault;
    seeds.push_back(whole);
    seeds.back()[9] = fault;
  }
  return seeds;
}

}  // namespace

const FuzzTarget kPeersTarget{.name = "peers", .run = RunPeers, .seeds = PeersSeeds};

}  // namespace kvkeep
