// What lies beyond the node (remote_tier.h): chunks recalled from there, written and removed there.
//
// A recall asks the source which of the chunks that this node has not it has; takes space in G2 for
// those, and a slot; and reads them as any promotion is read. A chunk that does not come is gone
// again, unless somebody reads it: then that is told, and it goes with its last reader.
//
// Why no deleted chunk comes back: its name is in RemoteRemovals until its image is removed and the
// searches that began before are over (MayRecall). One that is being written while it is deleted
// is removed after its write; one that is on its way here, once that has ended.
#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/store/canary.h"
#include "tiers/store/core.h"
#include "tiers/store/encrypted_image.h"
#include "tiers/store/guarded_header.h"
#include "tiers/store/lookup_state.h"

namespace kvkeep::store_internal {

// One call of Recall.
struct Core::Recalling {
  ReadQueue::Requester requester;
  TenantId owner;  // of the namespace
  RemoteRemovals::Moment began = 0;
  std::vector<ChunkId> ids;
  uint64_t left = 1;  // chunks under way, and the call itself until all were begun
  uint64_t came = 0;
  RecallCallback done;
};

void Core::Recall(const SessionToken& token, const ChunkSet& chunks, RecallCallback done) {
  LookupState lookup(chunks, options_);
  auto recalling = std::make_shared<Recalling>();
  recalling->done = std::move(done);
  Section section(this);
  const auto answer = [&](absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    CallLater(std::move(recalling->done), std::move(status));
  };
  const absl::StatusOr<Session*> session = sessions_.FindFor(token, chunks, &Grants::read);
  if (!session.ok()) return answer(session.status());
  if (remote_ == nullptr) return answer(absl::UnavailableError("nothing lies beyond the node"));
  if (draining_ || !remote_->readable() || remote_->recalls >= RemoteTier::kMostRecalls) {
    ++remote_->counters.recalls_refused;
    return answer(absl::UnavailableError(
        draining_                ? "the daemon is draining"
        : !remote_->readable()   ? "what lies beyond the node does not answer"
                                 : "too many recalls are under way"));
  }
  recalling->owner = owners_.OwnerOf(chunks.ns);
  recalling->requester = {(*session)->tenant(), token};
  // A search begins before the table is looked at: what is deleted from here on is not believed.
  recalling->began = remote_->removals.BeginSearch();
  ++remote_->recalls;
  FindAll(section, recalling->owner, lookup, false);
  for (size_t i = 0; i < lookup.found.size(); ++i) {
    section.YieldIfSpent();
    Count(work::kLook);
    if (lookup.found[i].slot != kNoSlot) continue;
    if (recalling->ids.size() >= RemoteTier::kMostChunksARecall) break;
    recalling->ids.push_back(lookup.id(i));
  }
  ++remote_->counters.searches;
  remote_->counters.searched_chunks += recalling->ids.size();
  if (recalling->ids.empty()) return EndRecall(*recalling);
  Later([this, recalling, source = &remote_->source()] {
    source->Find(recalling->ids, [this, recalling](const RemoteSource::Found& found) {
      OnFound(recalling, found);
    });
  });
}

// When nothing of it is left.
void Core::EndRecall(Recalling& recalling) {
  if (--recalling.left > 0) return;
  remote_->removals.EndSearch(recalling.began);
  --remote_->recalls;
  CallLater(std::move(recalling.done), recalling.came);
}

void Core::OnFound(std::shared_ptr<Recalling> recalling, const RemoteSource::Found& found) {
  Section section(this);
  KVKEEP_CHECK(found.size() == recalling->ids.size());
  for (size_t i = 0; i < found.size(); ++i) {
    section.YieldIfSpent();
    Count(work::kLook);
    if (!found[i].has_value()) continue;
    ++remote_->counters.found_chunks;
    // Full: the rest would not fit either, and the first ones of a prompt are worth the most.
    if (!BeginRecall(section, recalling, i, *found[i])) break;
  }
  EndRecall(*recalling);
}

bool Core::MayRecall(const Recalling& recalling, const ChunkId& id) const {
  return !draining_ && table_.Find(id) == kNoSlot &&
         (Planted(Canary::kDeletedRecalled) ||
          remote_->removals.MayBeBelieved(id, recalling.began));
}

// False: there is no space. May yield.
bool Core::BeginRecall(Section& section, const std::shared_ptr<Recalling>& recalling, size_t i,
                       const ImageShape& shape) {
  const ChunkId& id = recalling->ids[i];
  const TenantId owner = recalling->owner;
  if (!HasPool(owner) || !ValidateShape(shape).ok() || !MayRecall(*recalling, id)) return true;
  const uint64_t blocks = shape.blocks().value();
  const auto may_take = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return pool(owner).recalling_blocks + blocks <=
           pool(owner).capacity_blocks() / RemoteTier::kPartOfG2;
  };
  ChunkSlot parent = i == 0 ? kNoSlot : table_.Find(recalling->ids[i - 1]);
  const bool room = may_take() && (!table_.full() || MakeRoomInTable(section, owner));
  std::optional<ExtentList> extents;
  if (room) extents = AllocateG2(section, owner, blocks, parent);
  if (!extents.has_value()) {
    ++remote_->counters.no_space;
    return false;
  }
  // Much may have come in between.
  if (!MayRecall(*recalling, id) || table_.full() || !may_take()) {
    pool(owner).Free(*extents);
    return true;
  }
  const ChunkSlot slot = CreateChunk(id, shape);
  TouchLater(table_.MemoryDue());
  {
    Change chunk(this, slot);
    chunk->g2 = *std::move(extents);
    chunk->g2_state = G2State::kReading;
    chunk->recalled = true;
    InsertIntoG2Policy(slot, kNoSlot);
  }
  pool(owner).recalling_blocks += blocks;
  ++recalling->left;
  remote_->recalling.insert(id);
  StartPromotion(*remote_, recalling->requester, slot);
  AwaitAll(*promotions_.at(slot),
           [this, recalling, bytes = shape.payload_bytes](const absl::Status& status) {
             OnRecalled(recalling, bytes, status);
           });
  return true;
}

