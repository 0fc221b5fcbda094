#include "client/local/local_get.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/local/test_point.h"
#include "client/transport/check_call.h"
#include "tiers/base/checksum.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tiers/base/wire_time.h"

namespace kvkeep::client {
namespace {

using local::Kind;

absl::Status GetIsCutOff() {
  return absl::UnavailableError("get: the session ended or was revoked while bytes were copied");
}

// Returns the index of each part asked for within the parts of the lease.
absl::StatusOr<std::vector<size_t>> PartsWithin(Parts asked, size_t count,
                                                const std::vector<uint32_t>& leased) {
  std::vector<size_t> at(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t part = asked.empty() ? static_cast<uint32_t>(i) : asked[i];
    if (leased.empty()) {
      at[i] = part;
      continue;
    }
    const auto found = std::find(leased.begin(), leased.end(), part);
    if (found == leased.end()) {
      return absl::InvalidArgumentError(absl::StrCat("parts: ", part, " is not in the lease"));
    }
    at[i] = static_cast<size_t>(found - leased.begin());
  }
  return at;
}

const LaidChunk* FindChunk(const Layout& layout, uint64_t chunk) {
  const auto at =
      std::lower_bound(layout.chunks.begin(), layout.chunks.end(), chunk,
                       [](const LaidChunk& laid, uint64_t wanted) { return laid.chunk < wanted; });
  return at == layout.chunks.end() || at->chunk != chunk ? nullptr : &*at;
}

}  // namespace

LocalGet::LocalGet(What what) : what_(std::move(what)), destinations_(what_.options) {
  result_.chunks.resize(what_.keys.size() * what_.parts);
}

absl::StatusOr<GetResult> LocalGet::Run() {
  result_.error = what_.options.lease != nullptr ? RunLeased() : RunUnleased();
  for (const GetOutcome& outcome : result_.chunks) {
    what_.counters->bytes_received.fetch_add(outcome.bytes, std::memory_order_relaxed);
  }
  if (finished_ == 0 && !result_.error.ok()) return result_.error;
  return std::move(result_);
}

absl::Status LocalGet::RunLeased() {
  const Lease& lease = *what_.options.lease;
  const auto* const granted = static_cast<const LocalLease*>(lease.state());
  if (!lease.alive() || granted->session() != what_.session) return LeaseIsDead();
  lease_ = granted;
  const LeasedKeys& leased = granted->what();
  const size_t first = what_.options.first_key;
  if (first > lease.keys() || what_.keys.size() > lease.keys() - first) {
    return absl::InvalidArgumentError(absl::StrCat("keys: ", what_.keys.size(), " from key ", first,
                                                   " on; the lease has ", lease.keys()));
  }
  if (leased.ns != what_.ns) return absl::InvalidArgumentError("lease: of another namespace");
  if (!std::equal(what_.keys.begin(), what_.keys.end(), leased.keys.begin() + first)) {
    return absl::InvalidArgumentError("keys: not those of the lease");
  }
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<size_t> part_at,
                          PartsWithin(what_.options.parts, what_.parts, leased.parts));
  const size_t leased_parts = leased.part_count;
  const Layout& layout = *granted->layout();
  for (size_t chunk = 0; chunk < result_.chunks.size(); ++chunk) {
    const uint64_t in_lease =
        (first + chunk / what_.parts) * leased_parts + part_at[chunk % what_.parts];
    const LaidChunk* const laid = FindChunk(layout, in_lease);
    if (laid == nullptr) {
      Finish(chunk, GetStatus::kMiss);
    } else {
      KVKEEP_RETURN_IF_ERROR(DeliverOrPutOff(chunk, layout, *laid));
    }
  }
  return DeliverLate(layout);
}

