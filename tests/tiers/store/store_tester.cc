#include "tests/tiers/store/store_tester.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

std::string Word(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return "ok";
    case absl::StatusCode::kDataLoss:
      return "damaged";
    case absl::StatusCode::kUnavailable:
      return "away";
    default:
      return absl::StatusCodeToString(status.code());
  }
}

std::string Word(RejectReason reason) {
  switch (reason) {
    case RejectReason::kNoSpace:
      return "no space";
    case RejectReason::kLimit:
      return "limit";
    case RejectReason::kWrongSize:
      return "wrong size";
    case RejectReason::kDraining:
      return "draining";
    default:
      return "rejected";
  }
}

}  // namespace

WorldOptions SmallWorld() {
  WorldOptions options;
  options.g2_blocks = 64;
  options.g2_segment_blocks = 64;
  options.device_blocks = {512};
  // Everything is written back at once, unless a test wants otherwise.
  options.store.dirty_budget_bytes = 64 * kBlockBytes;
  options.store.max_reserved_bytes = 64 * kBlockBytes;
  options.store.max_leased_bytes = 64 * kBlockBytes;
  options.store.max_device_writes_in_flight_bytes = 32 * kBlockBytes;
  return options;
}

StoreTester::StoreTester(const WorldOptions& options, uint64_t bytes_per_part)
    : world(options), bytes_per_part_(bytes_per_part) {
  world.Start();
  Connect();
}

void StoreTester::Connect() {
  session = store().OpenSession({.client_name = "test"}).value();
  ns = store()
           .OpenNamespace(session, {.model = "test",
                                    .tokens_per_chunk = 16,
                                    .bytes_per_part = bytes_per_part_,
                                    .parts = 4})
           .value();
}

std::string StoreTester::Reserve(uint64_t name, size_t bytes, Reservation* out, const PutHow& how) {
  PutRequest request{
      .ns = ns,
      .key = MakeKey(name),
      .shape = {.payload_bytes = static_cast<uint32_t>(bytes), .tail_bytes = how.tail_bytes},
      .transient = how.transient,
      .no_g3 = how.no_g3,
      .durable = how.durable};
  if (how.parent.has_value()) request.parent = MakeKey(*how.parent);
  absl::StatusOr<ReserveResult> result = store().Reserve(session, request);
  if (!result.ok()) return Word(result.status());
  message = result->message;
  if (result->outcome == ReserveResult::Outcome::kPresent) return "present";
  if (result->outcome == ReserveResult::Outcome::kRejected) return Word(result->reason);
  *out = std::move(result->reservation);
  return "reserved";
}

std::string StoreTester::Seal(uint64_t name, Reservation reservation) {
  std::vector<std::byte> payload =
      MakePayload(name, puts_[name].size() + 1, reservation.shape().payload_bytes);
  reservation.Append(payload);
  const std::vector<std::byte> tail(reservation.shape().tail_bytes, std::byte{'t'});
  const absl::StatusOr<SealOutcome> sealed = reservation.Seal(tail);
  if (!sealed.ok()) return Word(sealed.status());
  if (*sealed == SealOutcome::kPresent) return "present";
  puts_[name].push_back(std::move(payload));
  return "stored";
}

std::string StoreTester::Put(uint64_t name, size_t bytes, const PutHow& how) {
  Reservation reservation;
  const std::string reserved = Reserve(name, bytes, &reservation, how);
  if (reserved != "reserved") return reserved;
  return Seal(name, std::move(reservation));
}

ChunkReader StoreTester::Pin(uint64_t name, LeaseId lease) {
  absl::StatusOr<ReadResult> read = store().Read(session, Id(name), lease, false);
  return read.ok() ? std::move(read->reader) : ChunkReader();
}

std::string StoreTester::WaitFor(ChunkReader& reader, size_t first, size_t count) {
  // Shared: a late callback finds its answer still there.
  auto answer = std::make_shared<std::string>("waiting");
  reader.WhenReady(first, count, [answer](absl::Status status) { *answer = Word(status); });
  RunAll();
  return *answer;
}

std::string StoreTester::Bytes(uint64_t name, const ChunkReader& reader) {
  std::vector<std::byte> bytes;
  while (bytes.size() < reader.shape().payload_bytes) {
    const auto run = reader.Payload(bytes.size(), reader.shape().payload_bytes - bytes.size());
    bytes.insert(bytes.end(), run.begin(), run.end());
  }
  if (reader.Metadata() != std::string(reader.shape().tail_bytes, 't')) return "wrong";
  const std::vector<uint64_t> checksums = reader.PieceChecksums();
  if (checksums.size() != reader.shape().pieces()) return "wrong";
  for (size_t i = 0; i < checksums.size(); ++i) {
    const auto piece = std::span(bytes).subspan(i * kPieceBytes, PieceSize(bytes.size(), i));
    if (Xxh3(piece) != checksums[i]) return "wrong";
  }
  const auto& puts = puts_[name];
  if (!puts.empty() && puts.back() == bytes) return "hit";
  return std::find(puts.begin(), puts.end(), bytes) != puts.end() ? "old" : "wrong";
}