// Its last byte has ended: its space is its own from here on, or free.
void Core::EndRecallRead(const Chunk& chunk) {
  pool(chunk).recalling_blocks -= chunk.blocks();
  remote_->recalling.erase(remote_->recalling.find(chunk.id));
  PumpLater(*remote_);  // it may be removed there now
}

void Core::OnRecalled(const std::shared_ptr<Recalling>& recalling, uint64_t bytes,
                      const absl::Status& status) {
  Section section(this);
  if (status.ok()) {
    ++recalling->came;
    ++remote_->counters.recalled_chunks;
    remote_->counters.recalled_bytes += bytes;
  } else {
    ++remote_->counters.failed_recalls;
  }
  EndRecall(*recalling);
}

bool Core::BeyondIsQuiet() {
  Section section(this, Section::Kind::kNotMeasured);
  return remote_ == nullptr || (!remote_->reads.busy() && !remote_->writes.busy() &&
                                remote_->recalls == 0 && !remote_->removals.busy());
}

// ---- down

void Core::OfferToRemote(const ChunkId& id) {
  if (remote_ == nullptr || limits_.remote_write_bytes_per_second == 0) return;
  ++remote_->counters.offered_chunks;
  if (!remote_->writes.Offer(id)) {
    ++remote_->counters.dropped_chunks;
    return;
  }
  PumpLater(*remote_);
}

void Core::PumpRemote() {
  RemoteTier& remote = *remote_;
  if (draining_) return;  // what is there beyond the node outlives this process as it is
  // Whoever reads it reads it to its end.
  const auto in_use = [&remote](const ChunkId& id) {
    return remote.writes.IsWriting(id) || remote.recalling.contains(id);
  };
  while (remote.writable()) {
    const std::optional<ChunkId> id = remote.removals.Next(in_use);
    if (!id.has_value()) break;
    Count(work::kStart);
    Later([this, id = *id, source = &remote.source()] {
      source->Remove(id, [this, id](const absl::Status& status) {
        OnRemovedFromRemote(id, status);
      });
    });
    if (Spent()) return PumpLater(remote);
  }
  const MonotonicTime now = deps_.clock->Now();
  while (remote.writes.anyone_waits() && remote.writable()) {
    if (Spent()) return PumpLater(remote);
    if (remote.write_rate.Wait(now).has_value()) return;  // Tick comes back to it
    Count(work::kFind);
    const ChunkSlot slot = table_.Find(remote.writes.next());
    const bool there = slot != kNoSlot && ReadableNow(table_.at(slot));
    if (!there || table_.at(slot).sending) {
      ++remote.counters.dropped_chunks;
      remote.writes.Pop();
      continue;
    }
    if (!remote.writes.MayBegin(table_.at(slot).blocks() * kBlockBytes)) return;
    remote.writes.Pop();
    remote.write_rate.Take(table_.at(slot).blocks() * kBlockBytes);
    Count(work::kStart);
    StartRemoteWrite(slot);
  }
}