absl::Status LocalGet::RunUnleased() {
  for (size_t begin = 0; begin < what_.keys.size();) {
    const Keys keys = what_.keys.subspan(begin);
    const KeysQuery query{
        .ns = what_.ns,
        .keys = keys,
        .parts = what_.options.parts,
        .part_count = what_.parts,
        .lease = LeaseMode::kAllPresent,
        .transient = what_.options.transient,
        .remote = {.wait_us = WholeMicroseconds(RemoteWaitOf(what_.options, what_.deadline)),
                   .recompute_us_per_key = WholeMicroseconds(kNotComputable)}};
    const uint64_t id = what_.session->NextId();
    local::MessageWriter& writer = KeysMessage(*what_.session, Kind::kGet, id, query);
    KVKEEP_ASSIGN_OR_RETURN(
        const Found found,
        Ask<Found>(
            what_.session, Kind::kGet, id, writer, what_.deadline,
            [&](LocalSession::Reply& reply) {
              return ReadFound(reply, *what_.session, keys.size(), what_.parts, true,
                               AsksRemote(*what_.session, query));
            },
            [session = what_.session, counters = what_.counters](LocalSession::Reply reply) {
              if (ReleaseLate(*session, reply)) counters->leases_reclaimed.fetch_add(1);
            }));
    TestPoint("get-leased");
    const absl::StatusOr<size_t> next = Take(begin, found);
    if (found.lease != 0) what_.session->QueueRelease(found.lease, 0);
    if (!next.ok()) return next.status();
    begin = *next;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> LocalGet::Take(size_t begin, const Found& found) {
  // If nothing is leased though something is there, there is no room to read it into. Otherwise
  // later keys are asked for again once the leased ones are given back.
  const size_t keys = what_.keys.size() - begin;
  const size_t covered = found.leased_keys == 0 ? keys : found.leased_keys;
  const LaidChunk* laid = found.layout->chunks.data();
  const LaidChunk* const end = laid + found.layout->chunks.size();
  for (size_t i = 0; i < covered * what_.parts; ++i) {
    const size_t chunk = begin * what_.parts + i;
    if (laid != end && laid->chunk == i) {
      KVKEEP_RETURN_IF_ERROR(DeliverOrPutOff(chunk, *found.layout, *laid));
      ++laid;
    } else {
      const bool there = found.present(i / what_.parts, i % what_.parts);
      Finish(chunk, there ? GetStatus::kBusy : GetStatus::kMiss);
    }
  }
  KVKEEP_RETURN_IF_ERROR(DeliverLate(*found.layout));
  return begin + covered;
}

absl::Status LocalGet::DeliverOrPutOff(size_t chunk, const Layout& layout, const LaidChunk& laid) {
  const absl::StatusOr<size_t> ready = PiecesReady(*what_.session->mappings(), laid);
  if (ready.ok() && *ready < PieceCount(laid.payload_bytes)) {
    late_.emplace_back(chunk, &laid);
    return absl::OkStatus();
  }
  return Deliver(chunk, layout, laid);
}

absl::Status LocalGet::DeliverLate(const Layout& layout) {
  absl::Status late;
  for (const auto& [chunk, laid] : std::exchange(late_, {})) {
    const absl::Status delivered = Deliver(chunk, layout, *laid);
    if (!delivered.ok() && !absl::IsDeadlineExceeded(delivered)) return delivered;
    late.Update(delivered);  // later chunks may be complete by now
  }
  return late;
}

absl::Status LocalGet::Deliver(size_t chunk, const Layout& layout, const LaidChunk& laid) {
  GetOptions& options = what_.options;
  GetOutcome& outcome = result_.chunks[chunk];
  outcome.payload_bytes = laid.payload_bytes;
  const uint64_t begin =
      std::min<uint64_t>(uint64_t{options.first_piece} * kPieceBytes, laid.payload_bytes);
  uint64_t end = laid.payload_bytes;
  if (options.pieces > 0) {
    end = std::min<uint64_t>(end, begin + uint64_t{options.pieces} * kPieceBytes);
  }
  const Destination to = destinations_.Of(options, chunk, end - begin);
  if (to.bytes() < end - begin) {
    Finish(chunk, GetStatus::kTooSmall);
    return absl::OkStatus();
  }
  std::vector<uint64_t> checksums;
  absl::Status copied = Copy(layout, laid, begin, end, to, &checksums);
  bool fits = true;
  if (copied.ok() && options.verify) fits = HeaderFits(chunk, layout, laid, begin, checksums);
  if (copied.ok() && options.metadata) {
    for (const auto run : layout.View(laid).metadata) {
      outcome.metadata.append(reinterpret_cast<const char*>(run.data()), run.size());
    }
  }
  // Last, as the bytes read before are good only if this still holds.
  copied.Update(CheckHeld(chunk));
  if (absl::IsDataLoss(copied)) {
    outcome.metadata.clear();
    Finish(chunk, GetStatus::kMiss);
    return absl::OkStatus();
  }
  if (!copied.ok()) {
    outcome.metadata.clear();
    return absl::IsFailedPrecondition(copied) ? GetIsCutOff() : copied;
  }
  if (!fits) {
    outcome.metadata.clear();
    what_.counters->corrupt_chunks.fetch_add(1);
    Finish(chunk, GetStatus::kCorrupt);
    return absl::OkStatus();
  }
  outcome.bytes = end - begin;
  Finish(chunk, GetStatus::kHit);
  return absl::OkStatus();
}

absl::Status LocalGet::CheckHeld(size_t chunk) const {
  if (!what_.session->mappings()->Alive()) return GetIsCutOff();
  if (lease_ != nullptr && !lease_->Keeps(what_.options.first_key + chunk / what_.parts)) {
    return absl::DataLossError("get: the key was given back while its bytes were copied");
  }
  return absl::OkStatus();
}

absl::Status LocalGet::Copy(const Layout& layout, const LaidChunk& laid, uint64_t begin,
                            uint64_t end, Destination to, std::vector<uint64_t>* checksums) {
  const Mappings& mappings = *what_.session->mappings();
  const ChunkView view = layout.View(laid);
  PayloadCopier copier;
  for (uint64_t offset = begin; offset < end;) {
    const size_t piece = offset / kPieceBytes;
    const uint64_t bytes = std::min<uint64_t>(PieceSize(laid.payload_bytes, piece), end - offset);
    KVKEEP_RETURN_IF_ERROR(WaitForPieces(mappings, laid, piece + 1, what_.deadline));
    for (const auto run : CutImage(view.runs, offset, bytes)) {
      // The memory is written anew only when it is no longer held, and then these bytes do not
      // count.
      to.Fill(run, what_.options.verify ? &copier : nullptr);
    }
    offset += bytes;
  }
  if (what_.options.verify) *checksums = copier.Finish();
  if (!what_.options.verify && !what_.options.metadata) return absl::OkStatus();
  // The header page and the tail are complete with the last piece.
  return WaitForPieces(mappings, laid, PieceCount(laid.payload_bytes), what_.deadline);
}

bool LocalGet::HeaderFits(size_t chunk, const Layout& layout, const LaidChunk& laid, uint64_t begin,
                          const std::vector<uint64_t>& checksums) const {
  const HeaderFacts header = ReadHeader(layout.header(laid), PieceCount(laid.payload_bytes));
  const size_t part = chunk % what_.parts;
  const uint32_t asked =
      what_.options.parts.empty() ? static_cast<uint32_t>(part) : what_.options.parts[part];
  return header.ns == what_.ns && header.key == what_.keys[chunk / what_.parts] &&
         header.part == asked && header.payload_bytes == laid.payload_bytes &&
         std::equal(checksums.begin(), checksums.end(),
                    header.piece_checksums.begin() + static_cast<ptrdiff_t>(begin / kPieceBytes));
}

void LocalTransport::Get(Ns ns, const NamespaceSpec& spec, Keys keys, GetOptions options,
                         Callback<GetResult> done) {
  const absl::StatusOr<Ready> ready = Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  const size_t parts = PartCount(spec, options.parts);
  const ServerLimits limits = LimitsOf(*ready->session);
  const absl::StatusOr<bool> is_long = GetNeedsSlices(keys, parts, options, limits);
  if (!is_long.ok()) return std::move(done)(is_long.status());
  const auto deadline = DeadlineOf(options.deadline);
  if (*is_long) {
    LongCall call = LongCallOf(this, ns, spec, keys, parts, limits, deadline);
    return GetInSlices(std::move(call), std::move(options), std::move(done));
  }
  RunOrPost(
      [what = LocalGet::What{.session = ready->session,
                             .ns = ready->digest,
                             .keys = keys,
                             .parts = parts,
                             .options = std::move(options),
                             .deadline = deadline,
                             .counters = counters_},
       done = std::move(done)]() mutable { std::move(done)(LocalGet(std::move(what)).Run()); });
}

}  // namespace kvkeep::client
