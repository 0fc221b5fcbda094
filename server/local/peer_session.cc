#include "server/local/peer_session.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

using local::Kind;

namespace {

// A request that is answered later takes kRequestMemory times the memory of its message, and
// kRequestMemoryBytes in addition.
constexpr uint64_t kRequestMemory = 3;
constexpr uint64_t kRequestMemoryBytes = kKiB;

}  // namespace

PeerSession::PeerSession(std::shared_ptr<const LocalContext> context, PeerIdentity identity,
                         std::shared_ptr<PeerReplies> replies)
    : context_(std::move(context)), identity_(std::move(identity)), replies_(std::move(replies)) {}

absl::Status PeerSession::Open(const local::Message& message) {
  KVKEEP_CHECK(fresh());
  KVKEEP_RETURN_IF_ERROR(identity_.refusal);
  local::BodyReader reader(message.body);
  local::Hello hello;
  if (!reader.Read(&hello) || hello.magic != local::kMagic) {
    return absl::InvalidArgumentError("Hello: not of the local protocol");
  }
  if (!message.descriptors.empty()) {
    return absl::InvalidArgumentError("Hello: it comes without descriptors");
  }
  if (hello.min_version > local::kVersion || hello.max_version < local::kFirstVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "Hello: the client speaks versions ", hello.min_version, " to ", hello.max_version,
        " of the local protocol, this daemon ", local::kFirstVersion, " to ", local::kVersion));
  }
  version_ = std::min(hello.max_version, local::kVersion);
  if (hello.name_bytes > local::kMaxClientNameBytes || hello.name_bytes != reader.rest().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("client_name: name_bytes is ", hello.name_bytes, ", ", reader.rest().size(),
                     " bytes came; at most ", local::kMaxClientNameBytes));
  }
  const auto name = reader.rest();
  KVKEEP_RETURN_IF_ERROR(
      OpenInStore(std::string(reinterpret_cast<const char*>(name.data()), name.size())));
  absl::Status welcomed = SendWelcome(message.id);
  if (welcomed.ok()) welcomed = SendSegments(identity_.segments);
  if (version_ < 2) return welcomed;
  for (const SegmentRange& range : identity_.shared) {
    if (welcomed.ok()) welcomed = SendSegments(range);
  }
  return welcomed;
}

absl::Status PeerSession::OpenInStore(std::string client_name) {
  KVKEEP_ASSIGN_OR_RETURN(progress_, ProgressMemory::Create());
  KVKEEP_ASSIGN_OR_RETURN(token_,
                          context_->store->OpenSession({.client_name = std::move(client_name),
                                                        .peer = identity_.peer,
                                                        .tenant = identity_.tenant,
                                                        .grants = identity_.grants}));
  leases_.emplace(context_, progress_);
  state_ = State::kOpen;
  return absl::OkStatus();
}

uint64_t PeerSession::MostStaging() const {
  const uint64_t own = identity_.staging == nullptr ? UINT64_MAX : identity_.staging->max_bytes;
  return std::min(context_->limits.max_staging_bytes, own);
}

absl::Status PeerSession::SendWelcome(uint64_t id) {
  std::vector<UniqueFd> descriptors;
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd words, progress_->OpenForClient());
  descriptors.push_back(std::move(words));
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd events, replies_->OpenEvents());
  descriptors.push_back(std::move(events));

  const StoreOptions store = context_->store->options();
  const LocalLimits& limits = context_->limits;
  const Arena& arena = *context_->arena;
  const auto all = static_cast<uint32_t>(arena.segment_count());
  const SegmentRange own = identity_.segments.CutAt(all);
  uint32_t shared = 0;
  for (const SegmentRange& range : identity_.shared) shared += range.CutAt(all).count;
  local::Welcome welcome{
      .version = version_,
      .first_segment = own.first,
      .incarnation = context_->store->incarnation().value(),
      .session_token = token_.bytes,
      .arena_uuid = arena.uuid().bytes,
      .segment_bytes = arena.segment_blocks().value() * kBlockBytes,
      .segments = own.count,
      .progress_words = local::kProgressWords,
      .max_keys_per_call = store.max_keys_per_call,
      .max_leases_per_session = store.max_leases_per_session,
      .max_leased_bytes = store.max_leased_bytes,
      .max_staging_bytes = MostStaging(),
      .max_sessions = store.max_sessions,
      .max_put_chunks = limits.max_put_chunks,
      .max_registrations = limits.max_registrations,
      .grace_ms = static_cast<uint32_t>(limits.grace.count()),
      .shared_segments = version_ < 2 ? 0 : shared,
  };
  local::MessageWriter& reply = replies_->Start(Kind::kHello, id);
  reply.Append(welcome);
  if (version_ >= local::kDeadlinesSince) {
    const auto now = static_cast<uint64_t>(context_->clock->Now().count());
    reply.Append(local::ClockReading{.monotonic_ns = now});
  }
  if (version_ >= local::kChunkLimitSince) {
    reply.Append(local::ChunkLimit{.max_payload_bytes = store.MaxPayloadBytes(identity_.tenant)});
  }
  replies_->Send(std::move(descriptors));
  return absl::OkStatus();
}

