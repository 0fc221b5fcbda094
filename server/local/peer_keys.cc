#include "server/local/peer_keys.h"

#include <absl/strings/str_cat.h>

#include <cstring>
#include <utility>

#include "server/local/peer_scratch.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/wire_time.h"

namespace kvkeep {

using local::Kind;

PeerKeys::PeerKeys(std::shared_ptr<const LocalContext> context,
                   std::shared_ptr<PeerSession> session, std::shared_ptr<PeerReplies> replies)
    : context_(std::move(context)),
      session_(std::move(session)),
      replies_(std::move(replies)),
      call_(context_->scratch->call),
      places_(context_->scratch->places),
      runs_(context_->scratch->runs) {}

absl::StatusOr<PeerKeys::Answered> PeerKeys::Serve(const local::Message& message) {
  const Kind kind = static_cast<Kind>(message.kind);
  KVKEEP_RETURN_IF_ERROR(call_.Parse(kind, message.body));
  DoReleases();
  if (kind == Kind::kRelease) {
    replies_->Start(kind, message.id);
    replies_->Send();
    return Answered::kNow;
  }
  KVKEEP_RETURN_IF_ERROR(ResolveParts());
  if (kind == Kind::kDelete) return Delete(message.id);
  if (kind == Kind::kPrefetch) return Prefetch(message.id);
  if (kind == Kind::kTouch) return Touch(message.id);
  if (call_.asks_remote() && context_->store->reaches_beyond()) return LookupBeyond(message);
  KVKEEP_ASSIGN_OR_RETURN(const LookupResult found,
                          context_->store->Lookup(session_->token(), call_.lookup()));
  KVKEEP_RETURN_IF_ERROR(ReplyLookup(kind, message.id, found, /*searched=*/false));
  return Answered::kNow;
}

absl::Status PeerKeys::ResolveParts() {
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t parts, session_->PartsOf(call_.ns()));
  if (!call_.names_parts()) call_.NameAllParts(parts);
  return absl::OkStatus();
}

// An unknown lease does not fail the request.
void PeerKeys::DoReleases() {
  for (const local::ReleaseEntry& entry : call_.releases()) {
    const LeaseId lease(entry.lease);
    if (!session_->leases().contains(lease)) continue;
    context_->store->Release(session_->token(), lease, entry.keep_keys).IgnoreError();
    session_->leases().Release(lease, entry.keep_keys);
  }
}

absl::StatusOr<PeerKeys::Answered> PeerKeys::Prefetch(uint64_t id) {
  KVKEEP_ASSIGN_OR_RETURN(const PrefetchResult result,
                          context_->store->Prefetch(session_->token(), call_.chunks()));
  replies_->Start(Kind::kPrefetch, id)
      .Append(local::PrefetchReply{.started_chunks = result.started_chunks,
                                   .ready_chunks = result.ready_chunks});
  replies_->Send();
  return Answered::kNow;
}

absl::StatusOr<PeerKeys::Answered> PeerKeys::Touch(uint64_t id) {
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t chunks,
                          context_->store->Touch(session_->token(), call_.chunks()));
  replies_->Start(Kind::kTouch, id).Append(local::CountReply{.chunks = chunks});
  replies_->Send();
  return Answered::kNow;
}

// ---------------------------------------------------------------- answered later

absl::StatusOr<PeerKeys::Answered> PeerKeys::Delete(uint64_t id) {
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t chunks,
                          context_->store->Delete(session_->token(), call_.chunks()));
  const uint64_t number = next_number_++;
  deleting_[number] = {.id = id, .began = replies_->began(), .keys = keys(), .chunks = chunks};
  context_->store->WhenDeleted(
      /*durable=*/false,
      [weak = weak_from_this(), loop = context_->loop, number](const absl::Status& status) {
        loop->Post([weak, number, status] {
          if (const std::shared_ptr<PeerKeys> self = weak.lock()) self->OnDeleted(number, status);
        });
      });
  return Answered::kLater;
}