void Core::StartRemoteWrite(ChunkSlot slot) {
  // Its bytes stay, as they do for a reader; what leases may hold is another matter.
  Change(this, slot)->sending = true;
  const Chunk& chunk = table_.at(slot);
  const uint64_t bytes = chunk.blocks() * kBlockBytes;
  remote_->writes.Begin(chunk.id, bytes);
  Later([this, slot, bytes, g2 = chunk.g2, key = remote_write_keys_[chunk.tenant.value()],
         remote = remote_.get(), placement = remote_->PlacementOf(chunk)] {
    deps_.copy_executor->Post([this, slot, bytes, g2, key, remote, placement] {
      absl::StatusOr<ImageHeader> header = DecodeGuarded(HeaderInArena(g2), deps_.mac_key);
      // DRAM went bad: better nowhere else than a wrong image.
      if (!header.ok()) return OnRemoteWritten(slot, bytes, header.status());
      header->placement = placement;
      SubmitRemoteWrite(*remote, slot, ArenaImage(deps_.arena, g2), *std::move(header), key);
    });
  });
}

void Core::SubmitRemoteWrite(RemoteTier& remote, ChunkSlot slot, ArenaImage image,
                             ImageHeader header, const DataKey* key) {
  const ChunkId id = header.identity.id;
  const ImageShape shape = header.identity.shape;
  // `bytes` has what is sent, until the end.
  const auto send = [&](ConstHeaderPage page, auto from, auto bytes) {
    remote.Write({.id = id,
                  .shape = shape,
                  .extents = {},
                  .header = page,
                  .from = std::move(from),
                  .done = [this, slot, bytes](uint64_t ended, const absl::Status& status) {
                    OnRemoteWritten(slot, ended, status);
                  }});
  };
  const auto fail = [&](const absl::Status& why) {
    OnRemoteWritten(slot, shape.blocks().value() * kBlockBytes, why);
  };
  if (key == nullptr) {
    const auto page = std::make_shared<AlignedPage>();
    if (!page->ok()) return fail(AlignedPage::NoMemory());
    EncodeHeader(header, remote.mac_key, page->span());
    return send(page->span(), std::move(image), page);
  }
  const auto encrypted = EncryptedImage::Make(std::move(header), *key, image, remote.mac_key,
                                              *cipher_buffers_, deps_.random);
  if (!encrypted.ok()) return fail(encrypted.status());
  const std::shared_ptr<const EncryptedImage>& bytes = *encrypted;
  send(bytes->header(),
       [bytes](uint64_t offset, uint64_t most) { return bytes->Run(offset, most); }, bytes);
}

void Core::OnRemoteWritten(ChunkSlot slot, uint64_t bytes, const absl::Status& status) {
  Section section(this);
  RemoteTier& remote = *remote_;
  remote.writes.End(table_.at(slot).id, bytes);
  if (status.ok()) {
    ++remote.counters.written_chunks;
    remote.counters.written_bytes += table_.at(slot).shape.payload_bytes;
  } else {
    ++remote.counters.failed_writes;
  }
  Change(this, slot)->sending = false;
  PumpLater(remote);
}

void Core::RemoveFromRemote(const ChunkId& id) {
  if (remote_ == nullptr) return;
  Count(work::kFind);
  remote_->removals.Add(id);
  PumpLater(*remote_);
}

void Core::OnRemovedFromRemote(const ChunkId& id, const absl::Status& status) {
  Section section(this);
  ++(status.ok() ? remote_->counters.removed_chunks : remote_->counters.failed_removals);
  remote_->removals.End(id, status.ok());
  PumpLater(*remote_);
}

}  // namespace kvkeep::store_internal
