// LocalPeer: the handshake, namespaces, what the daemon tells of itself.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "server/local/peer.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

using local::Kind;

void LocalPeer::Hello(const local::Message& message) {
  context_->counters->session_requests.fetch_add(1, std::memory_order_relaxed);
  if (state_ != State::kNew) {
    ReplyError(message.kind, message.id,
               absl::FailedPreconditionError("Hello: this connection has its session"));
    return;
  }
  const absl::Status status = DoHello(message);
  if (status.ok()) return;
  ReplyError(message.kind, message.id, status);
  sink_->Close(status);
}

absl::Status LocalPeer::DoHello(const local::Message& message) {
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
    return absl::FailedPreconditionError(absl::StrCat(
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
      OpenSession(std::string(reinterpret_cast<const char*>(name.data()), name.size())));
  absl::Status welcomed = SendWelcome(message.id);
  if (welcomed.ok()) welcomed = SendSegments(identity_.segments);
  if (version_ < 2) return welcomed;
  for (const SegmentRange& range : identity_.shared) {
    if (welcomed.ok()) welcomed = SendSegments(range);
  }
  return welcomed;
}

absl::Status LocalPeer::OpenSession(std::string client_name) {
  KVKEEP_ASSIGN_OR_RETURN(progress_, ProgressMemory::Create());
  KVKEEP_ASSIGN_OR_RETURN(session_,
                          context_->store->OpenSession({.client_name = std::move(client_name),
                                                        .peer = identity_.peer,
                                                        .tenant = identity_.tenant,
                                                        .grants = identity_.grants}));
  leases_.emplace(context_, progress_);
  state_ = State::kOpen;
  return absl::OkStatus();
}

uint64_t LocalPeer::MostStaging() const {
  const uint64_t own = identity_.staging == nullptr ? UINT64_MAX : identity_.staging->max_bytes;
  return std::min(context_->limits.max_staging_bytes, own);
}

absl::Status LocalPeer::SendWelcome(uint64_t id) {
  std::vector<UniqueFd> descriptors;
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd words, progress_->OpenForClient());
  descriptors.push_back(std::move(words));
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd events, sink_->OpenEvents());
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
      .session_token = session_.bytes,
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
  StartReply(Kind::kHello, id);
  reply_.Append(welcome);
  if (version_ >= local::kDeadlinesSince) {
    const auto now = static_cast<uint64_t>(context_->clock->Now().count());
    reply_.Append(local::ClockReading{.monotonic_ns = now});
  }
  if (version_ >= local::kChunkLimitSince) {
    reply_.Append(local::ChunkLimit{.max_payload_bytes = store.MaxPayloadBytes(identity_.tenant)});
  }
  SendReply(std::move(descriptors));
  return absl::OkStatus();
}

absl::Status LocalPeer::SendSegments(const SegmentRange& range) {
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
    reply_.Reset(static_cast<uint16_t>(Kind::kSegments), 0);
    reply_.Append(local::Segments{.first_segment = next, .count = count});
    SendReply(std::move(descriptors));
    next += count;
  }
  return absl::OkStatus();
}

absl::Status LocalPeer::OpenNamespace(const local::Message& message) {
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
                          context_->store->OpenNamespace(session_, spec));
  namespaces_[digest] = {.parts = spec.parts, .bytes_per_part = spec.bytes_per_part};
  StartReply(Kind::kOpenNamespace, message.id);
  reply_.Append(local::NamespaceReply{.digest = digest.bytes});
  SendReply();
  return absl::OkStatus();
}

absl::Status LocalPeer::ServerInfo(const local::Message& message) {
  if (!message.body.empty()) return absl::InvalidArgumentError("ServerInfo: it has no body");
  StartReply(Kind::kServerInfo, message.id);
  reply_.Append(
      local::ServerInfoReply{.incarnation = context_->store->incarnation().value(),
                             .state = context_->serving_state(),
                             .version_bytes = static_cast<uint32_t>(context_->version.size())});
  reply_.AppendText(context_->version);
  SendReply();
  return absl::OkStatus();
}

}  // namespace kvkeep