void PeerKeys::OnDeleted(uint64_t number, const absl::Status& status) {
  const auto found = deleting_.find(number);
  if (found == deleting_.end()) return;  // the connection ended
  const Deleting deleting = found->second;
  deleting_.erase(found);
  if (status.ok()) {
    replies_->Start(Kind::kDelete, deleting.id)
        .Append(local::CountReply{.chunks = deleting.chunks});
    replies_->Send();
  } else {
    replies_->SendError(Kind::kDelete, deleting.id, status);
  }
  replies_->NoteEnd(Operation::kDelete, status.code(), deleting.began, deleting.keys);
}

absl::StatusOr<PeerKeys::Answered> PeerKeys::LookupBeyond(const local::Message& message) {
  const auto kind = static_cast<Kind>(message.kind);
  // A request that may not be kept is answered from this node.
  absl::StatusOr<MessageHold> hold = session_->HoldFor(message.body.size());
  const uint64_t number = next_number_++;
  const auto searched = [weak = weak_from_this(), loop = context_->loop, number] {
    loop->Post([weak, number] {
      if (const std::shared_ptr<PeerKeys> self = weak.lock()) self->OnSearched(number);
    });
  };
  Store& store = *context_->store;
  const auto result = hold.ok() ? store.LookupOrSearch(session_->token(), call_.lookup(), searched)
                                : store.Lookup(session_->token(), call_.lookup());
  if (result.has_value()) {
    KVKEEP_RETURN_IF_ERROR(result->status());
    KVKEEP_RETURN_IF_ERROR(ReplyLookup(kind, message.id, **result, /*searched=*/false));
    return Answered::kNow;
  }
  // The end of the search is posted to this thread, so it finds this entry.
  searching_.emplace(number, Searching{.kind = kind,
                                       .id = message.id,
                                       .began = replies_->began(),
                                       .held = *std::move(hold),
                                       .body = {message.body.begin(), message.body.end()}});
  return Answered::kLater;
}

void PeerKeys::OnSearched(uint64_t number) {
  const auto found = searching_.find(number);
  if (found == searching_.end()) return;  // the connection ended
  const Searching searching = std::move(found->second);
  searching_.erase(found);
  const absl::Status status = LookAgain(searching);
  if (!status.ok()) replies_->SendError(searching.kind, searching.id, status);
  const Operation operation =
      searching.kind == Kind::kLookup ? Operation::kLookup : Operation::kGet;
  replies_->NoteEnd(operation, status.code(), searching.began, keys());
}

absl::Status PeerKeys::LookAgain(const Searching& searching) {
  if (!session_->open()) return absl::FailedPreconditionError("the session was revoked");
  // Other calls came meanwhile.
  KVKEEP_RETURN_IF_ERROR(call_.Parse(searching.kind, searching.body));
  KVKEEP_RETURN_IF_ERROR(ResolveParts());
  LookupRequest request = call_.lookup();
  request.after_search = true;
  KVKEEP_ASSIGN_OR_RETURN(const LookupResult found,
                          context_->store->Lookup(session_->token(), request));
  return ReplyLookup(searching.kind, searching.id, found, /*searched=*/true);
}

void PeerKeys::End() {
  searching_.clear();
  deleting_.clear();
}

// ---------------------------------------------------------------- the reply to a lookup