absl::Status PeerSession::SendSegments(const SegmentRange& range) {
  const SegmentRange there = range.CutAt(static_cast<uint32_t>(context_->arena->segment_count()));
  uint32_t next = there.first;
  const uint32_t end = there.first + there.count;
  while (next < end && state_ == State::kOpen) {
    const auto count = std::min<uint32_t>(end - next, local::kMaxDescriptorsPerPacket);
    std::vector<UniqueFd> descriptors;
    for (uint32_t i = 0; i < count; ++i) {
      KVKEEP_ASSIGN_OR_RETURN(const int fd, context_->arena->OpenForClient(next + i));
      descriptors.emplace_back(fd);
    }
    replies_->StartBare(Kind::kSegments, 0)
        .Append(local::Segments{.first_segment = next, .count = count});
    replies_->Send(std::move(descriptors));
    next += count;
  }
  return absl::OkStatus();
}

absl::Status PeerSession::OpenNamespace(const local::Message& message) {
  local::BodyReader reader(message.body);
  local::OpenNamespace wire;
  if (!reader.Read(&wire)) return absl::InvalidArgumentError("OpenNamespace: too short");
  if (version_ < 2) wire.tenant_bytes = 0;
  NamespaceSpec spec{.tokens_per_chunk = wire.tokens_per_chunk,
                     .bytes_per_part = wire.bytes_per_part,
                     .parts = wire.parts};
  const std::pair<uint16_t, std::string*> texts[] = {
      {wire.model_bytes, &spec.model},         {wire.dtype_bytes, &spec.dtype},
      {wire.layout_bytes, &spec.layout},       {wire.hash_algorithm_bytes, &spec.hash_algorithm},
      {wire.hash_seed_bytes, &spec.hash_seed}, {wire.tenant_bytes, &spec.tenant}};
  for (const auto& [bytes, text] : texts) {
    std::span<const std::byte> raw;
    if (!reader.ReadBytes(bytes, &raw)) {
      return absl::InvalidArgumentError("OpenNamespace: its texts are longer than what came");
    }
    text->assign(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  if (!reader.done()) return absl::InvalidArgumentError("OpenNamespace: bytes after its texts");
  KVKEEP_ASSIGN_OR_RETURN(const NamespaceDigest digest,
                          context_->store->OpenNamespace(token_, spec));
  namespaces_[digest] = {.parts = spec.parts, .bytes_per_part = spec.bytes_per_part};
  replies_->Start(Kind::kOpenNamespace, message.id)
      .Append(local::NamespaceReply{.digest = digest.bytes});
  replies_->Send();
  return absl::OkStatus();
}

absl::Status PeerSession::ServerInfo(const local::Message& message) {
  if (!message.body.empty()) return absl::InvalidArgumentError("ServerInfo: it has no body");
  local::MessageWriter& reply = replies_->Start(Kind::kServerInfo, message.id);
  reply.Append(
      local::ServerInfoReply{.incarnation = context_->store->incarnation().value(),
                             .state = context_->serving_state(),
                             .version_bytes = static_cast<uint32_t>(context_->version.size())});
  reply.AppendText(context_->version);
  replies_->Send();
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> PeerSession::PartsOf(const NamespaceDigest& ns) const {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) {
    return absl::FailedPreconditionError("ns is not of a namespace of this session");
  }
  return found->second.parts;
}

uint64_t PeerSession::LargestChunk() const {
  uint64_t chunk = 0;
  for (const auto& [digest, ns] : namespaces_) chunk = std::max(chunk, ns.bytes_per_part);
  return chunk;
}

absl::StatusOr<MessageHold> PeerSession::HoldFor(size_t message_bytes) const {
  MessageHold hold(context_, identity_.messages);
  KVKEEP_RETURN_IF_ERROR(hold.Add(kRequestMemory * message_bytes + kRequestMemoryBytes));
  return hold;
}

void PeerSession::Revoke() {
  KVKEEP_CHECK(open());
  state_ = State::kRevoked;
  // Ends the word before the bytes, so that a client which reads the bytes after they are gone sees
  // the word.
  progress_->EndSession();
  leases_->End();
  context_->store->RevokeSession(token_);
}

void PeerSession::End() {
  if (std::exchange(state_, State::kEnded) != State::kOpen) return;
  progress_->EndSession();  // before the bytes go, as in Revoke
  leases_->End();
  context_->store->CloseSession(token_);
}

}  // namespace kvkeep
