// Reads of the simulation's clients, and the results they may get.
#include <absl/strings/str_cat.h>

#include <cstdio>

#include "tests/sim/simulator.h"
#include "tiers/base/check.h"

namespace kvkeep {

void Simulator::DoRead(Client& client) {
  uint64_t name = RandomName(client);
  ++report_.operations;
  LeaseId lease(0);
  bool promised = false, doubted = false;
  if (!client.leases.empty() && random_.Chance(0.5)) {
    const HeldLease& held = client.leases[random_.Below(client.leases.size())];
    lease = held.id;
    if (!held.names.empty() && random_.Chance(0.8)) {
      name = std::next(held.names.begin(), static_cast<ptrdiff_t>(random_.Below(held.names.size())))
                 ->first;
    }
    promised = held.names.contains(name);
    doubted = held.unsure.contains(name);
  }
  // Under a lease the bytes stay readable although deleted since.
  const uint64_t oldest = lease.value() != 0 ? 0 : names_[name].deleted_up_to;
  absl::StatusOr<ReadResult> read =
      world_.store().Read(client.token, Id(name), lease, random_.Chance(0.1));
  KVKEEP_CHECK(read.ok());
  ++report_.reads;
  Log(absl::StrCat("read ", name, " outcome ", static_cast<int>(read->outcome)));
  // A leased chunk is never busy, and a miss only when its promotion failed.
  KVKEEP_CHECK(!promised || read->outcome != ReadOutcome::kBusy);
  const bool must = promised && !doubted && MustNotFail(name);
  KVKEEP_CHECK(!must || read->outcome == ReadOutcome::kHit);
  StartRead(client, name, *std::move(read), oldest, /*must=*/false);
}

bool Simulator::StartRead(Client& client, uint64_t name, ReadResult read, uint64_t oldest,
                          bool must) {
  if (read.outcome != ReadOutcome::kHit) return false;
  ++report_.hits;
  auto held = std::make_shared<HeldReader>();
  held->name = name;
  held->reader = std::move(read.reader);
  held->oldest = oldest;
  // A chunk on its way from beyond the node may be another one by now, or damaged there.
  const bool beyond = read.from_g3 && recalled_.contains(name);
  held->must = must || (MustNotFail(name) && !beyond);
  const auto promise = durable_.find(name);
  held->durable = honest_ && promise != durable_.end() && !beyond &&
                  RecordsOf(name) == std::vector<Promise>{promise->second};
  held->pieces_left = held->reader.shape().pieces();
  client.readers.push_back(held);
  for (size_t piece = 0; piece < held->reader.shape().pieces(); ++piece) {
    ++callbacks_due_;
    held->reader.WhenReady(piece, 1, [this, held, piece, process = process_](absl::Status status) {
      if (process == process_) OnPieceReady(held, piece, std::move(status));
    });
  }
  return true;
}

// A ready piece is right at once, whatever happens to the others.
void Simulator::OnPieceReady(const std::shared_ptr<HeldReader>& held, size_t piece,
                             absl::Status status) {
  KVKEEP_CHECK(callbacks_due_ > 0 && held->pieces_left > 0);
  --callbacks_due_;
  --held->pieces_left;
  if (!status.ok()) {
    if (!held->failed) ++report_.corrupt;
    held->failed = true;
    const bool must = held->must || (held->durable && !absl::IsUnavailable(status));
    if (must) {
      std::printf("failed read of %lu that must not fail: %s\n", held->name,
                  status.ToString().c_str());
    }
    KVKEEP_CHECK(!must);
    return;
  }
  if (!held->reader) return;  // dropped meanwhile
  const ImageShape& shape = held->reader.shape();
  const std::vector<std::byte> bytes =
      held->Payload(piece * kPieceBytes, PieceSize(shape.payload_bytes, piece));
  const std::vector<uint64_t> checksums = held->reader.PieceChecksums();
  KVKEEP_CHECK(checksums.empty() ? held->failed || !held->must : checksums[piece] == Xxh3(bytes));
  const bool known =
      std::any_of(names_[held->name].versions.begin(), names_[held->name].versions.end(),
                  [&](const Version& version) {
                    return version.shape == shape && version.number > held->oldest &&
                           IsPayload(held->name, version.number, piece * kPieceBytes, bytes);
                  });
  if (!known) std::printf("wrong bytes in piece %zu of name %lu\n", piece, held->name);
  KVKEEP_CHECK(known);
}

// Checks that a client that was told PRESENT finds the chunk.
void Simulator::CheckPresent(Client& client, uint64_t name) {
  const Uninterrupted alone(&alone_);
  const auto read = world_.store().Read(client.token, Id(name), LeaseId(0), false);
  KVKEEP_CHECK(read.ok() && read->outcome != ReadOutcome::kMiss);
}

// P1: the bytes are those of exactly one put of this name. Asked again, they are the same.
void Simulator::CheckReader(HeldReader& held) {
  if (!held.ready()) return;
  const ImageShape& shape = held.reader.shape();
  const std::vector<std::byte> bytes = held.Payload(0, shape.payload_bytes);
  const std::string tail = held.reader.Metadata();
  bool found = false;
  for (const Version& version : names_[held.name].versions) {
    if (version.shape != shape || version.number <= held.oldest) continue;
    if (!IsPayload(held.name, version.number, 0, bytes)) continue;
    found = tail == std::string(shape.tail_bytes, static_cast<char>('a' + version.number % 26));
    KVKEEP_CHECK(held.version == 0 || held.version == version.number);
    held.version = version.number;
    break;
  }
  if (!found) std::printf("wrong bytes of name %lu\n", held.name);
  KVKEEP_CHECK(found);
  const std::vector<uint64_t> checksums = held.reader.PieceChecksums();
  KVKEEP_CHECK(checksums.size() == shape.pieces());
  report_.verified_bytes += bytes.size();
}

void Simulator::DoDropReader(Client& client) {
  if (client.readers.empty()) return;
  const size_t pick = random_.Below(client.readers.size());
  CheckReader(*client.readers[pick]);
  Log(absl::StrCat("drop reader of ", client.readers[pick]->name));
  client.readers.erase(client.readers.begin() + static_cast<ptrdiff_t>(pick));
}

}  // namespace kvkeep