absl::Status PeerKeys::ReplyLookup(Kind kind, uint64_t id, const LookupResult& found,
                                   bool searched) {
  places_.clear();
  runs_.clear();
  bool known = false;
  if (found.lease.value() != 0) {
    known = session_->leases().contains(found.lease);
    session_->leases().Note(found, call_.chunks().parts.size());
  }
  if (kind == Kind::kGet) {
    if (absl::Status added = AddPlaces(found); !added.ok()) {
      UndoLease(found, known);
      return added;
    }
  }
  const size_t keys = call_.chunks().keys.size();
  const size_t row_bytes = (call_.chunks().parts.size() + 7) / 8;
  const bool asks = call_.asks_remote();
  const size_t bytes = sizeof(local::MessageHeader) + sizeof(local::ReplyHead) +
                       sizeof(local::LookupReply) + sizeof(local::LookupCost) +
                       2 * keys * row_bytes +
                       (asks ? sizeof(local::RemoteReply) + keys * row_bytes : 0) +
                       places_.size() * sizeof(local::Place) +
                       runs_.size() * sizeof(local::ImageRun);
  if (bytes > local::kMaxMessageBytes) {
    UndoLease(found, known);
    return absl::ResourceExhaustedError(absl::StrCat("the reply has ", bytes,
                                                     " bytes, allowed are at most ",
                                                     local::kMaxMessageBytes, "; ask for less"));
  }
  local::MessageWriter& reply = replies_->Start(kind, id);
  reply.Append(local::LookupReply{.lease = found.lease.value(),
                                  .leased_bytes = found.leased_bytes,
                                  .leading_keys = found.leading_keys,
                                  .leased_keys = found.leased_keys,
                                  .keys = static_cast<uint32_t>(keys),
                                  .row_bytes = static_cast<uint32_t>(row_bytes),
                                  .places = static_cast<uint32_t>(places_.size()),
                                  .runs = static_cast<uint32_t>(runs_.size())});
  const auto append = [&](const std::vector<uint64_t>& rows) {
    std::byte* to = reply.Extend(keys * row_bytes);
    for (const uint64_t row : rows) {  // little-endian: bit p of the word is bit p of the row
      std::memcpy(to, &row, row_bytes);
      to += row_bytes;
    }
  };
  append(found.g2_parts);
  append(found.g3_parts);
  reply.AppendAll(std::span<const local::Place>(places_));
  reply.AppendAll(std::span<const local::ImageRun>(runs_));
  if (session_->version() >= 3) {
    reply.Append(local::LookupCost{.promotion_us = WholeMicroseconds(found.promotion_time)});
  }
  if (asks) {
    reply.Append(local::RemoteReply{.keys = found.beyond_keys,
                                    .us = WholeMicroseconds(found.beyond_time),
                                    .asked = searched ? 1u : 0});
    append(found.coming_parts);
  }
  replies_->Send();
  return absl::OkStatus();
}

absl::Status PeerKeys::AddPlaces(const LookupResult& found) {
  const ChunkSet chunks = call_.chunks();
  const uint64_t segment_blocks = context_->arena->segment_blocks().value();
  places_.reserve(found.places.size());
  for (const ChunkPlace& from : found.places) {
    const size_t key = from.chunk / chunks.parts.size();
    // Checks the lease of an earlier call with the same client_request_id.
    if (key >= chunks.keys.size()) {
      return absl::InvalidArgumentError(
          "client_request_id: it names a lease on other keys than these");
    }
    local::Place place{.chunk = from.chunk,
                       .payload_bytes = from.shape.payload_bytes,
                       .tail_bytes = from.shape.tail_bytes,
                       .first_run = static_cast<uint32_t>(runs_.size()),
                       .runs = static_cast<uint32_t>(from.extents.size())};
    if (!from.readable) {
      const ChunkId id{chunks.ns, chunks.keys[key], chunks.parts[from.chunk % chunks.parts.size()]};
      KVKEEP_ASSIGN_OR_RETURN(place.progress_word,
                              session_->leases().WordOf(session_->token(), found.lease, id, from,
                                                        call_.lookup().transient));
    }
    for (const Extent& extent : from.extents) {
      const uint64_t block = extent.first.value();
      runs_.push_back({.segment = static_cast<uint32_t>(block / segment_blocks),
                       .blocks = static_cast<uint32_t>(extent.count.value()),
                       .offset = block % segment_blocks * kBlockBytes});
    }
    places_.push_back(place);
  }
  return absl::OkStatus();
}

// Gives back what a failed call leased; an earlier call's lease stays.
void PeerKeys::UndoLease(const LookupResult& found, bool known) {
  if (known || found.lease.value() == 0) return;
  context_->store->Release(session_->token(), found.lease, 0).IgnoreError();
  session_->leases().Release(found.lease, 0);
}

}  // namespace kvkeep
