// LocalPeer: requests about keys.
#include <absl/strings/str_cat.h>

#include <cstring>
#include <utility>

#include "server/local/peer.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/wire_time.h"

namespace kvkeep {

using local::Kind;

absl::Status LocalPeer::Keys(const local::Message& message) {
  const Kind kind = static_cast<Kind>(message.kind);
  KVKEEP_RETURN_IF_ERROR(call_.Parse(kind, message.body));
  DoReleases();
  if (kind == Kind::kRelease) {
    replies_->Start(kind, message.id);
    replies_->Send();
    return absl::OkStatus();
  }
  KVKEEP_RETURN_IF_ERROR(ResolveParts());
  if (kind == Kind::kLookup || kind == Kind::kGet) {
    if (call_.asks_remote() && context_->store->reaches_beyond()) return LookupBeyond(message);
    KVKEEP_ASSIGN_OR_RETURN(const LookupResult found,
                            context_->store->Lookup(session_->token(), call_.lookup()));
    return ReplyLookup(kind, message.id, found, /*searched=*/false);
  }
  if (kind == Kind::kPrefetch) {
    KVKEEP_ASSIGN_OR_RETURN(const PrefetchResult result,
                            context_->store->Prefetch(session_->token(), call_.chunks()));
    replies_->Start(kind, message.id)
        .Append(local::PrefetchReply{.started_chunks = result.started_chunks,
                                     .ready_chunks = result.ready_chunks});
  } else if (kind == Kind::kDelete) {
    return Delete(message.id);
  } else {
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t chunks,
                            context_->store->Touch(session_->token(), call_.chunks()));
    replies_->Start(kind, message.id).Append(local::CountReply{.chunks = chunks});
  }
  replies_->Send();
  return absl::OkStatus();
}

// Answers on the loop's thread, once a kill could not bring the chunks back.
absl::Status LocalPeer::Delete(uint64_t id) {
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t chunks,
                          context_->store->Delete(session_->token(), call_.chunks()));
  const uint64_t number = next_job_++;
  deleting_[number] = {
      .id = id, .began = replies_->began(), .keys = call_.chunks().keys.size(), .chunks = chunks};
  answered_later_ = true;
  context_->store->WhenDeleted(
      /*durable=*/false, [weak = weak_from_this(), loop = context_->loop,
                          number](const absl::Status& status) {
        loop->Post([weak, number, status] {
          if (const std::shared_ptr<LocalPeer> self = weak.lock()) self->OnDeleted(number, status);
        });
      });
  return absl::OkStatus();
}

void LocalPeer::OnDeleted(uint64_t number, const absl::Status& status) {
  const auto found = deleting_.find(number);
  if (found == deleting_.end()) return;  // the connection ended
  const PeerDeleting deleting = found->second;
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

absl::Status LocalPeer::ResolveParts() {
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t parts, session_->PartsOf(call_.ns()));
  if (!call_.names_parts()) call_.NameAllParts(parts);
  return absl::OkStatus();
}

// An unknown lease does not fail the request.
void LocalPeer::DoReleases() {
  for (const local::ReleaseEntry& entry : call_.releases()) {
    const LeaseId lease(entry.lease);
    if (!session_->leases().contains(lease)) continue;
    context_->store->Release(session_->token(), lease, entry.keep_keys).IgnoreError();
    session_->leases().Release(lease, entry.keep_keys);
  }
}

absl::Status LocalPeer::ReplyLookup(Kind kind, uint64_t id, const LookupResult& found,
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

absl::Status LocalPeer::AddPlaces(const LookupResult& found) {
  const ChunkSet chunks = call_.chunks();
  const uint64_t segment_blocks = context_->arena->segment_blocks().value();
  places_.reserve(found.places.size());
  for (const ChunkPlace& from : found.places) {
    const size_t key = from.chunk / chunks.parts.size();
    // The lease of an earlier call with the same client_request_id.
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

// The call failed: gives back what it leased; an earlier call's lease stays.
void LocalPeer::UndoLease(const LookupResult& found, bool known) {
  if (known || found.lease.value() == 0) return;
  context_->store->Release(session_->token(), found.lease, 0).IgnoreError();
  session_->leases().Release(found.lease, 0);
}

}  // namespace kvkeep
