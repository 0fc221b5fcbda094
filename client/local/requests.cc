#include "client/local/requests.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

absl::Status WrongReply(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("local: the daemon's answer about keys is wrong: ", std::string(what)));
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool AsksRemote(const LocalSession& session, const KeysQuery& query) {
  return query.remote.wait_us > 0 && session.welcome().version >= local::kAsksRemoteSince;
}

local::MessageWriter& KeysMessage(LocalSession& session, local::Kind kind, uint64_t id,
                                  const KeysQuery& query) {
  thread_local local::MessageWriter writer(0, 0);
  const std::vector<local::ReleaseEntry> releases = session.TakeReleases();
  writer.Reset(static_cast<uint16_t>(kind), id);
  writer.Append(local::KeysRequest{.ns = query.ns.bytes,
                                   .keys = static_cast<uint32_t>(query.keys.size()),
                                   .parts = static_cast<uint16_t>(query.parts.size()),
                                   .lease_mode = static_cast<uint8_t>(query.lease),
                                   .transient = query.transient,
                                   .releases = static_cast<uint32_t>(releases.size()),
                                   .asks_remote = AsksRemote(session, query)});
  writer.AppendAll(std::span<const local::ReleaseEntry>(releases));
  writer.AppendAll(std::span<const uint32_t>(query.parts.data(), query.parts.size()));
  static_assert(sizeof(ChunkKey) == ChunkKey::kSize);
  writer.AppendBytes(query.keys.data(), query.keys.size() * ChunkKey::kSize);
  if (AsksRemote(session, query)) writer.Append(query.remote);
  return writer;
}

absl::StatusOr<Found> ReadFound(LocalSession::Reply& reply, LocalSession& session, size_t keys,
                                size_t parts, bool leased, bool asks_remote) {
  local::LookupReply said;
  if (!reply.body.Read(&said)) return WrongReply("too short");
  if (said.keys != keys || said.row_bytes != (parts + 7) / 8) {
    return WrongReply(absl::StrCat(said.keys, " rows of ", said.row_bytes, " bytes"));
  }
  if (said.leading_keys > keys || said.leased_keys > keys) {
    return WrongReply(absl::StrCat(said.leading_keys, " leading and ", said.leased_keys,
                                   " leased keys of ", keys));
  }
  if ((!leased && said.lease != 0) || (said.lease == 0 && said.places > 0)) {
    return WrongReply("a lease that was not asked for");
  }
  std::span<const std::byte> g2, g3, coming;
  local::RemoteReply remote;
  std::vector<local::Place> places;
  std::vector<local::ImageRun> runs;
  local::LookupCost cost;
  if (!reply.body.ReadBytes(uint64_t{said.keys} * said.row_bytes, &g2) ||
      !reply.body.ReadBytes(uint64_t{said.keys} * said.row_bytes, &g3) ||
      !reply.body.ReadAll(said.places, &places) || !reply.body.ReadAll(said.runs, &runs) ||
      (session.welcome().version >= 3 && !reply.body.Read(&cost)) ||
      (asks_remote && (!reply.body.Read(&remote) ||
                       !reply.body.ReadBytes(uint64_t{said.keys} * said.row_bytes, &coming))) ||
      !reply.body.done()) {
    return WrongReply("its length is not that of its parts");
  }
  if (remote.keys > keys - said.leading_keys) {
    return WrongReply(absl::StrCat(said.leading_keys, " leading keys and ", remote.keys,
                                   " behind them of ", keys));
  }
  KVKEEP_ASSIGN_OR_RETURN(Layout layout,
                          Layout::Build(*session.mappings(), places, runs, keys * parts));
  return Found{.lease = said.lease,
               .leased_bytes = said.leased_bytes,
               .leading_keys = said.leading_keys,
               .leased_keys = said.lease == 0 ? 0 : said.leased_keys,
               .promotion_us = cost.promotion_us,
               .row_bytes = said.row_bytes,
               .g2_bits = Text(g2),
               .g3_bits = Text(g3),
               .remote = remote,
               .remote_bits = Text(coming),
               .layout = std::make_shared<const Layout>(std::move(layout))};
}

bool ReleaseLate(LocalSession& session, LocalSession::Reply& reply) {
  local::LookupReply said;
  if (!reply.body.Read(&said) || said.lease == 0) return false;
  session.QueueRelease(said.lease, 0);
  return true;
}

}  // namespace kvkeep::client