std::string StoreTester::Get(uint64_t name, LeaseId lease) {
  absl::StatusOr<ReadResult> read = store().Read(session, Id(name), lease, false);
  if (!read.ok()) return Word(read.status());
  if (read->outcome == ReadOutcome::kMiss) return "miss";
  if (read->outcome == ReadOutcome::kBusy) return "busy";
  const std::string ready = WaitFor(read->reader, 0, read->reader.shape().pieces());
  if (ready == "waiting") return "stuck";
  return ready == "ok" ? Bytes(name, read->reader) : ready;
}

LookupResult StoreTester::Lookup(const std::vector<uint64_t>& names, LeaseMode mode,
                                 uint64_t request_id) {
  std::vector<ChunkKey> keys;
  for (const uint64_t name : names) keys.push_back(MakeKey(name));
  const std::vector<PartId> parts = {PartId(0)};
  return store()
      .Lookup(session,
              {.chunks = {ns, keys, parts}, .lease_mode = mode, .client_request_id = request_id})
      .value();
}

std::string StoreTester::Where(uint64_t name) {
  const LookupResult found = Lookup({name}, LeaseMode::kNone);
  return absl::StrCat(found.g2_parts[0] != 0 ? "2" : "", found.g3_parts[0] != 0 ? "3" : "");
}

uint64_t StoreTester::Delete(const std::vector<uint64_t>& names) {
  std::vector<ChunkKey> keys;
  for (const uint64_t name : names) keys.push_back(MakeKey(name));
  const std::vector<PartId> parts = {PartId(0)};
  return store().Delete(session, {ns, keys, parts}).value();
}

void StoreTester::Touch(const std::vector<uint64_t>& names) {
  std::vector<ChunkKey> keys;
  for (const uint64_t name : names) keys.push_back(MakeKey(name));
  const std::vector<PartId> parts = {PartId(0)};
  KVKEEP_CHECK(store().Touch(session, {ns, keys, parts}).ok());
}

void StoreTester::WhenDurable(uint64_t name, std::string* answer) {
  *answer = "waiting";
  store().WhenDurable(Id(name), [answer](absl::Status status) { *answer = Word(status); });
}

std::string StoreTester::Durable(uint64_t name) {
  std::string answer;
  WhenDurable(name, &answer);
  Pass(std::chrono::milliseconds(200));
  return answer;
}

void StoreTester::FloodG2() {
  const uint64_t chunks = store().snapshot().g2.capacity_bytes / (2 * kBlockBytes);
  for (uint64_t i = 0; i < chunks; ++i) Put(next_flood_++, 4096, {.no_g3 = true});
  RunAll();
}

void StoreTester::Pass(std::chrono::milliseconds time) {
  constexpr auto kTick = std::chrono::milliseconds(100);
  for (auto passed = kTick; passed <= time; passed += kTick) {
    RunAll();
    world.clock().Advance(kTick);
    store().Tick();
    RunAll();
  }
  store().CheckInvariants();
}

void StoreTester::KillAndStart() {
  world.Kill();
  world.Start();
  Connect();
}

void StoreTester::LoseNode() {
  world.Kill();
  world.LoseArena();
  world.SetAttached(0, false);
  world.Start();
  Connect();
}

void StoreTester::PowerCutAndStart() {
  world.PowerCut();
  world.Start();
  Connect();
}

uint64_t StoreTester::DeviceBlock(uint64_t name, size_t device) {
  uint64_t block = 0;
  KVKEEP_CHECK(world.index(device)
                   .Scan([&](const IndexRecord& record) {
                     if (record.id == Id(name)) block = record.extents[0].first.value();
                     return true;
                   })
                   .ok());
  KVKEEP_CHECK(block != 0);
  return block;
}

void PutIntoG3(StoreTester& s, uint64_t name, size_t bytes, uint32_t tail_bytes) {
  REQUIRE(s.Put(name, bytes, {.tail_bytes = tail_bytes}) == "stored");
  s.Settle();
  s.KillAndStart();
  REQUIRE(s.Where(name) == "3");
}

}  // namespace kvkeep
